from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtensionOID

from nodeguard.local.client_tls import client_context
from tests.controlplane.certificates import Authority


async def connect(context: ssl.SSLContext, authority: Authority) -> None:
    """Connect to a server with a certificate of this authority."""
    pair = authority.issue("server", "127.0.0.1")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(pair.certificate, pair.key)
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=serving)
    async with server:
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.close()


async def test_an_authority_without_key_usage_and_key_identifiers_is_trusted(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    text = x509.load_pem_x509_certificate(authority.certificate.read_bytes())
    assert [extension.oid for extension in text.extensions] == [ExtensionOID.BASIC_CONSTRAINTS]
    await connect(client_context(str(authority.certificate)), authority)
    await connect(client_context(authorities=authority.certificate.read_text()), authority)


async def test_another_authority_is_not_trusted(tmp_path: Path) -> None:
    for name in ("own", "other"):
        (tmp_path / name).mkdir()
    own, other = Authority(tmp_path / "own"), Authority(tmp_path / "other")
    with pytest.raises(ssl.SSLCertVerificationError):
        await connect(client_context(str(own.certificate)), other)
    with pytest.raises(ssl.SSLCertVerificationError):
        await connect(client_context(), other)

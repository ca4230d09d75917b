"""The certificates that a receiver's own is held against, and the one that is shown to it."""

from __future__ import annotations

import os
import ssl

from msgspec import Struct


class TrustError(Exception):
    """A file of certificates that cannot be used; names it, says why and how to remedy."""


class CertificateFiles(Struct, frozen=True):
    """Where this node's certificate is, with its chain, and its key, both in PEM."""

    certificate: str
    key: str


def tls_context(ca_file: str | None, shown: CertificateFiles | None = None) -> ssl.SSLContext:
    """What a connection by TLS is made with. ca_file: None for the system's. shown: what this node shows of
    itself, if anything. Raises TrustError.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError:
        raise TrustError(f"{ca_file} holds no certificates: write the CA's there, in PEM") from None
    except OSError as error:
        raise TrustError(
            f"{ca_file}: {error.strerror}: put the CA's certificates there, or leave ca_file away"
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if shown is not None:
        _show(context, shown)
    return context


def _show(context: ssl.SSLContext, files: CertificateFiles) -> None:
    for path in (files.certificate, files.key):
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
        except OSError as error:
            raise TrustError(
                f"{path}: {error.strerror}: put the node's certificate and key in place, or set their paths"
            ) from None
    try:
        # A key with a password is refused, not asked for on a terminal.
        context.load_cert_chain(files.certificate, files.key, password="")
    except (OSError, ValueError):
        raise TrustError(
            f"{files.certificate} and {files.key} are no certificate and its key: write both there in PEM"
        ) from None

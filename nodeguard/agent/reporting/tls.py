"""TLS of the connection to an aggregator: the CA to trust, and the certificate of this node."""

from __future__ import annotations

import os
import ssl

from msgspec import Struct


class TlsFileError(Exception):
    """A certificate or key file that cannot be used; the message has the file, the reason and the remedy."""


class CertificateFiles(Struct, frozen=True):
    """The paths of this node's certificate chain and its key, both in PEM."""

    certificate: str
    key: str


def tls_context(ca_file: str | None, files: CertificateFiles | None = None) -> ssl.SSLContext:
    """Return the TLS context of a connection. Raises TlsFileError.

    ca_file: None for the CAs of the system. files: the client certificate, if any.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError:
        raise TlsFileError(f"{ca_file} holds no certificates: write the CA's there, in PEM") from None
    except OSError as error:
        raise TlsFileError(
            f"{ca_file}: {error.strerror}: put the CA's certificates there, or leave ca_file out"
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if files is not None:
        _load_certificate(context, files)
    return context


def _load_certificate(context: ssl.SSLContext, files: CertificateFiles) -> None:
    for path in (files.certificate, files.key):
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
        except OSError as error:
            raise TlsFileError(
                f"{path}: {error.strerror}: put the node's certificate and key in place, or set their paths"
            ) from None
    try:
        # An encrypted key is refused; OpenSSL must not ask for its password on a terminal.
        context.load_cert_chain(files.certificate, files.key, password="")
    except (OSError, ValueError):
        raise TlsFileError(
            f"{files.certificate} and {files.key} are not a certificate and its key: write both there in PEM"
        ) from None

"""TLS contexts of clients, with the same requirements on certificates in all versions of Python."""

from __future__ import annotations

import ssl

from nodeguard.config.regular_file import read_regular_file


def client_context(authority_file: str | None = None, authorities: str | None = None) -> ssl.SSLContext:
    """Return a context that trusts the authorities of a file or of a text (PEM), else those of the system.

    Raises OSError, of which ssl.SSLError is a subclass.
    """
    if authority_file is not None:
        read_regular_file(authority_file, 1)  # OpenSSL would wait for the writer of a pipe
    context = ssl.create_default_context(cafile=authority_file, cadata=authorities)
    # From 3.13 on, Python refuses authorities without some extensions. Sites and old clusters use such ones.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context

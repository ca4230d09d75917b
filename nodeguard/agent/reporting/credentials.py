"""Credentials of the connection to an aggregator: token, trusted CAs, certificate of this node."""

from __future__ import annotations

import errno
import os
import re
import ssl
from stat import S_ISREG

from msgspec import Struct

from nodeguard.config.regular_file import read_regular_file
from nodeguard.local.client_tls import client_context

# A projected service account token has about 1 KiB.
_LIMIT = 16 * 1024
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+\Z")


class CredentialError(Exception):
    """A missing token; the message has the reason and the remedy, and never the token."""


class TokenFile:
    """A token in a file. A change of the file's identity, size or time of modification is a rotation."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._version: tuple[int, int, int, int] | None = None
        self._token = ""

    def __repr__(self) -> str:
        return f"TokenFile({self._path!r})"

    def token(self) -> str:
        """Return the present token, or the last one while the file cannot be read: a rotation may cause that.

        Raises CredentialError if there was no token before.
        """
        try:
            self._read_if_changed()
        except OSError as error:
            if not self._token:
                raise CredentialError(
                    f"{self._path}: {error.strerror}: mount the node's token there, or set its path"
                ) from None
        return self._token

    def forget(self) -> None:
        """Read the file again next time, even if it did not change: the aggregator refused the token."""
        self._version = None

    def _read_if_changed(self) -> None:
        with os.fdopen(os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            stat = os.fstat(file.fileno())
            if not S_ISREG(stat.st_mode):
                raise OSError(errno.EINVAL, "not a regular file")
            version = (stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if version == self._version:
                return
            text = file.read(_LIMIT + 1).decode("ascii", "replace").strip()
        if len(text) <= _LIMIT and _TOKEN.match(text):
            self._token, self._version = text, version
        elif not self._token:
            raise CredentialError(f"{self._path} holds no token: it must be one line of letters and digits")


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
        context = client_context(ca_file)
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
            read_regular_file(path, 1)
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

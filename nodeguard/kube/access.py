"""Address of the Kubernetes API and credentials for it: from a kubeconfig, or from the pod itself."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable

from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config

# Seconds for a kubeconfig to load: it may name a program that prints a token.
_LOAD_TIMEOUT = 30.0

_REMEDY = "run inside a pod with a service account, or name a kubeconfig"

# The kubeconfig that kubectl uses where no variable names one.
_USER_KUBECONFIG = "~/.kube/config"


# The library has no types for these.
_load_from_pod: Callable[[Configuration], None] = load_incluster_config
_load_from_file: Callable[..., Awaitable[None]] = load_kube_config


class AccessError(Exception):
    """There are no usable credentials. The message names the reason and the remedy, and never a token."""


def user_kubeconfig() -> str | None:
    """Return the kubeconfig of a command that an operator runs, as kubectl finds it.

    That is `$KUBECONFIG`, or the file in the home directory if it exists; None for the pod's credentials.
    """
    path = os.path.expanduser(_USER_KUBECONFIG)
    return os.environ.get("KUBECONFIG") or (path if os.path.exists(path) else None)


class ApiAccess:
    """Address and credentials of one API server.

    kubeconfig: path of a file, or several with `:` between them, of which those that exist are merged; None
    for the pod's service account. ssl_context: None for plain HTTP.
    """

    def __init__(self, kubeconfig: str | None) -> None:
        self._kubeconfig = kubeconfig
        self._configuration = Configuration()
        self._renewal = asyncio.Lock()
        self.ssl_context: ssl.SSLContext | None = None

    @property
    def url(self) -> str:
        """Address of the server, without a trailing slash."""
        return str(self._configuration.host).rstrip("/")

    @property
    def proxy(self) -> str | None:
        """Address of the proxy that the kubeconfig names."""
        return self._configuration.proxy

    @property
    def server_name(self) -> str | None:
        """Host name to verify in the server's certificate, where it differs from the address."""
        return self._configuration.tls_server_name

    async def load(self) -> None:
        """Read address and credentials, also again after they rotated. Raises AccessError."""
        configuration = Configuration()
        try:
            if self._kubeconfig is None:
                _load_from_pod(configuration)
            else:
                _check_existence(self._kubeconfig)
                async with asyncio.timeout(_LOAD_TIMEOUT):
                    await _load_from_file(
                        self._kubeconfig, client_configuration=configuration, persist_config=False
                    )
            if configuration.host.startswith("https:"):
                self.ssl_context = _ssl_context(configuration)
            _valid_token(configuration.api_key.get("BearerToken", ""))
        except ConfigException as error:
            raise AccessError(f"{self._name}: {str(error).rstrip('.')}; {_REMEDY}") from None
        except TimeoutError:
            raise AccessError(
                f"{self._name}: its credential program returned no token within {_LOAD_TIMEOUT:g} s"
            ) from None
        except OSError as error:
            raise AccessError(
                f"{error.filename or self._name}: {error.strerror or error}; {_REMEDY}"
            ) from None
        except Exception as error:  # noqa: BLE001
            # The library does not validate a kubeconfig; its message may contain a part of the file.
            raise AccessError(
                f"{self._name}: cannot be read ({type(error).__name__}): check it with `kubectl config view`"
            ) from None
        self._configuration = configuration

    async def authorization(self) -> str:
        """Return the Authorization header, empty for none. A pod's token is read again every minute.

        Raises AccessError.
        """
        try:
            header = await self._configuration.get_api_key_with_prefix("BearerToken")
        except (ConfigException, OSError) as error:
            raise AccessError(f"{self._name}: the token can no longer be read: {error}") from None
        return _valid_token(header or "")

    async def renew(self, rejected_header: str) -> None:
        """Load credentials again after the server rejected a header, once for all requests that had it.

        Raises AccessError.
        """
        async with self._renewal:
            if await self.authorization() == rejected_header:
                await self.load()

    @property
    def _name(self) -> str:
        return self._kubeconfig or "the pod's service account"


def _check_existence(kubeconfig: str) -> None:
    """Check that one of the files exists: the library only warns of missing ones. Raises OSError."""
    paths = [os.path.expanduser(path) for path in kubeconfig.split(os.pathsep) if path]
    if not any(map(os.path.exists, paths)):
        os.stat(paths[0] if paths else kubeconfig)


def _valid_token(token: str) -> str:
    token = token.strip()
    if not (token.isascii() and token.isprintable()):
        raise AccessError("the token has characters that HTTP cannot carry: check the file it is read from")
    return token


def _ssl_context(configuration: Configuration) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    # Old clusters have authorities that lack extensions which Python 3.13 requires.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context

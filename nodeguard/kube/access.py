"""Where the Kubernetes API is and who asks it: a kubeconfig, or what a pod finds in itself."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable

from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config

# A kubeconfig may name a program to ask for a token.
_PATIENCE = 30.0

_REMEDY = "run inside a pod with a service account, or name a kubeconfig"


# The library does not say what these take.
_of_pod: Callable[[Configuration], None] = load_incluster_config
_of_file: Callable[..., Awaitable[None]] = load_kube_config


class AccessError(Exception):
    """There is no way to the API to be had; says why and how to remedy, and never a token."""


class ApiAccess:
    """An API server and the right to ask it. trust: None for plain http."""

    def __init__(self, kubeconfig: str | None) -> None:
        self._kubeconfig = kubeconfig
        self._configuration = Configuration()
        self._renewing = asyncio.Lock()
        self.ssl_context: ssl.SSLContext | None = None

    @property
    def url(self) -> str:
        """Address of the server, without a slash at its end."""
        return str(self._configuration.host).rstrip("/")

    @property
    def proxy(self) -> str | None:
        """Address of the proxy that the kubeconfig names."""
        return self._configuration.proxy

    @property
    def server_name(self) -> str | None:
        """What the certificate of the server must be made out to, where that is not its address."""
        return self._configuration.tls_server_name

    async def load(self) -> None:
        """Read all of it, anew where it was read before. Raises AccessError."""
        made = Configuration()
        try:
            if self._kubeconfig is None:
                _of_pod(made)
            else:
                # The library only warns of a file that is not there.
                os.stat(self._kubeconfig)
                async with asyncio.timeout(_PATIENCE):
                    await _of_file(self._kubeconfig, client_configuration=made, persist_config=False)
            if made.host.startswith("https:"):
                self.ssl_context = _trust(made)
            _checked(made.api_key.get("BearerToken", ""))
        except ConfigException as error:
            raise AccessError(f"{self._name}: {error}; {_REMEDY}") from None
        except TimeoutError:
            raise AccessError(
                f"{self._name}: the program that it names gave no token within {_PATIENCE:g} s"
            ) from None
        except OSError as error:
            raise AccessError(
                f"{error.filename or self._name}: {error.strerror or error}; {_REMEDY}"
            ) from None
        except Exception as error:  # noqa: BLE001
            # The library trusts a kubeconfig's form; what it says then may hold a piece of the file.
            raise AccessError(
                f"{self._name}: cannot be read ({type(error).__name__}): check it with `kubectl config view`"
            ) from None
        self._configuration = made

    async def authorization(self) -> str:
        """The header that says who asks, empty for nobody. A pod's token is read again every minute.

        Raises AccessError.
        """
        try:
            said = await self._configuration.get_api_key_with_prefix("BearerToken")
        except (ConfigException, OSError) as error:
            raise AccessError(f"{self._name}: the token cannot be read any more: {error}") from None
        return _checked(said or "")

    async def renew(self, rejected_header: str) -> None:
        """Read all of it anew where a header was refused, once for all that were. Raises AccessError."""
        async with self._renewing:
            if await self.authorization() == rejected_header:
                await self.load()

    @property
    def _name(self) -> str:
        return self._kubeconfig or "the pod's own access"


def _checked(token: str) -> str:
    token = token.strip()
    if not (token.isascii() and token.isprintable()):
        raise AccessError("the token has letters that HTTP cannot carry: check the file that it is read from")
    return token


def _trust(made: Configuration) -> ssl.SSLContext:
    trust = ssl.create_default_context(cafile=made.ssl_ca_cert)
    # Clusters made years ago have authorities that Python 3.13 finds too short of extensions.
    trust.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if made.cert_file:
        trust.load_cert_chain(made.cert_file, made.key_file)
    if not made.verify_ssl:
        trust.check_hostname = False
        trust.verify_mode = ssl.CERT_NONE
    return trust

"""Credentials that a kubeconfig names, read by the Kubernetes client library.

Only this module imports the library, since a kubeconfig may name programs, OpenID and cloud providers. It is
imported for a kubeconfig only: the import costs 21 MiB.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable

from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException, load_kube_config

from nodeguard.config.regular_file import check_no_named_pipe
from nodeguard.kube.credentials import AccessError, tls_context

# Seconds for a kubeconfig to load: it may name a program that prints a token.
_LOAD_TIMEOUT = 30.0

_VIEW = "check it with `kubectl config view`"

# The library has no types for it.
_load: Callable[..., Awaitable[None]] = load_kube_config


class KubeconfigCredentials:
    """Credentials of a loaded kubeconfig. Create it with `load_kubeconfig`."""

    def __init__(self, configuration: Configuration) -> None:
        """Prepare TLS. Raises OSError for a certificate that cannot be read."""
        self._configuration = configuration
        self.url = str(configuration.host).rstrip("/")
        self.ssl_context = _ssl_context(configuration) if self.url.startswith("https:") else None
        self.proxy: str | None = configuration.proxy
        self.server_name: str | None = configuration.tls_server_name

    async def authorization(self) -> str:
        """Return the Authorization header, empty for none. Raises AccessError and OSError."""
        try:
            return await self._configuration.get_api_key_with_prefix("BearerToken") or ""
        except ConfigException as error:
            raise AccessError(str(error)) from None


async def load_kubeconfig(paths: str, context: str = "") -> KubeconfigCredentials:
    """Read a kubeconfig: a path, or several with `:` between them, of which those that exist are merged.

    context: in it, empty for its current one. Raises AccessError and OSError.
    """
    _check_files(paths)
    configuration = Configuration()
    try:
        async with asyncio.timeout(_LOAD_TIMEOUT):
            await _load(
                paths, context=context or None, client_configuration=configuration, persist_config=False
            )
        return KubeconfigCredentials(configuration)
    except ConfigException as error:
        view = f"context '{context}': see `kubectl config get-contexts`" if context else _VIEW
        raise AccessError(f"{str(error).rstrip('.')}: {view}") from None
    except TimeoutError:
        raise AccessError(f"its credential program returned no token within {_LOAD_TIMEOUT:g} s") from None
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001
        # The library does not validate a kubeconfig; its message may contain a part of the file.
        name = type(error).__name__
        raise AccessError(f"is not a valid kubeconfig ({name}): {_VIEW}") from None


def _check_files(paths: str) -> None:
    """Check that one of the files exists, and that none is a named pipe: the library only warns of missing
    files. Raises OSError.
    """
    files = [os.path.expanduser(path) for path in paths.split(os.pathsep) if path]
    existing = [path for path in files if os.path.exists(path)]
    if not existing:
        os.stat(files[0] if files else paths)
    for path in existing:
        check_no_named_pipe(path, os.stat(path).st_mode)


def _ssl_context(configuration: Configuration) -> ssl.SSLContext:
    context = tls_context(configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context

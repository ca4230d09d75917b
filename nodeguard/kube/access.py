"""Access to the Kubernetes API: the credentials in use, loaded again when the server rejects them."""

from __future__ import annotations

import asyncio
import os

from nodeguard.kube.credentials import NAME_KUBECONFIG, OUTSIDE_OF_POD, AccessError, Credentials
from nodeguard.kube.pod_credentials import PodCredentials

# The kubeconfig that kubectl uses where no variable names one.
_USER_KUBECONFIG = "~/.kube/config"


def user_kubeconfig(named: str = "") -> str | None:
    """Return the kubeconfig of a command that an operator runs, as kubectl finds it.

    That is the one that the command line names, else `$KUBECONFIG`, else the file in the home directory if it
    exists; None for the pod's credentials.
    """
    if named:
        return named
    path = os.path.expanduser(_USER_KUBECONFIG)
    return os.environ.get("KUBECONFIG") or (path if os.path.exists(path) else None)


class ApiAccess:
    """Address and credentials of one API server. Create it with `connect`."""

    def __init__(self, kubeconfig: str | None, context: str, credentials: Credentials) -> None:
        self._kubeconfig = kubeconfig
        self._context = context
        self._credentials = credentials
        self._renewal = asyncio.Lock()

    @classmethod
    async def connect(cls, kubeconfig: str | None, context: str = "") -> ApiAccess:
        """Load the credentials.

        kubeconfig: path of a file, or several with `:` between them, of which those that exist are merged;
        None for the pod's service account. context: of the kubeconfig, empty for its current one. Raises
        AccessError.
        """
        return cls(kubeconfig, context, await _load(kubeconfig, context))

    @property
    def credentials(self) -> Credentials:
        """The credentials in use."""
        return self._credentials

    async def reload(self) -> None:
        """Read address and credentials again, after they rotated. Raises AccessError."""
        self._credentials = await _load(self._kubeconfig, self._context)

    async def authorization(self) -> str:
        """Return the Authorization header, empty for none. Raises AccessError."""
        try:
            return _valid_header(await self._credentials.authorization())
        except (AccessError, OSError) as error:
            raise AccessError(f"{_name(self._kubeconfig)}: the token cannot be used: {error}") from None

    async def renew(self, rejected_header: str) -> None:
        """Load credentials again after the server rejected a header, once for all requests that had it.

        Raises AccessError.
        """
        async with self._renewal:
            if await self.authorization() == rejected_header:
                await self.reload()


def _name(kubeconfig: str | None) -> str:
    return kubeconfig or "the pod's service account"


async def _load(kubeconfig: str | None, context: str) -> Credentials:
    name = _name(kubeconfig)
    if kubeconfig is None and (context or "KUBERNETES_SERVICE_HOST" not in os.environ):
        raise AccessError(f"no kubeconfig found: {NAME_KUBECONFIG if context else OUTSIDE_OF_POD}")
    try:
        credentials: Credentials
        if kubeconfig is None:
            credentials = PodCredentials()
        else:
            from nodeguard.kube.kubeconfig import load_kubeconfig  # noqa: PLC0415 - costs 21 MiB

            credentials = await load_kubeconfig(kubeconfig, context)
        _valid_header(await credentials.authorization())
    except AccessError as error:
        raise AccessError(f"{name}: {error}") from None
    except OSError as error:
        raise AccessError(f"{error.filename or name}: {error.strerror or error}; {OUTSIDE_OF_POD}") from None
    return credentials


def _valid_header(header: str) -> str:
    header = header.strip()
    if not (header.isascii() and header.isprintable()):
        raise AccessError("the token has characters that HTTP cannot carry: check the file it is read from")
    return header

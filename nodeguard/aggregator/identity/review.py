"""A token's node by the API server's word: a review of the token, then its pod, then that one's Node."""

from __future__ import annotations

from collections.abc import Callable

from nodeguard.aggregator.identity.caller import RequestRefusedError, VerifiedIdentity, is_node_name
from nodeguard.aggregator.identity.signing_keys import KeysUnavailableError
from nodeguard.aggregator.identity.token import TokenRequirements
from nodeguard.kube.client import ApiClient, ApiError
from nodeguard.kube.tokens import Reviewed, UnreadableError, node_of_pod, published_keys, review

# Seconds for which an answer is taken to hold where the token itself cannot be read.
_HOLDS = 300.0

_NOT_GOOD = (
    "the cluster does not find the token good: see that it is projected for this audience and has not expired"
)
_OTHER = "the token is of another service account than the agents': run the agent as its own"
_UNBOUND = "the token is bound to no pod on a Node: mount it into the agent's pod as a projected token"
_UNKNOWN = "the token's Node is not known here yet: wait, and see that it is there"


class Reviews:
    """Asks the API server. node_uid: gives a Node's uid by its name, None where there is none.

    wall: gives seconds since 1970.
    """

    def __init__(
        self,
        api: ApiClient,
        expected: TokenRequirements,
        node_uid: Callable[[str], str | None],
        wall: Callable[[], float],
    ) -> None:
        self._api = api
        self._expected = expected
        self._node_uid = node_uid
        self._wall = wall

    async def keys(self) -> tuple[str, bytes]:
        """The cluster's issuer and the document of its keys. Raises UnavailableError."""
        try:
            return await published_keys(self._api)
        except (ApiError, UnreadableError) as error:
            raise KeysUnavailableError(str(error)) from None

    async def __call__(self, token: str) -> VerifiedIdentity:
        """Who a token is of. Raises RefusedError, UnavailableError."""
        try:
            found = await review(self._api, token, self._expected.audience)
            if found is None:
                raise RequestRefusedError(401, _NOT_GOOD)
            return await self._credential(found)
        except (ApiError, UnreadableError) as error:
            raise KeysUnavailableError(str(error)) from None

    async def _credential(self, found: Reviewed) -> VerifiedIdentity:
        kind, _, account = found.user.partition("system:serviceaccount:")
        if kind or account not in self._expected.accounts:
            raise RequestRefusedError(403, _OTHER)
        node, uid = found.node, found.uid
        if not (node and uid):
            node = await self._of_pod(account.partition(":")[0], found)
            uid = self._node_uid(node) or ""
        if not is_node_name(node):
            raise RequestRefusedError(403, _UNBOUND)
        if not uid:
            raise RequestRefusedError(503, _UNKNOWN, 5.0)
        return VerifiedIdentity((node,), uid, self._wall() + _HOLDS)

    async def _of_pod(self, namespace: str, found: Reviewed) -> str:
        if not found.pod or not found.pod_uid:
            raise RequestRefusedError(403, _UNBOUND)
        try:
            return await node_of_pod(self._api, namespace, found.pod, found.pod_uid)
        except ApiError as error:
            if error.status == 404:
                raise RequestRefusedError(403, _UNBOUND) from None
            raise

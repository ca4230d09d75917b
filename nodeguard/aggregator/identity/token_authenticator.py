"""Authentication by service account tokens: verified offline with the cluster's signing keys."""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable

from msgspec import Struct

from nodeguard.aggregator.identity.caller import (
    PresentedCredentials,
    RequestRefusedError,
    VerifiedIdentity,
    is_node_name,
)
from nodeguard.aggregator.identity.signing_keys import SigningKeyring
from nodeguard.aggregator.identity.token import (
    LEEWAY,
    TokenRequirements,
    UnknownKeyError,
    bearer_token,
    key_id,
    verify_token,
)

# Verified tokens in the cache: each node has one, and for some time its previous one.
_MAX_TOKENS = 50_000

_UNBOUND = "the token is bound to no pod on a Node: mount it into the agent's pod as a projected token"
_NO_NODE = (
    "the token does not name the Node of its pod: nodeguard needs Kubernetes 1.30 or newer, with the feature "
    "gate ServiceAccountTokenPodNodeInfo; after an upgrade delete the agent's pod to get a new token"
)
_UNKNOWN_KEY = (
    "the token's key is not one of this cluster's: check that the agent reports to the aggregator of its own "
    "cluster; the aggregator reads a new key within 10 s"
)
_NO_KEYS = (
    "the aggregator has no signing keys of the cluster yet: wait, and check that it can reach the API server"
)


class _Cached(Struct, frozen=True):
    identity: VerifiedIdentity
    key: str


class TokenAuthenticator:
    """Verifies the tokens of agents, and caches the result.

    requirements: of a valid token. clock: returns seconds of a monotonic clock.
    """

    def __init__(
        self, requirements: TokenRequirements, keyring: SigningKeyring, clock: Callable[[], float]
    ) -> None:
        self._requirements = requirements
        self._keyring = keyring
        self._clock = clock
        self._cache: OrderedDict[bytes, _Cached] = OrderedDict()
        self._salt = secrets.token_bytes(16)

    def cached(self, presented: PresentedCredentials, now: float) -> VerifiedIdentity | None:
        """Return the identity of a verified token while it has not expired and its key is in use."""
        digest = self._digest(presented.authorization)
        entry = self._cache.get(digest)
        if entry is None:
            return None
        keys = self._keyring.keys
        if now >= entry.identity.expires_at or (keys is not None and entry.key not in keys.by_id):
            del self._cache[digest]
            return None
        return entry.identity

    async def authenticate(self, presented: PresentedCredentials, now: float) -> VerifiedIdentity:
        """Return the identity of a token. Raises RequestRefusedError."""
        token = bearer_token(presented.authorization)
        key = key_id(token)
        identity = await self._verify(token, key, now)
        self._cache[self._digest(presented.authorization)] = _Cached(identity, key)
        while len(self._cache) > _MAX_TOKENS:
            self._cache.popitem(last=False)
        return identity

    async def _verify(self, token: str, key: str, now: float) -> VerifiedIdentity:
        if self._keyring.keys is None or key not in self._keyring.keys.by_id:
            await self._keyring.refresh(self._clock())
        if self._keyring.keys is None:
            raise RequestRefusedError(503, _NO_KEYS, 5.0)
        try:
            claims = verify_token(token, self._keyring.keys, self._requirements, now)
        except UnknownKeyError:
            raise RequestRefusedError(401, _UNKNOWN_KEY) from None
        if not claims.pod:
            raise RequestRefusedError(403, _UNBOUND)
        if not (is_node_name(claims.node) and claims.uid):
            raise RequestRefusedError(403, _NO_NODE)
        return VerifiedIdentity((claims.node,), claims.uid, claims.expires_at + LEEWAY)

    def _digest(self, authorization: str) -> bytes:
        return hashlib.blake2b(authorization.encode(), digest_size=16, key=self._salt).digest()

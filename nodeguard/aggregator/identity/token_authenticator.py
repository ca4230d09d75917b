"""Agents that show a service account's token: verified here, else asked for at the API server."""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from msgspec import Struct

from nodeguard.aggregator.identity.caller import (
    PresentedCredentials,
    RequestRefusedError,
    VerifiedIdentity,
    is_node_name,
)
from nodeguard.aggregator.identity.signing_keys import KeysUnavailableError, SigningKeyring
from nodeguard.aggregator.identity.token import (
    LEEWAY,
    TokenRequirements,
    UnknownKeyError,
    bearer_token,
    key_id,
    verify_token,
)
from nodeguard.aggregator.ingest.limits import Bucket, Rate

# Tokens that are remembered; of a fleet in which each node's token changes, its old one may stay a while.
_MOST = 50_000

# Questions to the API server about tokens: so that no caller decides how often.
_QUESTIONS = Rate(100.0, 20.0)

_UNBOUND = "the token is bound to no pod on a Node: mount it into the agent's pod as a projected token"
_BUSY = "too many tokens to ask the cluster about at once: wait"
_NO_WORD = "the cluster cannot be asked about tokens now: wait, and see that the aggregator reaches it"


# Whom a token is of, by the API server's own word. Raises RefusedError, UnavailableError.
Review = Callable[[str], Awaitable[VerifiedIdentity]]


class _Kept(Struct, frozen=True):
    credential: VerifiedIdentity
    key: str


class TokenAuthenticator:
    """Verifies tokens with the cluster's keys; one whose cluster does not name the Node in it, or that cannot
    be verified for want of keys, is asked about.

    expected: what a token must be for. review: asks. clock: seconds of a clock that never jumps.
    """

    def __init__(
        self, expected: TokenRequirements, keyring: SigningKeyring, review: Review, clock: Callable[[], float]
    ) -> None:
        self._expected = expected
        self._keyring = keyring
        self._review = review
        self._clock = clock
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        self._salt = secrets.token_bytes(16)
        self._questions = Bucket(_QUESTIONS, clock())

    def cached(self, shown: PresentedCredentials, now: float) -> VerifiedIdentity | None:
        """Who it is, where its token was found good before, has not expired, and its key has not gone."""
        name = self._name(shown.authorization)
        kept = self._kept.get(name)
        if kept is None:
            return None
        keys = self._keyring.keys
        if now >= kept.credential.expires_at or (
            kept.key and keys is not None and kept.key not in keys.by_id
        ):
            del self._kept[name]
            return None
        return kept.credential

    async def authenticate(self, shown: PresentedCredentials, now: float) -> VerifiedIdentity:
        """Who it is. Raises RefusedError."""
        token = bearer_token(shown.authorization)
        credential, key = await self._found(token, now)
        self._kept[self._name(shown.authorization)] = _Kept(credential, key)
        while len(self._kept) > _MOST:
            self._kept.popitem(last=False)
        return credential

    async def _found(self, token: str, now: float) -> tuple[VerifiedIdentity, str]:
        name = key_id(token)
        if self._keyring.keys is None or name not in self._keyring.keys.by_id:
            await self._keyring.refresh(self._clock())
        if self._keyring.keys is None:
            return await self._asked(token), ""
        try:
            claims = verify_token(token, self._keyring.keys, self._expected, now)
        except UnknownKeyError:
            raise RequestRefusedError(
                401,
                "the token's key is not one of this cluster's: see that the agent reports to the "
                "aggregator of its own cluster; a new key is known here within 10 s",
            ) from None
        if is_node_name(claims.node) and claims.uid:
            return VerifiedIdentity((claims.node,), claims.uid, claims.expires_at + LEEWAY), name
        if not claims.pod or not claims.pod_uid:
            raise RequestRefusedError(403, _UNBOUND)
        asked = await self._asked(token)
        return VerifiedIdentity(asked.node_names, asked.uid, claims.expires_at + LEEWAY), name

    async def _asked(self, token: str) -> VerifiedIdentity:
        wait = self._questions.take(_QUESTIONS, self._clock())
        if wait:
            raise RequestRefusedError(503, _BUSY, wait)
        try:
            return await self._review(token)
        except KeysUnavailableError:
            raise RequestRefusedError(503, _NO_WORD, 5.0) from None

    def _name(self, authorization: str) -> bytes:
        return hashlib.blake2b(authorization.encode(), digest_size=16, key=self._salt).digest()

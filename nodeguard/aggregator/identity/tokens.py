"""Agents that show a service account's token: verified here, else asked for at the API server."""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from msgspec import Struct

from nodeguard.aggregator.identity.caller import Credential, RefusedError, Shown, is_node_name
from nodeguard.aggregator.identity.keyring import Keyring, UnavailableError
from nodeguard.aggregator.identity.token import LEEWAY, Expected, UnknownKeyError, bearer, key_id, verified
from nodeguard.aggregator.ingest.limits import Bucket, Rate

# Tokens that are remembered; of a fleet in which each node's token changes, its old one may stay a while.
_MOST = 50_000

# Questions to the API server about tokens: so that no caller decides how often.
_QUESTIONS = Rate(100.0, 20.0)

_UNBOUND = "the token is bound to no pod on a Node: mount it into the agent's pod as a projected token"
_BUSY = "too many tokens to ask the cluster about at once: wait"
_NO_WORD = "the cluster cannot be asked about tokens now: wait, and see that the aggregator reaches it"


# Whom a token is of, by the API server's own word. Raises RefusedError, UnavailableError.
Review = Callable[[str], Awaitable[Credential]]


class _Kept(Struct, frozen=True):
    credential: Credential
    key: str


class Tokens:
    """Verifies tokens with the cluster's keys; one whose cluster does not name the Node in it, or that cannot
    be verified for want of keys, is asked about.

    expected: what a token must be for. review: asks. clock: seconds of a clock that never jumps.
    """

    def __init__(
        self, expected: Expected, keyring: Keyring, review: Review, clock: Callable[[], float]
    ) -> None:
        self._expected = expected
        self._keyring = keyring
        self._review = review
        self._clock = clock
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        self._salt = secrets.token_bytes(16)
        self._questions = Bucket(_QUESTIONS, clock())

    def known(self, shown: Shown, now: float) -> Credential | None:
        """Who it is, where its token was found good before, has not expired, and its key has not gone."""
        name = self._name(shown.authorization)
        kept = self._kept.get(name)
        if kept is None:
            return None
        keys = self._keyring.keys
        if now >= kept.credential.until or (kept.key and keys is not None and kept.key not in keys.by_id):
            del self._kept[name]
            return None
        return kept.credential

    async def identify(self, shown: Shown, now: float) -> Credential:
        """Who it is. Raises RefusedError."""
        token = bearer(shown.authorization)
        credential, key = await self._found(token, now)
        self._kept[self._name(shown.authorization)] = _Kept(credential, key)
        while len(self._kept) > _MOST:
            self._kept.popitem(last=False)
        return credential

    async def _found(self, token: str, now: float) -> tuple[Credential, str]:
        name = key_id(token)
        if self._keyring.keys is None or name not in self._keyring.keys.by_id:
            await self._keyring.refresh(self._clock())
        if self._keyring.keys is None:
            return await self._asked(token), ""
        try:
            claims = verified(token, self._keyring.keys, self._expected, now)
        except UnknownKeyError:
            raise RefusedError(
                401,
                "the token's key is not one of this cluster's: see that the agent reports to the "
                "aggregator of its own cluster; a new key is known here within 10 s",
            ) from None
        if is_node_name(claims.node) and claims.uid:
            return Credential((claims.node,), claims.uid, claims.until + LEEWAY), name
        if not claims.pod or not claims.pod_uid:
            raise RefusedError(403, _UNBOUND)
        asked = await self._asked(token)
        return Credential(asked.names, asked.uid, claims.until + LEEWAY), name

    async def _asked(self, token: str) -> Credential:
        wait = self._questions.take(_QUESTIONS, self._clock())
        if wait:
            raise RefusedError(503, _BUSY, wait)
        try:
            return await self._review(token)
        except UnavailableError:
            raise RefusedError(503, _NO_WORD, 5.0) from None

    def _name(self, authorization: str) -> bytes:
        return hashlib.blake2b(authorization.encode(), digest_size=16, key=self._salt).digest()

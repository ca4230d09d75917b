"""The cluster's keys as they are now: asked for again from time to time, and when a token names another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from msgspec import Struct

# Keys of one cluster, and bytes of their document.
MOST_KEYS = 64
DOCUMENT_LIMIT = 256 * 1024

_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}


class KeysError(Exception):
    """A document that holds no keys; says what is wrong with it."""


class SigningKey(Struct, frozen=True):
    """A public key, and the one algorithm that it is good for: never what a token itself asks for."""

    public: rsa.RSAPublicKey | ec.EllipticCurvePublicKey
    algorithm: str


class SigningKeys(Struct, frozen=True):
    """Who issues a cluster's tokens, and its keys by their ids."""

    issuer: str
    by_id: Mapping[str, SigningKey]


class _Set(Struct):
    keys: list[dict[str, object]]


def parse_signing_keys(issuer: str, document: bytes) -> SigningKeys:
    """The keys of a document as the API server has it at /openid/v1/jwks. Raises KeysError.

    Keys that are of no use here are left out.
    """
    if len(document) > DOCUMENT_LIMIT:
        raise KeysError(f"the cluster's key document has more than {DOCUMENT_LIMIT} bytes")
    try:
        listed = msgspec.json.decode(document, type=_Set).keys
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise KeysError("the cluster's key document is not one") from None
    found = {}
    for one in listed[:MOST_KEYS]:
        name, key = one.get("kid"), _key(one)
        if isinstance(name, str) and name and key is not None:
            found[name] = key
    if not found:
        raise KeysError("the cluster's key document holds no RSA or elliptic-curve key with an id")
    return SigningKeys(issuer, found)


def _key(document: dict[str, object]) -> SigningKey | None:
    try:
        public = jwt.PyJWK(document).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if isinstance(public, rsa.RSAPublicKey) and public.key_size >= 2048:
        return SigningKey(public, "RS256")
    if isinstance(public, ec.EllipticCurvePublicKey) and public.curve.name in _CURVES:
        return SigningKey(public, _CURVES[public.curve.name])
    return None


# Seconds: between two requests at least, and after which the keys are asked for although nobody misses any.
MIN_REFRESH_INTERVAL = 10.0
REFRESH_PERIOD = 300.0


class KeysUnavailableError(Exception):
    """The cluster did not say; says why, without anything secret."""


# The issuer and the document of keys. Raises UnavailableError.
Fetch = Callable[[], Awaitable[tuple[str, bytes]]]


class SigningKeyring:
    """Keys that were fetched once stay good while the cluster cannot be asked.

    tell: is given what is wrong, once until it is over.
    """

    def __init__(self, fetch: Fetch, tell: Callable[[str], None]) -> None:
        self.keys: SigningKeys | None = None
        self._fetch = fetch
        self._tell = tell
        self._said = ""
        self._asked = float("-inf")
        self._fetching: asyncio.Task[None] | None = None

    def is_due(self, now: float) -> bool:
        """Whether it is time to ask again though no key is missed. now: as in refresh."""
        return now >= self._asked + (MIN_REFRESH_INTERVAL if self.keys is None else REFRESH_PERIOD)

    async def refresh(self, now: float) -> None:
        """Ask for the keys, unless that was a moment ago: so no caller decides how often. Never raises.

        Whoever comes while that is under way waits for it. now: seconds of a clock that never jumps.
        """
        if self._fetching is None:
            if now < self._asked + MIN_REFRESH_INTERVAL:
                return
            self._asked = now
            self._fetching = asyncio.create_task(self._get())
            self._fetching.add_done_callback(self._got)
        await asyncio.shield(self._fetching)

    async def run(self, clock: Callable[[], float]) -> None:
        """Ask again and again. clock: seconds of a clock that never jumps."""
        while True:
            if self.is_due(clock()):
                await self.refresh(clock())
            await asyncio.sleep(MIN_REFRESH_INTERVAL)

    def _got(self, _task: asyncio.Task[None]) -> None:
        self._fetching = None

    async def _get(self) -> None:
        try:
            self.keys = parse_signing_keys(*await self._fetch())
            self._said = ""
        except (KeysError, KeysUnavailableError) as error:
            going_on = "those known so far stay good" if self.keys else "agents wait until it does"
            self._say(f"the cluster does not give the keys of its tokens: {error}; {going_on}")

    def _say(self, what: str) -> None:
        if what != self._said:
            self._said = what
            self._tell(what)

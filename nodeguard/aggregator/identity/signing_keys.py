"""Signing keys of the cluster's service account tokens: parsed, kept, and refreshed when a token needs it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from msgspec import Struct

from nodeguard.kube.client import ApiClient, ApiError
from nodeguard.model.json_decoder import JsonDecoder

logger = logging.getLogger(__name__)

# Keys of one cluster, and bytes of their document and of the cluster's discovery document.
MOST_KEYS = 64
DOCUMENT_LIMIT = 256 * 1024
_DISCOVERY_LIMIT = 1024 * 1024

# Seconds: between two requests at least, and between two requests while no key is missing.
MIN_REFRESH_INTERVAL = 10.0
REFRESH_PERIOD = 300.0

_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}


class KeysError(Exception):
    """The document has no usable keys. The message has the reason."""


class KeysUnavailableError(Exception):
    """The cluster did not return its keys. The message has the reason, without anything secret."""


class SigningKey(Struct, frozen=True):
    """A public key and its one algorithm: the algorithm in the header of a token is not trusted."""

    public: rsa.RSAPublicKey | ec.EllipticCurvePublicKey
    algorithm: str


class SigningKeys(Struct, frozen=True):
    """The issuer of a cluster's tokens, and its keys by id."""

    issuer: str
    by_id: Mapping[str, SigningKey]


class _Discovery(Struct, frozen=True):
    issuer: str


class _Document(Struct):
    keys: list[dict[str, object]]


# Returns the issuer and the document of keys. Raises KeysUnavailableError.
Fetch = Callable[[], Awaitable[tuple[str, bytes]]]


async def fetch_keys(api: ApiClient) -> tuple[str, bytes]:
    """Return the issuer of the cluster's tokens, and the document of its keys, as the API server publishes
    them. Raises KeysUnavailableError.
    """
    try:
        discovery = await api.request("GET", "/.well-known/openid-configuration")
        document = await api.request("GET", "/openid/v1/jwks")
    except ApiError as error:
        raise KeysUnavailableError(str(error)) from None
    if len(discovery) > _DISCOVERY_LIMIT:
        raise KeysUnavailableError(
            f"/.well-known/openid-configuration has more than {_DISCOVERY_LIMIT} bytes"
        )
    try:
        return JsonDecoder(_Discovery).decode(discovery).issuer, document
    except msgspec.DecodeError:
        raise KeysUnavailableError(
            "/.well-known/openid-configuration is not a response of the Kubernetes API:"
            " check the address of the API server"
        ) from None


def parse_signing_keys(issuer: str, document: bytes) -> SigningKeys:
    """Return the keys of a document that the API server returns at /openid/v1/jwks. Raises KeysError.

    Keys without an id, and keys of another type, are left out.
    """
    if len(document) > DOCUMENT_LIMIT:
        raise KeysError(f"the cluster's key document has more than {DOCUMENT_LIMIT} bytes")
    try:
        entries = JsonDecoder(_Document).decode(document).keys
    except msgspec.DecodeError:
        raise KeysError("the cluster's key document is invalid") from None
    by_id = {}
    for entry in entries[:MOST_KEYS]:
        name, key = entry.get("kid"), _parse_key(entry)
        if isinstance(name, str) and name and key is not None:
            by_id[name] = key
    if not by_id:
        raise KeysError("the cluster's key document has no RSA or elliptic-curve key with an id")
    return SigningKeys(issuer, by_id)


def _parse_key(entry: dict[str, object]) -> SigningKey | None:
    try:
        public = jwt.PyJWK(entry).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if isinstance(public, rsa.RSAPublicKey) and public.key_size >= 2048:
        return SigningKey(public, "RS256")
    if isinstance(public, ec.EllipticCurvePublicKey) and public.curve.name in _CURVES:
        return SigningKey(public, _CURVES[public.curve.name])
    return None


class SigningKeyring:
    """The current signing keys. They stay valid while the cluster cannot be reached."""

    def __init__(self, fetch: Fetch) -> None:
        self.keys: SigningKeys | None = None
        self._fetch = fetch
        self._is_failing = False
        self._requested_at = float("-inf")
        self._fetching: asyncio.Task[None] | None = None

    def is_due(self, now: float) -> bool:
        """Return whether to refresh although no key is missing. now: seconds of a monotonic clock."""
        return now >= self._requested_at + (MIN_REFRESH_INTERVAL if self.keys is None else REFRESH_PERIOD)

    async def refresh(self, now: float) -> None:
        """Fetch the keys, at most every 10 s: callers cannot raise the request rate. Never raises.

        A caller during a request waits for its result. now: seconds of a monotonic clock.
        """
        if self._fetching is None:
            if now < self._requested_at + MIN_REFRESH_INTERVAL:
                return
            self._requested_at = now
            self._fetching = asyncio.create_task(self._update())
            self._fetching.add_done_callback(self._finished)
        await asyncio.shield(self._fetching)

    async def run(self, clock: Callable[[], float]) -> None:
        """Refresh the keys periodically. clock: returns seconds of a monotonic clock."""
        while True:
            if self.is_due(clock()):
                await self.refresh(clock())
            await asyncio.sleep(MIN_REFRESH_INTERVAL)

    def _finished(self, _task: asyncio.Task[None]) -> None:
        self._fetching = None

    async def _update(self) -> None:
        try:
            self.keys = parse_signing_keys(*await self._fetch())
        except (KeysError, KeysUnavailableError) as error:
            self._is_failing = True
            effect = "the previous keys stay in use" if self.keys else "agents cannot authenticate until then"
            logger.warning(
                "cannot read the cluster's signing keys", extra={"error": str(error), "effect": effect}
            )
            return
        if self._is_failing:
            self._is_failing = False
            logger.info("the cluster's signing keys can be read again")

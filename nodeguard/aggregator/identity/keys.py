"""The public keys that a cluster signs its service accounts' tokens with. Pure but for cryptography."""

from __future__ import annotations

from collections.abc import Mapping

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


class Key(Struct, frozen=True):
    """A public key, and the one algorithm that it is good for: never what a token itself asks for."""

    public: rsa.RSAPublicKey | ec.EllipticCurvePublicKey
    algorithm: str


class Keys(Struct, frozen=True):
    """Who issues a cluster's tokens, and its keys by their ids."""

    issuer: str
    by_id: Mapping[str, Key]


class _Set(Struct):
    keys: list[dict[str, object]]


def keys(issuer: str, document: bytes) -> Keys:
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
    return Keys(issuer, found)


def _key(document: dict[str, object]) -> Key | None:
    try:
        public = jwt.PyJWK(document).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if isinstance(public, rsa.RSAPublicKey) and public.key_size >= 2048:
        return Key(public, "RS256")
    if isinstance(public, ec.EllipticCurvePublicKey) and public.curve.name in _CURVES:
        return Key(public, _CURVES[public.curve.name])
    return None

"""A service account's token, verified without asking anybody. Pure but for cryptography."""

from __future__ import annotations

import base64
import math
import re
from typing import Any

import jwt
import msgspec
from msgspec import Struct

from nodeguard.aggregator.identity.caller import RequestRefusedError
from nodeguard.aggregator.identity.signing_keys import SigningKeys

# Seconds by which the clocks of the API server and of this machine may differ.
LEEWAY = 30.0

# Bytes of a token; a projected one has about 1 KiB.
TOKEN_LIMIT = 8 * 1024

_BEARER = re.compile(
    r"bearer +([A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+) *\Z", re.ASCII | re.IGNORECASE
)
_MOUNT = "mount a projected service-account token for it, and set aggregator.token_file"


class TokenRequirements(Struct, frozen=True):
    """What a token must be for. accounts: the agents' service accounts, `namespace:name` each."""

    accounts: frozenset[str]
    audience: str = "nodeguard"


class TokenClaims(Struct, frozen=True):
    """What a token says. node, uid: of the Node, empty where the cluster does not say. until: seconds since
    1970, when it expires. namespace, pod, pod_uid: the pod that it is bound to.
    """

    expires_at: float
    node: str = ""
    uid: str = ""
    namespace: str = ""
    pod: str = ""
    pod_uid: str = ""


class _Head(Struct):
    kid: str


_HEAD = msgspec.json.Decoder(_Head)


class UnknownKeyError(Exception):
    """A token that is signed by a key that is not known here, not yet perhaps."""


def bearer_token(authorization: str) -> str:
    """The token of a header. Raises RefusedError."""
    if not authorization:
        raise RequestRefusedError(401, f"no token was shown: {_MOUNT}")
    found = _BEARER.match(authorization) if len(authorization) <= TOKEN_LIMIT else None
    if found is None:
        raise RequestRefusedError(401, f"what was shown is no service account's token: {_MOUNT}")
    return found[1]


def key_id(token: str) -> str:
    """The id of the key that a token says it is signed by. Raises RefusedError."""
    head = token.partition(".")[0]
    try:
        return _HEAD.decode(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4))).kid
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise RequestRefusedError(401, f"what was shown is no service account's token: {_MOUNT}") from None


def verify_token(token: str, keys: SigningKeys, expected: TokenRequirements, now: float) -> TokenClaims:
    """What a token says, if it is good. now: seconds since 1970. Raises RefusedError, UnknownKeyError."""
    key = keys.by_id.get(key_id(token))
    if key is None:
        raise UnknownKeyError
    try:
        # Times are checked below, against the moment that was given.
        said = jwt.decode(
            token,
            key.public,
            algorithms=[key.algorithm],
            options={"verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_aud": False,
                     "verify_iss": False, "verify_sub": False, "verify_jti": False},
        )  # fmt: skip
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise RequestRefusedError(401, f"the token's signature is not of this cluster: {_MOUNT}") from None
    if said.get("iss") != keys.issuer:
        raise RequestRefusedError(401, f"the token's issuer is not this cluster's: {_MOUNT}")
    audience = said.get("aud")
    if expected.audience not in (audience if isinstance(audience, list) else [audience]):
        raise RequestRefusedError(
            401, f"the token is not for {expected.audience}: set that as the projected token's audience"
        )
    until = _within(said, now)
    _account(said.get("sub"), expected)
    return _claims(said.get("kubernetes.io"), until)


def _within(said: dict[str, Any], now: float) -> float:
    until, begin = _seconds(said.get("exp")), _seconds(said.get("nbf", 0))
    if until is None or begin is None:
        raise RequestRefusedError(401, f"the token does not say when it expires: {_MOUNT}")
    if now >= until + LEEWAY:
        raise RequestRefusedError(
            401,
            "the token has expired: see that the kubelet renews it, and that the clocks of the node and of "
            "the aggregator are right",
        )
    if now < begin - LEEWAY:
        raise RequestRefusedError(401, "the token is not valid yet: see that the aggregator's clock is right")
    return until


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) and abs(value) < 1e12 else None


def _account(subject: Any, expected: TokenRequirements) -> None:
    if not isinstance(subject, str) or subject not in {
        f"system:serviceaccount:{account}" for account in expected.accounts
    }:
        raise RequestRefusedError(
            403,
            "the token is of another service account than the agents': run the agent as "
            + " or ".join(sorted(expected.accounts)).replace(":", "/"),
        )


def _claims(said: object, until: float) -> TokenClaims:
    node, pod = _part(said, "node"), _part(said, "pod")
    namespace = said.get("namespace") if isinstance(said, dict) else None
    return TokenClaims(
        until,
        node=_text(node, "name"),
        uid=_text(node, "uid"),
        namespace=namespace if isinstance(namespace, str) else "",
        pod=_text(pod, "name"),
        pod_uid=_text(pod, "uid"),
    )


def _part(said: object, name: str) -> dict[str, Any]:
    part = said.get(name) if isinstance(said, dict) else None
    return part if isinstance(part, dict) else {}


def _text(part: dict[str, Any], name: str) -> str:
    value = part.get(name)
    return value if isinstance(value, str) else ""

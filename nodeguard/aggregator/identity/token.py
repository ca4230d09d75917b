"""Service account tokens: verification of signature, issuer, audience, times and account. Pure."""

from __future__ import annotations

import base64
import math
import re
from typing import Any

import jwt
from msgspec import Struct

from nodeguard.aggregator.identity.caller import RequestRefusedError, is_node_name
from nodeguard.aggregator.identity.signing_keys import SigningKeys
from nodeguard.model.json_decoder import JsonDecoder

# Seconds by which the clocks of the API server and of this machine may differ.
LEEWAY = 30.0

# Bytes of a token; a projected one has about 1 KiB.
TOKEN_LIMIT = 8 * 1024

_BEARER = re.compile(
    r"bearer +([A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+) *\Z", re.ASCII | re.IGNORECASE
)
_EXPIRED = (
    "the token has expired: check that the kubelet renews it, and that the clocks of the node and of the "
    "aggregator are right"
)
_NOT_YET_VALID = "the token is not valid yet: check the aggregator's clock"
_MOUNT = "mount a projected service-account token for it, and set aggregator.token_file"


class TokenRequirements(Struct, frozen=True):
    """The requirements of a valid token. accounts: the agents' service accounts, `namespace:name` each."""

    accounts: frozenset[str]
    audience: str = "nodeguard"


class TokenClaims(Struct, frozen=True):
    """Claims of a verified token. expires_at: seconds since 1970. node, uid: of the Node of its pod, empty
    if the token has none. pod: that it is bound to, empty for none.
    """

    expires_at: float
    node: str = ""
    uid: str = ""
    pod: str = ""


class _Head(Struct):
    kid: str


_HEAD = JsonDecoder(_Head)


class UnknownKeyError(Exception):
    """The token is signed by an unknown key; it may be a new one."""


def bearer_token(authorization: str) -> str:
    """Return the token of an Authorization header. Raises RequestRefusedError."""
    if not authorization:
        raise RequestRefusedError(401, f"no token was presented: {_MOUNT}")
    match = _BEARER.match(authorization) if len(authorization) <= TOKEN_LIMIT else None
    if match is None:
        raise RequestRefusedError(401, f"this is not a service account token: {_MOUNT}")
    return match[1]


def key_id(token: str) -> str:
    """Return the id of the key in the header of a token. Raises RequestRefusedError."""
    head = token.partition(".")[0]
    try:
        return _HEAD.decode(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4))).kid
    except ValueError:
        raise RequestRefusedError(401, f"this is not a service account token: {_MOUNT}") from None


def verify_token(token: str, keys: SigningKeys, requirements: TokenRequirements, now: float) -> TokenClaims:
    """Verify a token and return its claims. now: seconds since 1970. Raises RequestRefusedError, and
    UnknownKeyError if its key is not among the keys.
    """
    key = keys.by_id.get(key_id(token))
    if key is None:
        raise UnknownKeyError
    try:
        # Times are checked below, against `now`.
        claims = jwt.decode(
            token,
            key.public,
            algorithms=[key.algorithm],
            options={"verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_aud": False,
                     "verify_iss": False, "verify_sub": False, "verify_jti": False},
        )  # fmt: skip
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise RequestRefusedError(
            401, f"the token's signature is invalid for this cluster: {_MOUNT}"
        ) from None
    if claims.get("iss") != keys.issuer:
        raise RequestRefusedError(401, f"the token's issuer is not this cluster's: {_MOUNT}")
    audience = claims.get("aud")
    if requirements.audience not in (audience if isinstance(audience, list) else [audience]):
        raise RequestRefusedError(
            401, f"the token is not for {requirements.audience}: set that as the projected token's audience"
        )
    _check_account(claims.get("sub"), requirements)
    until, begin = _seconds(claims.get("exp")), _seconds(claims.get("nbf", 0))
    if until is None or begin is None:
        raise RequestRefusedError(401, f"the token has no expiry time: {_MOUNT}")
    verified = _claims(claims.get("kubernetes.io"), until)
    if now >= until + LEEWAY:
        raise _out_of_time(verified, _EXPIRED, "token-expired")
    if now < begin - LEEWAY:
        raise _out_of_time(verified, _NOT_YET_VALID, "token-not-yet-valid")
    return verified


def _out_of_time(claims: TokenClaims, message: str, reason: str) -> RequestRefusedError:
    """Return the error for a token that is not valid now. It names the node: the cluster has signed that."""
    refused = RequestRefusedError(401, message, reason=reason)
    refused.node = claims.node if claims.pod and is_node_name(claims.node) else ""
    return refused


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) and abs(value) < 1e12 else None


def _check_account(subject: Any, requirements: TokenRequirements) -> None:
    if not isinstance(subject, str) or subject not in {
        f"system:serviceaccount:{account}" for account in requirements.accounts
    }:
        raise RequestRefusedError(
            403,
            "the token is of another service account: run the agent as "
            + " or ".join(sorted(requirements.accounts)).replace(":", "/"),
        )


def _claims(claims: object, expires_at: float) -> TokenClaims:
    node, pod = _part(claims, "node"), _part(claims, "pod")
    return TokenClaims(expires_at, node=_text(node, "name"), uid=_text(node, "uid"), pod=_text(pod, "name"))


def _part(claims: object, name: str) -> dict[str, Any]:
    part = claims.get(name) if isinstance(claims, dict) else None
    return part if isinstance(part, dict) else {}


def _text(part: dict[str, Any], name: str) -> str:
    value = part.get(name)
    return value if isinstance(value, str) else ""

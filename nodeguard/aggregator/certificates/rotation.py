"""When a certificate authority is made, published, used and let go. Pure: time is seconds since 1970.

Agents read the published certificates for each connection. A new one is published a day before anything is
signed by it, and an old one for as long as anything that it signed may be shown.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

HOUR = 3600.0
DAY = 24 * HOUR

# Seconds: how long an authority lives, and a server's certificate; how long before its end an authority has a
# successor; from when a certificate is published until every agent trusts it.
AUTHORITY_LIFETIME = 730 * DAY
SERVING_LIFETIME = 7 * DAY
SUCCESSION = 180 * DAY
OVERLAP = DAY

# Authorities that are kept, whatever a wrong clock asks for.
_MOST = 8

Step = Literal["add", "publish", "mark", "retire", "nothing"]


class UnreadableStateError(Exception):
    """A kept state that cannot be used; says what is wrong with it."""


class CertificateAuthority(Struct, frozen=True):
    """One authority. certificate, key: in PEM. until: its end. published: since when agents can read it, 0
    before.
    """

    certificate: str
    key: str
    created_at: float
    expires_at: float
    published_at: float = 0.0

    def __repr__(self) -> str:
        return f"Generation(made={self.created_at!r}, until={self.expires_at!r}, published={self.published_at!r})"


class AuthorityState(Struct, frozen=True):
    """Authorities, oldest first."""

    version: int = 1
    authorities: tuple[CertificateAuthority, ...] = ()


def next_step(state: AuthorityState, published: str, now: float) -> Step:
    """The next step; nothing where all is as it should be. published: the bundle that agents can read."""
    newest = state.authorities[-1] if state.authorities else None
    if newest is None or (newest.expires_at - now < SUCCESSION and len(state.authorities) < _MOST):
        return "add"
    if published != ca_bundle(state):
        return "publish"
    if any(not one.published_at for one in state.authorities):
        return "mark"
    return "retire" if retire_authorities(state, now) != state else "nothing"


def signing_authority(state: AuthorityState, now: float) -> CertificateAuthority | None:
    """Who signs now: the newest that every agent trusts; where none is, the oldest that is valid."""
    valid = [one for one in state.authorities if now < one.expires_at]
    trusted = [one for one in valid if one.published_at and now >= one.published_at + OVERLAP]
    return trusted[-1] if trusted else next(iter(valid), None)


def ca_bundle(state: AuthorityState) -> str:
    """What agents are to trust."""
    return "".join(one.certificate for one in state.authorities)


def add_authority(state: AuthorityState, new: CertificateAuthority) -> AuthorityState:
    """The state with a new authority."""
    return replace(state, generations=(*state.authorities, new))


def mark_published(state: AuthorityState, now: float) -> AuthorityState:
    """The state after its bundle was published."""
    return replace(
        state,
        generations=tuple(
            one if one.published_at else replace(one, published=now) for one in state.authorities
        ),
    )


def retire_authorities(state: AuthorityState, now: float) -> AuthorityState:
    """The state without authorities by which nothing is signed any more.

    Whether they have expired does not matter: a clock may be wrong, and an expired one does no harm.
    """
    by = signing_authority(state, now)
    if by is None or not by.published_at or now < by.published_at + OVERLAP + SERVING_LIFETIME + OVERLAP:
        return state
    return replace(state, generations=state.authorities[state.authorities.index(by) :])


def encode_state(state: AuthorityState) -> bytes:
    """A state as it is kept."""
    return msgspec.json.encode(state)


def decode_state(data: bytes) -> AuthorityState:
    """A state as it was kept; an empty one where nothing was. Raises UnreadableStateError."""
    if not data:
        return AuthorityState()
    try:
        state = msgspec.json.decode(data, type=AuthorityState)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise UnreadableStateError("it holds no authority") from None
    if state.version != 1:
        raise UnreadableStateError(f"it was written by a newer version ({state.version})")
    return state

"""Rotation of the certificate authority: when one is created, published, used and retired. Pure.

Times are seconds since 1970. Agents read the published CA bundle for each connection. A new authority is
published a day before it signs anything, and an old one until all certificates that it signed have expired.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

HOUR = 3600.0
DAY = 24 * HOUR

# Seconds: lifetime of an authority and of a serving certificate; how long before its end an authority gets a
# successor; and from the publication of a certificate until every agent trusts it.
AUTHORITY_LIFETIME = 730 * DAY
SERVING_LIFETIME = 7 * DAY
SUCCESSION = 180 * DAY
OVERLAP = DAY

# Stored authorities at most, also with a wrong clock.
MAX_AUTHORITIES = 8

Step = Literal["add", "publish", "mark", "retire", "nothing"]


class UnreadableStateError(Exception):
    """The stored state is unusable. The message has the reason."""


class CertificateAuthority(Struct, frozen=True):
    """One authority. certificate, key: in PEM. published_at: since when agents can read it, 0 before."""

    certificate: str
    key: str
    created_at: float
    expires_at: float
    published_at: float = 0.0

    def __repr__(self) -> str:
        return f"CertificateAuthority(until={self.expires_at!r}, published={self.published_at!r})"


class RetainedCertificate(Struct, frozen=True):
    """A certificate of an authority without its key, in PEM. until: end of its publication."""

    certificate: str
    until: float


class AuthorityState(Struct, frozen=True):
    """Authorities, oldest first. retained: published certificates of others: a replica may still serve what
    they have signed.
    """

    version: int = 1
    authorities: tuple[CertificateAuthority, ...] = ()
    retained: tuple[RetainedCertificate, ...] = ()


def next_step(state: AuthorityState, published: str, now: float) -> Step:
    """Return the next step of the rotation. published: the bundle that agents can read."""
    newest = state.authorities[-1] if state.authorities else None
    if newest is None or (newest.expires_at - now < SUCCESSION and len(state.authorities) < MAX_AUTHORITIES):
        return "add"
    if published != ca_bundle(state):
        return "publish"
    if any(not authority.published_at for authority in state.authorities):
        return "mark"
    return "retire" if retire_authorities(state, now) != state else "nothing"


def signing_authority(state: AuthorityState, now: float) -> CertificateAuthority | None:
    """Return the authority that signs now: the newest that every agent trusts, else the oldest valid one."""
    valid = [authority for authority in state.authorities if now < authority.expires_at]
    trusted = [authority for authority in valid if now >= signs_from(authority)]
    return trusted[-1] if trusted else next(iter(valid), None)


def signs_from(authority: CertificateAuthority) -> float:
    """Return from when every agent trusts an authority: then it may sign. Infinite before its publication."""
    return authority.published_at + OVERLAP if authority.published_at else inf


def retired_from(state: AuthorityState) -> float:
    """Return from when only the newest authority is left."""
    return signs_from(state.authorities[-1]) + SERVING_LIFETIME + OVERLAP


def ca_bundle(state: AuthorityState) -> str:
    """Return the CA bundle for agents in PEM."""
    own = [authority.certificate for authority in state.authorities]
    return "".join([*own, *(retained.certificate for retained in state.retained)])


def add_authority(state: AuthorityState, new: CertificateAuthority) -> AuthorityState:
    """Return the state with a new authority."""
    return replace(state, authorities=(*state.authorities, new))


def retain_published(state: AuthorityState, published: Iterable[str], now: float) -> AuthorityState:
    """Return the state with the certificates that agents read now, in PEM, for the time of an overlap."""
    own = {authority.certificate for authority in state.authorities}
    others = [certificate for certificate in published if certificate not in own][:MAX_AUTHORITIES]
    return replace(
        state, retained=tuple(RetainedCertificate(certificate, now + OVERLAP) for certificate in others)
    )


def mark_published(state: AuthorityState, now: float) -> AuthorityState:
    """Return the state after the publication of its bundle."""
    return replace(
        state,
        authorities=tuple(
            authority if authority.published_at else replace(authority, published_at=now)
            for authority in state.authorities
        ),
    )


def retire_authorities(state: AuthorityState, now: float) -> AuthorityState:
    """Return the state without old authorities, once all their certificates are replaced.

    Their own expiry does not matter: a clock may be wrong, and an expired authority does no harm.
    """
    state = replace(state, retained=tuple(item for item in state.retained if now < item.until))
    by = signing_authority(state, now)
    if by is None or now < signs_from(by) + SERVING_LIFETIME + OVERLAP:
        return state
    return replace(state, authorities=state.authorities[state.authorities.index(by) :])


def encode_state(state: AuthorityState) -> bytes:
    """Encode a state for the store."""
    return msgspec.json.encode(state)


def decode_state(data: bytes) -> AuthorityState:
    """Decode a stored state; an empty one for no data. Raises UnreadableStateError."""
    if not data:
        return AuthorityState()
    try:
        state = msgspec.json.decode(data, type=AuthorityState)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise UnreadableStateError("it has no authority") from None
    if state.version != 1:
        raise UnreadableStateError(f"it was written by a newer version ({state.version})")
    return state

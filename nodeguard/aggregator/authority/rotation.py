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
LIFE = 730 * DAY
SERVING = 7 * DAY
SUCCESSION = 180 * DAY
OVERLAP = DAY

# Authorities that are kept, whatever a wrong clock asks for.
_MOST = 8

Step = Literal["add", "publish", "mark", "retire", "nothing"]


class UnreadableStateError(Exception):
    """A kept state that cannot be used; says what is wrong with it."""


class Generation(Struct, frozen=True):
    """One authority. certificate, key: in PEM. until: its end. published: since when agents can read it, 0
    before.
    """

    certificate: str
    key: str
    made: float
    until: float
    published: float = 0.0

    def __repr__(self) -> str:
        return f"Generation(made={self.made!r}, until={self.until!r}, published={self.published!r})"


class State(Struct, frozen=True):
    """Authorities, oldest first."""

    version: int = 1
    generations: tuple[Generation, ...] = ()


def what_to_do(state: State, published: str, now: float) -> Step:
    """The next step; nothing where all is as it should be. published: the bundle that agents can read."""
    newest = state.generations[-1] if state.generations else None
    if newest is None or (newest.until - now < SUCCESSION and len(state.generations) < _MOST):
        return "add"
    if published != bundle(state):
        return "publish"
    if any(not one.published for one in state.generations):
        return "mark"
    return "retire" if retired(state, now) != state else "nothing"


def signer(state: State, now: float) -> Generation | None:
    """Who signs now: the newest that every agent trusts; where none is, the oldest that is valid."""
    valid = [one for one in state.generations if now < one.until]
    trusted = [one for one in valid if one.published and now >= one.published + OVERLAP]
    return trusted[-1] if trusted else next(iter(valid), None)


def bundle(state: State) -> str:
    """What agents are to trust."""
    return "".join(one.certificate for one in state.generations)


def added(state: State, new: Generation) -> State:
    """The state with a new authority."""
    return replace(state, generations=(*state.generations, new))


def marked(state: State, now: float) -> State:
    """The state after its bundle was published."""
    return replace(
        state,
        generations=tuple(one if one.published else replace(one, published=now) for one in state.generations),
    )


def retired(state: State, now: float) -> State:
    """The state without authorities by which nothing is signed any more.

    Whether they have expired does not matter: a clock may be wrong, and an expired one does no harm.
    """
    by = signer(state, now)
    if by is None or not by.published or now < by.published + OVERLAP + SERVING + OVERLAP:
        return state
    return replace(state, generations=state.generations[state.generations.index(by) :])


def encoded(state: State) -> bytes:
    """A state as it is kept."""
    return msgspec.json.encode(state)


def decoded(data: bytes) -> State:
    """A state as it was kept; an empty one where nothing was. Raises UnreadableStateError."""
    if not data:
        return State()
    try:
        state = msgspec.json.decode(data, type=State)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise UnreadableStateError("it holds no authority") from None
    if state.version != 1:
        raise UnreadableStateError(f"it was written by a newer version ({state.version})")
    return state

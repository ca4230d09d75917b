"""Derivations: functions that compute a group of derived signals of one target. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

from nodeguard.derive.latest_readings import LatestReadings, UnreadError
from nodeguard.model.signal import Scalar
from nodeguard.model.target import NODE

Values = Iterator[tuple[str, Scalar]]

Result = TypeVar("Result")


class Derivation(NamedTuple):
    """A function that derives signals of one target.

    kind: of its targets. signals: all that it may yield. compute: yields (signal, value) for signals that
    apply. Where it uses a signal that could not be read, the signals that it has not yielded yet are unread
    for the same reason.
    """

    kind: str
    signals: tuple[str, ...]
    compute: Callable[[LatestReadings, str], Values]


class Once(Generic[Result]):
    """A part of a derivation that is the same for all targets, computed on its first use."""

    def __init__(self, compute: Callable[[LatestReadings], Result]) -> None:
        self._compute = compute
        self._result: list[Result] = []
        self._error: UnreadError | None = None

    def __call__(self, latest: LatestReadings) -> Result:
        """Return the function's result. Raises its UnreadError on every call."""
        if self._error is not None:
            raise self._error
        if not self._result:
            try:
                self._result.append(self._compute(latest))
            except UnreadError as error:
                self._error = error
                raise
        return self._result[0]


def run_derivations(latest: LatestReadings, derivations: Iterable[Derivation]) -> None:
    """Derive the signals of every target of each derivation's kind, and add them to the readings."""
    for derivation in derivations:
        for target in (NODE,) if derivation.kind == NODE else latest.targets(derivation.kind):
            try:
                for signal, value in derivation.compute(latest, target):
                    latest.add(target, signal, value)
            except UnreadError as error:
                done = latest.derived.get(target, {})
                for signal in derivation.signals:
                    if signal not in done:
                        latest.add_unread(target, signal, error.reason)

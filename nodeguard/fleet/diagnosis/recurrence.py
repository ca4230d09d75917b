"""Recurrences: how often a domain or check was diagnosed recently, and how long its recovery takes. Pure."""

from __future__ import annotations

from nodeguard.model.diagnosis import DiagnosisPolicy


class Recurrence:
    """The past diagnoses of domains and checks, by name: how many, and when the last one ended."""

    def __init__(self, rule: DiagnosisPolicy) -> None:
        self._rule = rule
        self._ended: dict[str, tuple[int, float]] = {}

    def record_end(self, name: str, now: float) -> None:
        """Record the end of a diagnosis. now: seconds of a clock that never jumps."""
        self._ended[name] = (self.times(name, now) + 1, now)

    def take_over(self, other: Recurrence) -> None:
        """Continue with the recurrences of another diagnosis."""
        self._ended.update(other._ended)

    def times(self, name: str, now: float) -> int:
        """Return how many recent diagnoses there were before."""
        times, ended = self._ended.get(name, (0, now))
        if now - ended < self._rule.recovery_reset_after:
            return times
        del self._ended[name]
        return 0

    def clearing_time(self, times: int) -> float:
        """Return the seconds without votes after which a diagnosis ends, for the number of diagnoses."""
        return clearing_time(self._rule, times)


def clearing_time(rule: DiagnosisPolicy, times: int) -> float:
    """Return the seconds for which a domain must show nothing to be cleared, for the number of diagnoses."""
    return float(min(rule.recovery_max, rule.recovery_initial * 2.0 ** min(times - 1, 30)))


def fewest_nodes(share: float, size: int) -> float:
    """Return the minimum number of nodes of `size` that keep a degraded domain degraded. share: of the fault
    class.
    """
    return max(2.0, share / 2 * size)

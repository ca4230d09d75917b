"""How often something was blamed of late, and how long it is watched for that. Pure."""

from __future__ import annotations

from nodeguard.model.diagnosis import DiagnosisPolicy


class Recurrence:
    """What has been let go, by name: how often it was blamed before, and when that ended."""

    def __init__(self, rule: DiagnosisPolicy) -> None:
        self._rule = rule
        self._ended: dict[str, tuple[int, float]] = {}

    def record_end(self, name: str, now: float) -> None:
        """It is not blamed any more. now: seconds of a clock that never jumps."""
        self._ended[name] = (self.times(name, now) + 1, now)

    def take_over(self, other: Recurrence) -> None:
        """Know what another knows."""
        self._ended.update(other._ended)

    def times(self, name: str, now: float) -> int:
        """How often it was blamed of late."""
        times, ended = self._ended.get(name, (0, now))
        if now - ended < self._rule.forget:
            return times
        del self._ended[name]
        return 0

    def clearing_time(self, times: int) -> float:
        """Seconds without votes after which it is let go, when it is blamed so often."""
        return clearing_time(self._rule, times)


def clearing_time(rule: DiagnosisPolicy, times: int) -> float:
    """Return for how many seconds a domain that was diagnosed so often must show nothing to be cleared."""
    return float(min(rule.most, rule.clear * 2.0 ** min(times - 1, 30)))


def fewest_nodes(share: float, size: int) -> float:
    """Return how many nodes of `size` must show a fault, at least, for a degraded domain to stay degraded.
    share: as of the class of faults.
    """
    return max(2.0, share / 2 * size)

"""Limits on the targets that the judge remembers without data from a source. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from nodeguard.judge.state import TargetState
from nodeguard.model.finding import Health

# Targets known only from the kernel log or a sign: a log can name any.
_MAX_WITHOUT_SOURCE = 96

# Targets that a source failed to read: more than any node has links, ports and PCI functions.
_MAX_UNREAD = 512


def limit_targets(targets: dict[str, TargetState]) -> dict[str, TargetState]:
    """Return the targets, without the least important of those that no source reads beyond the limits."""
    if len(targets) <= _MAX_WITHOUT_SOURCE:
        return targets
    without_source = {name: state for name, state in targets.items() if not state.sources}
    unread = {
        name: state
        for name, state in targets.items()
        if state.sources and not any(snapshot.signals for snapshot in state.sources.values())
    }
    dropped = {*_excess(without_source, _MAX_WITHOUT_SOURCE), *_excess(unread, _MAX_UNREAD)}
    return {name: state for name, state in targets.items() if name not in dropped} if dropped else targets


def _excess(targets: Mapping[str, TargetState], limit: int) -> list[str]:
    """Return the targets beyond a limit, those of the lowest priority."""
    by_priority = sorted(targets, key=lambda name: retention_priority(targets[name]))
    return by_priority[: max(0, len(targets) - limit)]


def retention_priority(target: TargetState) -> tuple[int, bool, float]:
    """Return a sort key: the worst health of the target, whether a source knows it, the time of its last
    data.
    """
    health = max((active.finding.health for active in target.active.values()), key=_rank, default=Health.OK)
    times = [
        *(event.last for event in target.events.values()),
        *target.signs.values(),
        *(source.unread_since for source in target.sources.values() if source.unread_since is not None),
    ]
    return health.rank, bool(target.sources), max(times, default=-inf)


def _rank(health: Health) -> int:
    return health.rank

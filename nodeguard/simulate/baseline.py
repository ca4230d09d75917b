"""What simpler rules would do with the same fleet: cordon a node for anything that is said of it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from math import inf
from typing import Literal

from nodeguard.simulate.faults import FleetEvent
from nodeguard.simulate.observer import UNMARKED, NodeMarkState, Observer

Baseline = Literal["nodeguard", "cordon-any", "rate-breaker"]
BASELINES: tuple[Baseline, ...] = ("nodeguard", "cordon-any", "rate-breaker")

# A breaker of this kind stops when so large a share of the fleet was cordoned in so many seconds.
_SHARE, _WITHIN = 0.5, 300.0

_OUT = NodeMarkState(quarantine=True)


def cordoned(moments: Iterable[FleetEvent], size: int, watchers: Sequence[Observer], rule: Baseline) -> None:
    """Cordon each node as soon as anything is said against it, and uncordon it when all of that is over.

    size: how many nodes there are. rule: whether a breaker stands before it. What only falls silent is not
    cordoned: nobody says anything of it.
    """
    signs: Counter[int] = Counter()
    out: set[int] = set()
    lately: deque[float] = deque()
    most = _SHARE * size if rule == "rate-breaker" else inf
    for one in moments:
        trouble = one.fault
        if trouble is None:
            continue
        says = trouble.kind.subsystem is not None
        if one.kind == "begins":
            for watcher in watchers:
                watcher.fault_started(trouble, one.at)
            while lately and lately[0] <= one.at - _WITHIN:
                lately.popleft()
            signs[one.node] += says
            if says and one.node not in out and len(lately) < most:
                out.add(one.node)
                lately.append(one.at)
                _mark(watchers, one.node, _OUT, one.at)
        elif one.kind == "ends":
            signs[one.node] -= says
            if one.node in out and not signs[one.node]:
                out.remove(one.node)
                _mark(watchers, one.node, UNMARKED, one.at)
            for watcher in watchers:
                watcher.fault_ended(trouble, one.at)


def _mark(watchers: Sequence[Observer], node: int, now: NodeMarkState, at: float) -> None:
    for watcher in watchers:
        watcher.marks_changed(node, now, at)

"""Runs worlds: their histories, the settling after them, restarts, and the shortest history of a failure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from time import monotonic

from msgspec import Struct
from msgspec.structs import replace

from tests.worlds.history import History, random_history
from tests.worlds.requirement import require
from tests.worlds.taints import taints_of, withheld_domain_taints
from tests.worlds.world import World

# Seconds of constant input: more than the longest soak period and the longest recovery of a domain. And after
# a restart at rest.
SETTLING, AFTER_RESTART = 40_000.0, 7_200.0


class Failure(Struct, frozen=True):
    """A world that breaks an invariant. history: the shortest that was found. error: what is broken."""

    seed: int
    history: History
    error: str

    def __str__(self) -> str:
        """Return a report of the failure."""
        return f"world {self.seed}: {self.error}\n{self.history}"


class Campaign(Struct):
    """Worlds that ran. counts: worlds, steps and situations. failures: with their histories."""

    counts: Counter[str]
    failures: list[Failure]


def run_world(history: History) -> World:
    """Run a world to its end. Raises BrokenInvariantError."""
    world = World(history)
    for step in history.steps:
        world.apply(step)
    settle(world)
    possible = _marked_nodes(taints_of(world) | withheld_domain_taints(world))
    # A suppression in one version, or its end, is restored for the nodes that have that version then.
    if not (world.suppressed_versions and any(step.kind == "driver" for step in history.steps)):
        _restart_at_rest(world)
    if any(step.kind == "crash" for step in history.steps):
        _compare_with_crash(history, possible)
    return world


def _marked_nodes(taints: set[tuple[str, str, str]]) -> set[tuple[str, str, str]]:
    """Return taints without the fault class of marks on nodes: of several findings, the one that is marked first
    names it.
    """
    return {(node, key, value if key in {"device", "domain-degraded"} else "") for node, key, value in taints}


def settle(world: World) -> None:
    """Let time pass with constant input: no mark is set, removed and set again, except one of an injected fault that
    real faults preempt. Findings of past events end, so the budgets change.
    """
    world.lost = 0
    world.changes.clear()
    world.preempted.clear()
    world.pass_time(SETTLING)
    for (node, key), signs in world.changes.items():
        flaps = "+-+" in signs or "-+-" in signs
        require(not flaps or node in world.preempted, "constant input causes no flapping", node, key, signs)
    overdue = list(world.invariants.unreleased())
    require(not overdue, "a mark with a proof is released", *overdue)


def _restart_at_rest(world: World) -> None:
    """Restart the aggregator at rest: nothing changes."""
    before = taints_of(world)
    world.start()
    world.pass_time(AFTER_RESTART)
    after = taints_of(world)
    require(not before - after, "a restart at rest releases nothing", f"{sorted(before - after)}")
    require(not after - before, "a restart at rest marks nothing", f"{sorted(after - before)}")


def _compare_with_crash(history: History, marks: set[tuple[str, str, str]]) -> None:
    """Run the history again with a restart before its end: when it has settled, there are no other marks. marks: of the
    history without the restart, and of its degraded domains that the budget withheld: it may choose another of them.
    """
    world = World(history, crashes=True)
    for step in history.steps:
        world.apply(step)
    settle(world)  # checks the invariants
    more = _marked_nodes(taints_of(world)) - marks
    require(not more, "a restart sets no more marks", f"{sorted(more)}")


def run_campaign(first: int, worlds: int, shrink_seconds: float = 20.0) -> Campaign:
    """Run worlds of consecutive seeds."""
    campaign = Campaign(Counter(), [])
    for seed in range(first, first + worlds):
        history = random_history(seed)
        try:
            world = run_world(history)
        except Exception as error:  # noqa: BLE001 - any error is a failure of its world
            text = _text(error)
            campaign.failures.append(shrink(seed, history, text, shrink_seconds))
            continue
        campaign.counts["worlds"] += 1
        campaign.counts["steps"] += len(history.steps)
        campaign.counts.update(world.counts)
        campaign.counts.update(f"worlds with {name}" for name, count in world.counts.items() if count)
    return campaign


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def shrink(seed: int, history: History, error: str, seconds: float) -> Failure:
    """Return the failure with a shorter history: steps, nodes and options that it does not need are gone."""
    until, rule = monotonic() + seconds, error.partition(":")[2].partition(":")[0]
    progress = True
    while progress and monotonic() < until:
        progress = False
        for shorter in _shorter(history):
            if monotonic() > until:
                break
            try:
                run_world(shorter)
            except Exception as other:  # noqa: BLE001 - any error is a failure
                if _text(other).partition(":")[2].partition(":")[0] == rule:
                    history, error, progress = shorter, _text(other), True
                    break
    return Failure(seed, history, error)


def _shorter(history: History) -> Iterator[History]:
    steps = history.steps
    for size in (len(steps) // 2, len(steps) // 4, 1):
        for at in range(0, len(steps), max(1, size)) if size else ():
            yield replace(history, steps=(*steps[:at], *steps[at + size :]))
    for option in history.options:
        yield replace(history, options=tuple(name for name in history.options if name != option))
    if history.devices:
        yield replace(history, devices=())
    for at, step in enumerate(steps):
        if len(step.nodes) > 1:
            half = len(step.nodes) // 2
            for nodes in (step.nodes[:half], step.nodes[half:], step.nodes[:-1], step.nodes[1:]):
                yield replace(history, steps=(*steps[:at], replace(step, nodes=nodes), *steps[at + 1 :]))
        if step.seconds > 1.0:
            yield replace(history, steps=(*steps[:at], replace(step, seconds=1.0), *steps[at + 1 :]))

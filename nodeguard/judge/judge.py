"""The judge: from the readings of one evaluation to the state of each target and the node's verdict. Pure.

    state, verdict = judge(rules, state, readings, instant, settings)

The same input gives the same verdict, live, in replay and in simulation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.judge.evaluate import evaluate_target, is_current, with_new_signs
from nodeguard.judge.events import (
    UNCORROBORATED_LIMIT,
    carry_over_clears,
    carry_over_events,
    clears_by_target,
    latest_clears,
)
from nodeguard.judge.fold import worst_health
from nodeguard.judge.rules import Rules
from nodeguard.judge.state import Background, JudgeState, SourceStatus, TargetInput, TargetResult, TargetState
from nodeguard.judge.target_update import drop_source, mark_unreached, update_target
from nodeguard.judge.verdict import compute_verdict
from nodeguard.model.check import EventOccurred
from nodeguard.model.finding import Verdict
from nodeguard.model.instant import Instant
from nodeguard.model.observation import DETACHED, Observation, Reading
from nodeguard.model.signal import Scalar
from nodeguard.model.target import NODE, parent_target, target_kind

# Seconds by which the wall clock may drift from the clock of the boot before all findings get new times:
# times are shown in seconds.
_CLOCK_TOLERANCE = 0.1

# Targets known only from the kernel log or a sign: a log can name any.
_MAX_WITHOUT_SOURCE = 96

# Targets that a source failed to read: more than any node has links, ports and PCI functions.
_MAX_UNREAD = 512


def limit_targets(targets: dict[str, TargetState]) -> dict[str, TargetState]:
    """Return the targets, without the least important of those that no source reads beyond the limits."""
    without_source = {name: state for name, state in targets.items() if not state.sources}
    unread = {}
    if len(targets) > _MAX_UNREAD:
        unread = {
            name: state
            for name, state in targets.items()
            if state.sources and not any(snapshot.signals for snapshot in state.sources.values())
        }
    dropped = {*_excess(without_source, _MAX_WITHOUT_SOURCE), *_excess(unread, _MAX_UNREAD)}
    return {name: state for name, state in targets.items() if name not in dropped} if dropped else targets


def _excess(targets: Mapping[str, TargetState], limit: int) -> list[str]:
    """Return the targets beyond a limit, those of the lowest priority."""
    if len(targets) <= limit:
        return []
    by_priority = sorted(targets, key=lambda name: retention_priority(targets[name]))
    return by_priority[: len(targets) - limit]


def retention_priority(target: TargetState) -> tuple[int, bool, float]:
    """Return a sort key: the worst health of the target, whether a source knows it, the time of its last
    data.
    """
    health = worst_health(active.finding for active in target.active.values())
    times = [
        *(event.last for event in target.events.values()),
        *target.signs.values(),
        *(source.unread_since for source in target.sources.values() if source.unread_since is not None),
    ]
    return health.rank, bool(target.sources), max(times, default=-inf)


class JudgeSettings(Struct, frozen=True):
    """Settings of an evaluation, besides the readings.

    platform: id of the matched platform, empty without one. expect: values that the platform expects.
    one_shot: whether no later evaluation may follow, as for `nodeguard check`.
    """

    platform: str = ""
    expect: dict[str, Scalar | tuple[Scalar, ...]] = {}
    one_shot: bool = False


def judge(
    rules: Rules, state: JudgeState, readings: Sequence[Reading], instant: Instant, settings: JudgeSettings
) -> tuple[JudgeState, Verdict]:
    """Return the state and the verdict after readings. state: of the last evaluation, JudgeState() at the
    start.
    """
    if state.boot_id != instant.boot_id:
        state = _state_of_new_boot(rules, state, instant)
    sources = {**state.sources, **{reading.source: _source_status(reading) for reading in readings}}
    targets = _updated_targets(rules, state, readings, instant.mono)
    background = Background(
        expect=settings.expect,
        kinds=frozenset(map(target_kind, targets)),
        statuses={name: status.status for name, status in sources.items()},
        one_shot=settings.one_shot,
        clock_offset=_clock_offset(state.background.clock_offset, instant),
    )
    before = state.results if state.background == background else {}
    clears, signs = clears_by_target(state.cleared), signs_by_target(targets)
    results: dict[str, TargetResult] = {}
    for name, target in targets.items():
        cleared = latest_clears(clears, name, target)
        result = before.get(name)
        if result is not None:
            result = with_new_signs(result, target)
        if result is None or not is_current(result, target, signs[name], cleared, sources, instant.mono):
            data = TargetInput(target, signs[name], cleared)
            result = evaluate_target(rules, name, data, background, sources, instant.mono)
        results[name] = result
    remembered = {
        name: result.state
        for name, result in results.items()
        if _is_needed(rules, name, result.state, instant)
    }
    after = JudgeState(
        boot_id=instant.boot_id,
        targets=limit_targets(remembered),
        sources=sources,
        background=background,
        results=results,
        cleared=state.cleared,
    )
    return after, compute_verdict(rules, results, sources, settings.platform)


def _clock_offset(before: float, instant: Instant) -> float:
    """Return the wall clock's time at the boot: that of the last evaluation, unless the clock was set."""
    offset = instant.wall - instant.mono
    return before if abs(offset - before) < _CLOCK_TOLERANCE else offset


def _is_needed(rules: Rules, name: str, target: TargetState, instant: Instant) -> bool:
    """Return whether the state of a target is needed: a source lists it, it has a sign, or a recent event.

    An event is recent for a day, and for the longest window of a check that uses it.
    """
    if target.sources or target.signs:
        return True
    windows = rules.event_windows[target_kind(name)]
    return any(
        event.last > instant.mono - max(UNCORROBORATED_LIMIT, windows.get(event.signal, UNCORROBORATED_LIMIT))
        for event in target.events.values()
    )


def signs_by_target(targets: Mapping[str, TargetState]) -> dict[str, Mapping[str, float]]:
    """Return the latest time of each sign of each target, its parent and the node.

    A target without events has no signs, because signs clear events only: else each reading that the driver
    asks for no recovery would be new input for all targets.
    """
    return {name: _signs(targets, name) if target.events else {} for name, target in targets.items()}


def _signs(targets: Mapping[str, TargetState], name: str) -> Mapping[str, float]:
    """Return the latest time of each sign of a target, its parent and the node."""
    ancestry = dict.fromkeys((NODE, parent_target(name), name))
    present = [targets[target].signs for target in ancestry if target in targets and targets[target].signs]
    if len(present) <= 1:
        return present[0] if present else {}
    latest: dict[str, float] = {}
    for times in present:
        latest.update({sign: max(at, latest.get(sign, at)) for sign, at in times.items()})
    return latest


def _state_of_new_boot(rules: Rules, state: JudgeState, instant: Instant) -> JudgeState:
    """Return the state that outlives a reboot: events that a reboot does not clear, and the clears of them.

    All times are moved to the new boot's clock.
    """
    lasting = {
        leaf.event
        for group in rules.by_kind.values()
        for rule in group
        if "reboot" not in rule.check.cleared_by
        for leaf in rule.check.leaves()
        if isinstance(leaf, EventOccurred) and not leaf.over
    }
    ended = max((source.at for source in state.sources.values()), default=0.0)
    targets = {}
    for name, target in state.targets.items():
        events = carry_over_events(target.events, lasting, ended)
        if events:
            targets[name] = TargetState(
                first_seen=instant.mono, events=events, signs={"reboot": 0.0}, component=target.component
            )
    cleared = carry_over_clears(state.cleared, targets, ended)
    return JudgeState(boot_id=instant.boot_id, targets=targets, cleared=cleared)


def _source_status(reading: Reading) -> SourceStatus:
    """Return the outcome of a source's round: that of its observation of the node."""
    failed = next(
        (
            observation
            for observation in reading.observations
            if observation.target == NODE and observation.status not in {"read", "lost"}
        ),
        None,
    )
    if failed is None:
        return SourceStatus("read", reading.at)
    return SourceStatus(failed.status, reading.at, failed.detail)


def _with_used_signals(rules: Rules, observation: Observation) -> Observation:
    """Return an observation without signals that no check uses, such as traffic counters, which always
    change.
    """
    names = rules.signals_used[target_kind(observation.target)]
    if observation.signals.keys() <= names:
        return observation
    used = {name: value for name, value in observation.signals.items() if name in names}
    return replace(observation, signals=used)


def _updated_targets(
    rules: Rules, state: JudgeState, readings: Sequence[Reading], now: float
) -> dict[str, TargetState]:
    """Return the targets after the readings, and after the absence of targets from them."""
    targets = state.targets
    rounds = {name: source.at for name, source in state.sources.items()}
    by_target: dict[str, list[Observation]] = defaultdict(list)
    for reading in readings:
        for observation in reading.observations:
            by_target[observation.target].append(_with_used_signals(rules, observation))
    result = dict(targets)
    for name, observations in by_target.items():
        windows = rules.counter_windows[target_kind(name)]
        result[name] = update_target(targets.get(name), observations, windows, rounds, now, rules.definitions)
    listed = {
        reading.source: {observation.target for observation in reading.observations} for reading in readings
    }
    by_source = {reading.source: reading for reading in readings}
    released = {reading.source for reading in readings if _source_status(reading).status == "detached"}
    for name, target in targets.items():
        for source in target.sources:
            if source in listed and name not in listed[source]:
                left = result[name]
                reason = DETACHED if source in released else by_source[source].unlisted(target_kind(name))
                result[name] = (
                    mark_unreached(left, source, rounds[source], reason)
                    if reason
                    else drop_source(left, source)
                )
    return result

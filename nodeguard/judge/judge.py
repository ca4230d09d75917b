"""The judge: from readings to a verdict, one round after the other. Pure.

    state, verdict = judge(rules, state, readings, instant)

The same input gives the same verdict, live, in replay and in simulation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.judge.evaluate import evaluate_target
from nodeguard.judge.events import UNCORROBORATED_LIMIT, carry_over_events
from nodeguard.judge.operator_clears import carry_over_clears, clears_by_target, latest_clears
from nodeguard.judge.retention import limit_targets
from nodeguard.judge.rules import Rules
from nodeguard.judge.state import Background, JudgeState, SourceStatus, TargetState
from nodeguard.judge.target_update import drop_source, mark_unreached, update_target
from nodeguard.judge.verdict import compute_verdict
from nodeguard.model.check import EventOccurred
from nodeguard.model.finding import Verdict
from nodeguard.model.instant import Instant
from nodeguard.model.observation import DETACHED, Observation, Reading
from nodeguard.model.signal import Scalar
from nodeguard.model.target import NODE, parent_target, target_kind


class JudgeSettings(Struct, frozen=True):
    """What is judged against, besides the readings.

    platform: id of the matched platform, empty where none matched; expect: what it expects. one_look: whether
    there may be no later look, as for a person at a prompt.
    """

    platform: str = ""
    expect: dict[str, Scalar | tuple[Scalar, ...]] = {}
    one_shot: bool = False


def judge(
    rules: Rules, state: JudgeState, readings: Sequence[Reading], instant: Instant, outlook: JudgeSettings
) -> tuple[JudgeState, Verdict]:
    """State and verdict after some readings. state: of the round before, JudgeState() at the start."""
    if state.boot_id != instant.boot_id:
        state = _new_boot(rules, state, instant)
    sources = {**state.sources, **{reading.source: _ended(reading) for reading in readings}}
    slots = _remembered(rules, state, readings, instant.mono)
    background = Background(
        expect=outlook.expect,
        kinds=frozenset(map(target_kind, slots)),
        statuses={name: one.status for name, one in sources.items()},
        one_shot=outlook.one_shot,
    )
    people = clears_by_target(state.cleared)
    settled = state.settled if state.background == background else {}
    judged = {
        name: settled[name]
        if name in settled and settled[name].state is slot
        else evaluate_target(
            rules,
            name,
            slot,
            signs_for_target(slots, name),
            background,
            instant,
            latest_clears(people, name, slot),
        )
        for name, slot in slots.items()
    }
    after_round = JudgeState(
        boot_id=instant.boot_id,
        targets=limit_targets(
            {name: one.state for name, one in judged.items() if _is_known(rules, name, one.state, instant)}
        ),
        sources=sources,
        background=background,
        settled={name: one for name, one in judged.items() if one.settled},
        cleared=state.cleared,
    )
    return after_round, compute_verdict(rules, judged, sources, outlook.platform)


def _is_known(rules: Rules, name: str, slot: TargetState, instant: Instant) -> bool:
    """Whether anything is left to be remembered of a slot: what was heard of it is for a day, and for as long
    as a check asks for it.
    """
    if slot.sources or slot.signs:
        return True
    asked = rules.event_windows[target_kind(name)]
    return any(
        event.last > instant.mono - max(UNCORROBORATED_LIMIT, asked.get(event.signal, UNCORROBORATED_LIMIT))
        for event in slot.events.values()
    )


def signs_for_target(slots: Mapping[str, TargetState], name: str) -> dict[str, float]:
    """What may clear a slot's events: signs of its own, and of what holds it, whose renewal renews it too."""
    found: dict[str, float] = {}
    for holder in {NODE, parent_target(name), name}:
        for sign, at in slots[holder].signs.items() if holder in slots else ():
            found[sign] = max(at, found.get(sign, at))
    return found


def _new_boot(rules: Rules, state: JudgeState, instant: Instant) -> JudgeState:
    """What outlives a reboot, moved to the new boot's clock: events that a reboot does not clear, and what
    people cleared of them.
    """
    lasting = {
        leaf.event
        for group in rules.by_kind.values()
        for rule in group
        if "reboot" not in rule.check.clears
        for leaf in rule.check.leaves()
        if isinstance(leaf, EventOccurred) and not leaf.over
    }
    ended = max((source.at for source in state.sources.values()), default=0.0)
    slots = {}
    for name, slot in state.targets.items():
        moved = carry_over_events(slot.events, lasting, ended)
        if moved:
            slots[name] = TargetState(
                first_seen=instant.mono, events=moved, signs={"reboot": 0.0}, component=slot.component
            )
    cleared = carry_over_clears(state.cleared, slots, ended)
    return JudgeState(boot_id=instant.boot_id, targets=slots, cleared=cleared)


def _ended(reading: Reading) -> SourceStatus:
    whole = next(
        (one for one in reading.observations if one.target == NODE and one.status not in {"read", "lost"}),
        None,
    )
    return SourceStatus(whole.status, reading.at, whole.detail) if whole else SourceStatus("read", reading.at)


def _looked_at(rules: Rules, observation: Observation) -> Observation:
    """An observation without the signals that no check looks at: traffic, which never rests, above all."""
    names = rules.signals_used[target_kind(observation.target)]
    if observation.signals.keys() <= names:
        return observation
    kept = {name: value for name, value in observation.signals.items() if name in names}
    return replace(observation, signals=kept)


def _remembered(
    rules: Rules, state: JudgeState, readings: Sequence[Reading], now: float
) -> dict[str, TargetState]:
    """Slots after what was read of them, and after what was not."""
    slots = state.targets
    rounds = {name: source.at for name, source in state.sources.items()}
    seen: dict[str, list[Observation]] = defaultdict(list)
    for reading in readings:
        for observation in reading.observations:
            seen[observation.target].append(_looked_at(rules, observation))
    result = dict(slots)
    for name, observations in seen.items():
        result[name] = update_target(
            slots.get(name), observations, rules.counter_windows[target_kind(name)], rounds, now
        )
    reached = {one.source: {observation.target for observation in one.observations} for one in readings}
    by_source = {reading.source: reading for reading in readings}
    released = {one.source for one in readings if _ended(one).status == "released"}
    for name, slot in slots.items():
        for source in slot.sources:
            if source in reached and name not in reached[source]:
                left = result[name]
                why = DETACHED if source in released else by_source[source].unlisted(target_kind(name))
                result[name] = (
                    mark_unreached(left, source, rounds[source], why) if why else drop_source(left, source)
                )
    return result

"""Clears of findings by an operator. Pure.

    state, result = clear(rules, state, request, instant)

A clear discards the events and counter increases up to now. It does not discard readings: a finding with a
condition that is still true stays active.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.judge.evaluate import evaluate_target
from nodeguard.judge.events import add_clears, clears_by_target, latest_clears
from nodeguard.judge.fold import FindingKey, attach_symptoms, fold_findings, root_causes
from nodeguard.judge.judge import signs_by_target
from nodeguard.judge.rules import Rules
from nodeguard.judge.state import JudgeState, OperatorClear, TargetInput, TargetState
from nodeguard.judge.verdict import dependencies
from nodeguard.model.finding import Finding, Health
from nodeguard.model.instant import Instant
from nodeguard.model.target import parent_target, target_kind, target_label

# Letters kept of an operator's name.
_MAX_NAME = 64

ClearRefusal = Literal["", "not-judged", "no-check", "no-finding", "other-part", "holds"]


class ClearRequest(Struct, frozen=True):
    """An operator's request to clear the finding of a check on a target, as the verdict shows it.

    component: clear it only while this component is in the location; empty for any. by: name of the operator.
    """

    check: str
    target: str
    component: str = ""
    by: str = ""


class ClearResult(Struct, frozen=True):
    """The result of a clear.

    message: one sentence. cleared: the findings that ended, including symptoms of the cleared one.
    still_active: those that stay, because a reading shows the fault now. reason: why nothing was cleared;
    empty otherwise.
    """

    message: str
    cleared: tuple[FindingKey, ...] = ()
    still_active: tuple[FindingKey, ...] = ()
    reason: ClearRefusal = ""


def clear(
    rules: Rules, state: JudgeState, request: ClearRequest, instant: Instant
) -> tuple[JudgeState, ClearResult]:
    """Return the state and the result; the same state where nothing was cleared.

    state: after an evaluation in this boot.
    """
    if request.check not in rules.checks:
        return state, ClearResult(f"there is no check {request.check}", reason="no-check")
    if state.boot_id != instant.boot_id or not state.background.statuses:
        message = "nothing has been evaluated yet: try again in a minute"
        return state, ClearResult(message, reason="not-judged")
    findings = {
        (check, target): active.finding
        for target, row in state.targets.items()
        for check, active in row.active.items()
    }
    depends_on = dependencies(state.targets)
    causes = root_causes(findings, rules.checks, depends_on)
    shown = attach_symptoms(findings.values(), rules.checks, depends_on)
    named = _named_findings(state.targets, findings, request, shown)
    subject = f"{request.check} on {target_label(request.target)}"
    if not named:
        return state, ClearResult(_no_finding(state, request, subject), reason="no-finding")
    requested = [key for key in named if request.component in {"", _component(state.targets, key[1])}]
    if not requested:
        component = _component(state.targets, named[0][1]) or "an unknown component"
        message = f"{subject} is not cleared: {component} is there now, not {request.component}"
        return state, ClearResult(message, reason="other-part")
    symptoms = (key for key, cause in causes.items() if cause in requested and key not in requested)
    keys = [*requested, *symptoms]
    after = apply_clears(state, request, keys, instant)
    firing = _firing(rules, after, {target for _, target in keys}, instant)
    still_active = tuple(key for key in keys if key in firing)
    cleared = tuple(key for key in keys if key not in firing)
    if not set(cleared) & set(requested):
        condition = "its condition holds now; the finding ends when a reading shows that it is over"
        message = f"{subject} is not cleared: {condition}"
        return state, ClearResult(message, still_active=still_active, reason="holds")
    message = _success_message(subject, cleared, still_active)
    return apply_clears(state, request, cleared, instant), ClearResult(message, cleared, still_active)


def apply_clears(
    state: JudgeState, request: ClearRequest, keys: Collection[FindingKey], instant: Instant
) -> JudgeState:
    """Return the state with these findings cleared. keys: their targets must have state."""
    by = request.by[:_MAX_NAME] or "an operator"
    targets = dict(state.targets)
    clears = []
    for check, target in keys:
        row = targets[target]
        active = {name: finding for name, finding in row.active.items() if name != check}
        targets[target] = replace(row, active=active)
        # The log's clock may run ahead of the machine's: an event that was read is cleared in any case.
        at = max([instant.mono, *(event.last for event in row.events.values())])
        component = (
            request.component if row.component is not None and row.component.id == request.component else ""
        )
        clears.append(OperatorClear(check, target, component, at, by))
    return replace(state, targets=targets, cleared=add_clears(state.cleared, clears))


def _named_findings(
    targets: Mapping[str, TargetState],
    findings: Mapping[FindingKey, Finding],
    request: ClearRequest,
    shown: list[Finding],
) -> list[FindingKey]:
    """Return the requested finding if it is active, else those that the verdict folds into it."""
    key = (request.check, request.target)
    if key in findings:
        return [key]
    counts = Counter(map(target_kind, targets))
    folded = fold_findings((finding for finding in shown if finding.health != Health.OK), counts)
    rows = (finding.targets for finding in folded if (finding.check, finding.target) == key)
    return [(request.check, target) for row in rows for target in row]


def _no_finding(state: JudgeState, request: ClearRequest, subject: str) -> str:
    key = (request.check, request.target)
    before = [clear for clear in state.cleared if (clear.check, clear.target) == key]
    return f"{subject} is not active" + (f": {before[-1].by} cleared it before" if before else "")


def _component(targets: Mapping[str, TargetState], target: str) -> str:
    """Return the id of the component in a target's or its parent's location; empty where it is not known."""
    for location in (target, parent_target(target)):
        row = targets.get(location)
        if row is not None and row.component is not None and row.component.id:
            return row.component.id
    return ""


def _firing(rules: Rules, state: JudgeState, targets: Collection[str], instant: Instant) -> set[FindingKey]:
    """Return the findings that an evaluation of some targets gives now."""
    by_target, signs = clears_by_target(state.cleared), signs_by_target(state.targets)
    firing: set[FindingKey] = set()
    for name in targets:
        target = state.targets[name]
        data = TargetInput(target, signs[name], latest_clears(by_target, name, target))
        result = evaluate_target(rules, name, data, state.background, state.sources, instant.mono)
        firing.update((finding.check, name) for finding in result.findings)
    return firing


def _success_message(
    subject: str, cleared: Collection[FindingKey], still_active: Collection[FindingKey]
) -> str:
    more = f", with {len(cleared) - 1} more that it explained or included" if len(cleared) > 1 else ""
    rest = ", ".join(f"{check} on {target_label(target)}" for check, target in still_active)
    return f"{subject} is cleared{more}" + (f"; still active, as a reading shows: {rest}" if rest else "")

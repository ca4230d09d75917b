"""A finding keeps the action of its cause, and a remedy that fits it: all pairs of checks that can merge."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nodeguard.judge.fold import attach_symptoms, fold_findings
from nodeguard.model.catalogue import ActionResponse
from nodeguard.model.check import Check, EventOccurred
from nodeguard.model.finding import Action, Finding, Health, worst
from nodeguard.model.target import NODE, nvlink_target
from tests.catalog.test_remedies import CATALOGUE, begins_with
from tests.judge.judged_node import finding

CHECKS = {check.id: check for check in CATALOGUE.checks}
PAIRS = [
    pytest.param(CHECKS[cause], check, id=f"{check.id}-of-{cause}")
    for check in CATALOGUE.checks
    for cause in check.symptom_of
]
GPUS = [f"gpu/0000:{bus:02x}:00" for bus in range(8)]


def actions(check: Check) -> set[Action]:
    """Return the actions that findings of a check can have: its own, and those of decoded Xids and SXids."""
    return {worst(check.action, action) for action in (Action.NONE, *event_actions(check))}


def event_actions(check: Check) -> Iterator[Action]:
    """Yield the actions of all decoded codes on which a check fires."""
    for leaf in check.leaves():
        if not isinstance(leaf, EventOccurred):
            continue
        accepted = {name: set(values) for name, values in leaf.where.items()}
        for topic, code, response in RESPONSES:
            verdicts = accepted.get("verdict", {response.verdict})
            if leaf.event == topic and code in accepted.get("xid", {code}) and response.verdict in verdicts:
                yield Action(response.action)


def code_responses() -> Iterator[tuple[str, int, ActionResponse]]:
    """Yield the event of each code in the tables, the code, and each response that its decoding can give."""
    by_message = {
        48: {"DRAIN_AND_RESET", "RESET_GPU"},
        74: {bit.action for bit in CATALOGUE.xid74},
        94: {"DRAIN_AND_RESET", "RESET_GPU"},
        95: {"DRAIN_AND_RESET", "RESET_GPU"},
    }
    nvlink5 = {"RESET_GPU", "RESTART_APP", "unknown", *(rule.action for rule in CATALOGUE.nvlink5)}
    for xid in CATALOGUE.xids.values():
        words = {xid.action, *by_message.get(xid.code, ()), *(nvlink5 if xid.topic == "nvlink5" else ())}
        for word in words:
            yield f"gpu.xid.{xid.topic}", xid.code, CATALOGUE.response(word)
    for row in CATALOGUE.recovery.values():
        yield "gpu.xid.recovery", 154, ActionResponse("fatal", row.action)
    for sxid in CATALOGUE.sxids.values():
        yield "nvswitch.sxid", sxid.code, CATALOGUE.response(sxid.action)


RESPONSES = list(dict.fromkeys(code_responses()))


def findings(check: Check, target: str) -> Iterator[Finding]:
    """Yield a finding of a check with each of its actions."""
    for action in sorted(actions(check)):
        yield finding(check.id, target, health=check.health, action=action, remedy=check.remedy)


@pytest.mark.parametrize(("cause", "symptom"), PAIRS)
def test_a_weaker_symptom_never_changes_the_action(cause: Check, symptom: Check) -> None:
    for first in findings(cause, NODE):
        for second in findings(symptom, NODE):
            [merged] = attach_symptoms([first, second], CHECKS, {})
            ranks = first.health.rank, second.health.rank
            strongest = max(first, second, key=lambda item: item.action.rank)
            if first.action is Action.RESTART_SERVICE:
                strongest = first
            leader = strongest if ranks[0] == ranks[1] else first if ranks[0] > ranks[1] else second
            assert merged.action == leader.action
            assert merged.health == worst(first.health, second.health)
            assert begins_with(merged.remedy) in {None, merged.action}
            assert merged.remedy in {item.remedy for item in (first, second) if item.action == merged.action}


@pytest.mark.parametrize("check", CATALOGUE.checks, ids=lambda check: check.id)
def test_a_remedy_fits_each_action_of_its_events(check: Check) -> None:
    assert all(begins_with(check.remedy) in {None, action} for action in actions(check))


@pytest.mark.parametrize("targets", [GPUS, [nvlink_target(GPUS[0], link) for link in range(8)]])
def test_a_weaker_finding_never_changes_the_action_of_equal_ones(targets: list[str]) -> None:
    """A part of the events of one kind may be old, and then their findings are warnings."""
    group = [finding("x", target, action=Action.RESET_GPU, remedy="Reset it.") for target in targets[1:]]
    old = finding(
        "x", targets[0], health=Health.WARNING, action=Action.CONTACT_SUPPORT, remedy="Contact support."
    )
    [item] = fold_findings([old, *group], {"gpu": 8, "nvlink": 144})
    assert (item.health, item.action, item.remedy) == (Health.SUSPECT, Action.RESET_GPU, "Reset it.")


def test_the_strongest_of_equally_severe_findings_gives_action_and_remedy() -> None:
    group = [finding("x", gpu, action=Action.RESET_GPU, remedy="Reset it.") for gpu in GPUS[:7]]
    other = finding("x", GPUS[7], action=Action.REBOOT_NODE, remedy="Reboot the node.")
    [item] = fold_findings([*group, other], {"gpu": 8})
    assert (item.action, item.remedy) == (Action.REBOOT_NODE, "Reboot the node.")

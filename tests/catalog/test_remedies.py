"""The remedy of a check never contradicts its action: an automation reads the action, a person the remedy."""

from __future__ import annotations

import re

import pytest

from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.model.check import Check
from nodeguard.model.finding import Action

CATALOGUE, _ = load_catalogue()

# How a remedy begins that asks for an action. A sentence with "if" or "again" in it is for later.
_BEGINNINGS = {
    Action.RESTART_WORKLOAD: r"restart the (application|job|workload)",
    Action.RESTART_SERVICE: (
        r"(re)?start (it\b|its\b|chronyd|nvidia-|[^;.]*\b(service|container|daemon|manager)\b)|load it\b|run nvidia-"
    ),
    Action.RESET_GPU: r"reset\b",
    Action.REBOOT_NODE: r"reboot\b|restart the (server|node)|power-cycle",
    Action.REPLACE_COMPONENT: r"(clean or )?replace\b|reseat\b",
    Action.CONTACT_SUPPORT: r"contact support|ask the vendor",
}

# What may come before: to free the node is a part of every action.
_BEFORE = re.compile(
    r"^(try to )?((drain (the node|it)( first)?|take (the )?work off [^,;]*|let [^,;]* (finish|end)[^,;]*|"
    r"stop [^,;]*processes)(,? (and|then)|,) )?",
    re.IGNORECASE,
)
_LATER = re.compile(r"\b(if|again|next maintenance)\b", re.IGNORECASE)


def begins_with(remedy: str) -> Action | None:
    """The action that the first clause of a remedy asks for; None where it asks for none of them."""
    clause = re.split(r"[;.:](?:\s|$)", remedy)[0]
    if _LATER.search(clause):
        return None
    step = _BEFORE.sub("", clause, count=1)
    return next(
        (action for action, words in _BEGINNINGS.items() if re.match(words, step, re.IGNORECASE)), None
    )


@pytest.mark.parametrize(
    ("remedy", "action"),
    [
        ("Try to start it first, and read its log.", Action.RESTART_SERVICE),
        ("Start nvidia-fabricmanager, in the driver's version.", Action.RESTART_SERVICE),
        (
            "Restart the driver's container or service; reboot the node if it does not load.",
            Action.RESTART_SERVICE,
        ),
        ("Restart the server; reseat the GPU.", Action.REBOOT_NODE),
        ("Drain the node and reboot it; nothing else helps.", Action.REBOOT_NODE),
        ("Take work off the GPU and reset it before anything runs on it again.", None),
        ("Take work off the GPU and reset it; reboot the node if it goes on.", Action.RESET_GPU),
        ("Power-cycle the node first; the disk may come back.", Action.REBOOT_NODE),
        ("Look at the switch first.", None),
    ],
)
def test_the_first_step_of_a_remedy_is_found(remedy: str, action: Action | None) -> None:
    assert begins_with(remedy) == action


@pytest.mark.parametrize("check", CATALOGUE.checks, ids=lambda check: check.id)
def test_a_remedy_begins_with_its_action_or_with_none(check: Check) -> None:
    assert begins_with(check.remedy) in {None, check.action}

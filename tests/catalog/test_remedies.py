"""The remedy of a check never contradicts its action: an automation reads the action, a person the remedy.

It is complete without the title, the message and the action: a page and a notification show it without them.
"""

from __future__ import annotations

import re

import pytest

from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.model.catalogue import RecoveryAction
from nodeguard.model.check import Check
from nodeguard.model.finding import Action

CATALOGUE, _ = load_catalogue()

# How a remedy begins that asks for an action. A sentence with "if" or "again" in it is for later.
_BEGINNINGS = {
    Action.RESTART_WORKLOAD: r"restart the (application|job|workload)",
    Action.RESTART_SERVICE: (
        r"(re)?start (it\b|its\b|nvidia-|[^;.]*\b(service|container|daemon|manager)\b)|load it\b|run nvidia-"
    ),
    Action.RESET_GPU: r"reset\b",
    Action.REBOOT_NODE: r"reboot\b|power-cycle",
    Action.REPLACE_COMPONENT: r"(clean or )?replace\b|reseat\b",
    Action.CONTACT_SUPPORT: r"contact support|ask the vendor",
}

# What may come before: to free the node is a part of every action.
_BEFORE = re.compile(
    r"^(try to )?((drain( the node)?|take (the )?work off [^,;]*|let [^,;()]* (finish|end)[^,;()]*|"
    r"stop [^,;]*(processes|work)[^,;]*)(,? (and|then)|,) )?",
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
        ("Reboot the node; reseat the GPU.", Action.REBOOT_NODE),
        ("Drain and reboot the node; nothing else helps.", Action.REBOOT_NODE),
        ("Stop the work on the GPU, then reset the GPU if the error returns.", None),
        ("Stop the work on the GPU, then reset the GPU; reboot the node.", Action.RESET_GPU),
        ("Power-cycle the node first; the disk may come back.", Action.REBOOT_NODE),
        ("Look at the switch first.", None),
    ],
)
def test_the_first_step_of_a_remedy_is_found(remedy: str, action: Action | None) -> None:
    assert begins_with(remedy) == action


@pytest.mark.parametrize("check", CATALOGUE.checks, ids=lambda check: check.id)
def test_a_remedy_begins_with_its_action_or_with_none(check: Check) -> None:
    first = begins_with(check.remedy)
    assert first in {None, check.action}, f"change action to {first}, or the first step of the remedy"


# What a remedy names for its action, in any of its sentences.
_NAMES = {
    Action.RESTART_WORKLOAD: r"\brestart\b",
    Action.RESTART_SERVICE: r"\b(re)?start\b|\bload\b",
    Action.RESET_GPU: r"\breset\b",
    Action.REBOOT_NODE: r"\breboot the node\b|\bpower-cycle the node\b",
    Action.REPLACE_COMPONENT: r"\breplace\b",
    Action.CONTACT_SUPPORT: r"\bcontact support\b|\bthe network team\b|\bhave\b",
}

# A condition, or another step that comes before.
_CONDITION = re.compile(r"\b(if|again|where|first|when)\b(?! it is next idle)", re.IGNORECASE)


def asks_for(remedy: str, action: Action) -> bool:
    """Return whether a remedy asks for an action without a condition, and for no other step "first".

    The conclusion states the action without a condition, so a remedy that adds one contradicts it.
    """
    clauses = [clause for sentence in sentences(remedy) for clause in re.split(r"[;,:] ", sentence)]
    names = re.compile(_NAMES[action], re.IGNORECASE)
    is_asked = any(names.search(clause) and not _CONDITION.search(clause) for clause in clauses)
    return is_asked and not re.search(r"\bfirst\b", remedy, re.IGNORECASE)


@pytest.mark.parametrize(
    ("remedy", "action", "asks"),
    [
        (
            "Check the switch trays first where all GPUs show the fault. Else reset the GPU.",
            Action.RESET_GPU,
            False,
        ),
        (
            "Check the other end of the link. Reset the GPU if NVML shows the link inactive.",
            Action.RESET_GPU,
            False,
        ),
        (
            "Update the firmware, and replace the adapter if its driver resets it again.",
            Action.REPLACE_COMPONENT,
            False,
        ),
        ("Reset the GPU; contact support if the fabric still reports the problem.", Action.RESET_GPU, True),
        ("Reset the GPU when it is next idle.", Action.RESET_GPU, True),
        ("Read the disk's own log, then replace the disk.", Action.REPLACE_COMPONENT, True),
    ],
)
def test_an_action_with_a_condition_is_found(remedy: str, action: Action, asks: bool) -> None:
    assert asks_for(remedy, action) is asks


@pytest.mark.parametrize("check", CATALOGUE.checks, ids=lambda check: check.id)
def test_a_remedy_asks_for_the_action_of_the_conclusion(check: Check) -> None:
    if check.action not in {Action.NONE, Action.MONITOR}:
        assert "{action}" in check.remedy or asks_for(check.remedy, check.action)


_PRONOUN = re.compile(
    r"\b(it|its|itself|they|them|their|theirs|this one|that one|these|those)\b", re.IGNORECASE
)
_NOUN_BEFORE = re.compile(r"\b(the|a|an|all|other|NVIDIA's) \w+", re.IGNORECASE)

# Words that lean on a sentence that is not there, and other words for an action that has one.
_LEANING = re.compile(
    r"\b(a single one|until then|(happens?|comes?) (again|back)|goes on|the action says|there)\b"
    r"|\b(restart|reboot) the (server|machine|host|system)\b|\brestart the node\b|\bpower-cycle the (server|machine)\b",
    re.IGNORECASE,
)

# The longest sentence, in words.
_LONGEST = 25


def sentences(text: str) -> list[str]:
    """The sentences of a text."""
    return [part for part in re.split(r"(?<=[.:])\s+", text) if part]


def defects(remedy: str) -> list[str]:
    """What makes a remedy unclear to a reader who sees nothing else."""
    found = []
    for sentence in sentences(remedy):
        pronoun = _PRONOUN.search(sentence)
        if pronoun and not _NOUN_BEFORE.search(sentence[: pronoun.start()]):
            found.append(f"{pronoun[0]!r} stands for nothing that {sentence!r} names")
        if len(sentence.split()) > _LONGEST:
            found.append(f"{sentence!r} is too long")
    found += [f"{match[0]!r} leans on another text" for match in _LEANING.finditer(remedy)]
    if not re.match(r"[A-Z].*\.$", remedy):
        found.append("is no sentence")
    if _MODIFIED.match(remedy):
        found.append("does not begin with what to do")
    return found


# Beginnings that are no step: a condition, a statement, or the name of a thing.
_MODIFIED = re.compile(r"(if|where|when|the|a|an|one|that|this|it|in|on|for|no)\b", re.IGNORECASE)


@pytest.mark.parametrize(
    "remedy",
    [
        "A single one can wait until the node is free.",
        "Drain it first; the label names the module.",
        "The array has no redundancy until then.",
        "Take work off the GPU, then do what the action says.",
        "Restart the server.",
        "If the error comes back, reseat the device.",
        "Read its log for why it ends.",
        "reboot the node",
    ],
)
def test_a_remedy_that_leans_on_another_text_is_found(remedy: str) -> None:
    assert defects(remedy)


@pytest.mark.parametrize("check", CATALOGUE.checks, ids=lambda check: check.id)
def test_a_remedy_is_complete_without_another_text(check: Check) -> None:
    assert defects(check.remedy) == []


@pytest.mark.parametrize("check", CATALOGUE.checks, ids=lambda check: check.id)
def test_a_remedy_names_its_action(check: Check) -> None:
    names = _NAMES.get(check.action)
    assert names is None or "{action}" in check.remedy or re.search(names, check.remedy, re.IGNORECASE)


@pytest.mark.parametrize("row", CATALOGUE.recovery.values(), ids=lambda row: row.name)
def test_the_remedy_of_a_recovery_action_is_complete(row: RecoveryAction) -> None:
    assert defects(row.remedy) == []


def test_one_phrase_names_a_reboot() -> None:
    texts = [response.meaning for response in CATALOGUE.responses.values()]
    texts += [text for check in CATALOGUE.checks for text in (check.title, check.message, check.remedy)]
    other = re.compile(r"\brestart the (physical )?(server|machine|host|node)\b", re.IGNORECASE)
    assert [text for text in texts if other.search(text)] == []

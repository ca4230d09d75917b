"""Every command that nodeguard prints to operators: of pages, the chart's notes, alerts, and recommended actions."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from nodeguard.catalog.catalogue import load_builtin
from nodeguard.pipeline.signal_registry import all_signals
from tests.alerts.rules import alerts
from tests.daemonset.helm import CHART
from tests.docs.pages import PAGES, PROGRAMS, command_lines, text
from tests.docs.ran import one_line

# Commands of these have two words: `nodeguard get nodes`.
_GROUPS = frozenset({"get", "describe", "incidents", "policy", "gpus", "rollout", "create"})


class Form(NamedTuple):
    """What a sentence mentions of a command: its program and verb, and its options."""

    verb: str
    options: frozenset[str]


def form(command: str) -> Form:
    """Return the form of a command; of one in a pod, that of the command in the pod."""
    words = shlex.split(command)
    if words[0] == "kubectl" and "--" in words and words[-1] != "--":
        words = words[words.index("--") + 1 :]
    program, *rest = words
    count = 2 if rest and rest[0] in _GROUPS else 1
    verbs = [word for word in rest[:count] if re.fullmatch("[a-z][a-z-]*", word)]
    options = frozenset(word.partition("=")[0] for word in rest if word.startswith("-"))
    return Form(" ".join([program.removeprefix("/opt/nodeguard/bin/"), *verbs]), options)


@cache
def steps() -> dict[str, str]:
    """Return the commands that are printed as steps: in blocks of pages and in the chart's notes, with a place."""
    found: dict[str, str] = {}
    for page in PAGES:
        for line, printed in command_lines(page):
            found.setdefault(one_line(printed), f"{page}:{line}")
    notes = re.sub(
        r"\{\{ \.Release\.Name(space)? \}\}", "nodeguard", (CHART / "templates/NOTES.txt").read_text()
    )
    for printed in re.findall(r"^   (\w.*)$", notes, re.MULTILINE):
        found.setdefault(one_line(printed), "NOTES.txt")
    return found


@cache
def mentions() -> dict[Form, str]:
    """Return the commands that sentences of pages and alerts mention, and those of recommended actions."""
    return dict(_mentions())


def _mentions() -> Iterator[tuple[Form, str]]:
    sources = {
        page: re.sub(r"^ *```.*?```$", "", text(page), flags=re.MULTILINE | re.DOTALL) for page in PAGES
    }
    for component in ("agent", "node", "aggregator"):
        for rule in alerts(component):
            sources[f"alert {rule['alert']}"] = " ".join(rule["annotations"].values())
    for place, content in sources.items():
        for printed in re.findall(r"`([^`]+)`", content):
            words = printed.split()
            if words and words[0] in PROGRAMS and len(words) > 1 and words[-1] != "--":
                yield form(re.sub(r"\{\{.*?\}\}|…", "NAME", printed)), place
    for check in load_builtin(all_signals).checks:
        for command in check.how:
            for part in re.split(r" && | \| ", command):
                if not part.startswith("{"):
                    yield form(part), f"recommended action of {check.id}"

"""Each printed command is run by a test that is named here, or is in the list of those that none runs, with a reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import yaml

from tests.docs.printed import Form, form, mentions, steps
from tests.docs.ran import run_by
from tests.paths import ROOT

NOT_RUN = Path(__file__).parent / "not_run.yaml"


@cache
def not_run() -> Mapping[str, Mapping[str, str]]:
    loaded: Mapping[str, Mapping[str, str]] = yaml.safe_load(NOT_RUN.read_text("utf-8"))
    return loaded


@cache
def run_commands() -> frozenset[str]:
    return frozenset(command for commands in run_by().values() for command in commands)


def is_run(mention: Form) -> bool:
    """Return whether a test runs a command with these words and options."""
    return any(
        f"{run.verb} ".startswith(f"{mention.verb} ") and mention.options <= run.options
        for run in map(form, run_commands())
    )


def functions(file: str) -> Iterator[str]:
    """Yield the names of the tests in a file."""
    for node in ast.parse((ROOT / file).read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            yield node.name


def test_each_step_is_run_or_has_a_reason() -> None:
    listed = run_commands() | not_run()["steps"].keys()
    missing = {command: place for command, place in steps().items() if command not in listed}
    assert not missing, f"run it in a test and add it to run_by.yaml, or give the reason in {NOT_RUN.name}"


def test_each_mentioned_command_is_run_or_has_a_reason() -> None:
    missing = {
        mention: place
        for mention, place in mentions().items()
        if not is_run(mention) and mention.verb not in not_run()["mentions"]
    }
    assert not missing, f"run it in a test and add it to run_by.yaml, or give the reason in {NOT_RUN.name}"


def test_the_lists_name_nothing_else() -> None:
    """A command that no page prints any more, or that a test runs now, leaves its list."""
    printed, verbs = steps(), {mention.verb for mention in mentions()}
    assert [
        command for command in not_run()["steps"] if command not in printed or command in run_commands()
    ] == []
    assert [verb for verb in not_run()["mentions"] if verb not in verbs] == []
    forms = set(mentions())
    unprinted = {
        command
        for command in run_commands()
        if command not in printed
        and not any(form(command).verb.startswith(mention.verb) for mention in forms)
    }
    assert unprinted == set()


def test_each_named_test_exists() -> None:
    for test in run_by():
        file, _, name = test.partition("::")
        assert name in set(functions(file)), test

"""The tools that the selected tests need."""

from __future__ import annotations

from tests import tools


def test_each_tool_is_fetched_only_for_the_tests_that_need_it() -> None:
    assert tools.commands([]) == []
    assert tools.commands(["promtool"]) == [["scripts/environment", "promtool"]]
    assert tools.commands(["cluster"]) == [["scripts/controlplane", "kubernetes", "kueue", "owners"]]


def test_all_parts_are_built_by_one_command() -> None:
    assert tools.commands(["cluster", "kubelet", "promtool"]) == [
        ["scripts/environment", "promtool", "kubelet"],
        ["scripts/controlplane", "kubernetes", "kueue", "owners", "kubelet"],
    ]

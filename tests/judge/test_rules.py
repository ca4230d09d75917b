from __future__ import annotations

from nodeguard.judge.rules import compile_rules
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.check import AnyOf, Compare, Increase, Sustained
from nodeguard.model.target import TARGET_KINDS
from tests.judge.scene import check

CHECKS = (
    check(AnyOf((Increase("n", 1, 60), Sustained(Increase("m", 1, 20), 5))), "a", targets=("gpu", "node")),
    check(Increase("n", 5, 600), "b", targets=("gpu",), family="other"),
    check(Compare("hot", "is", value=True), "c", targets=("port",)),
)


def test_checks_stand_with_the_kinds_that_they_judge() -> None:
    made = compile_rules(Catalogue(checks=CHECKS), {})
    assert set(made.by_kind) == set(TARGET_KINDS)
    assert {kind: [rule.check.id for rule in rows] for kind, rows in made.by_kind.items() if rows} == {
        "gpu": ["a", "b"],
        "node": ["a"],
        "port": ["c"],
    }


def test_each_counter_is_remembered_for_the_longest_window_of_its_kind_of_slot() -> None:
    spans = compile_rules(Catalogue(checks=CHECKS), {}).counter_windows
    assert (spans["gpu"], spans["node"], spans["port"]) == ({"n": 600, "m": 20}, {"n": 60, "m": 20}, {})


def test_some_families_alone() -> None:
    made = compile_rules(Catalogue(checks=CHECKS), {}, frozenset({"other"}))
    assert [rule.check.id for rows in made.by_kind.values() for rule in rows] == ["b"]
    assert made.counter_windows["gpu"] == {"n": 600}

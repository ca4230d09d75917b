from __future__ import annotations

from ast import AnnAssign, Assign, Name, Store, parse, walk
from importlib import import_module
from importlib.resources import files
from pkgutil import iter_modules

import pytest
from msgspec.structs import fields

from bench.constants import PRESENT, table
from bench.evaluation.constants import LIMITS, MODULES, POLICY, constants, scaled_planner, scaled_rule
from bench.evaluation.results import EpisodeResult
from bench.evaluation.score import Score
from nodeguard.fleet import diagnosis
from nodeguard.fleet.diagnosis import shared_versions
from nodeguard.model.diagnosis import DiagnosisSettings, RecoveryPolicy, SuppressionPolicy, WeakEvidence
from nodeguard.model.policy import Policy
from tests.policies import diagnosis_policy


def test_every_number_of_the_modules_is_a_constant() -> None:
    modules = {item.name for item in iter_modules(diagnosis.__path__)}
    found = {
        f"{module}.{target.id}"
        for module in modules
        for statement in parse((files(diagnosis) / f"{module}.py").read_text()).body
        if isinstance(statement, Assign | AnnAssign)
        for target in walk(statement)
        if isinstance(target, Name) and isinstance(target.ctx, Store) and target.id.isupper()
    }
    numbers = {name for name in found if isinstance(_value(name), int | float)}
    assert numbers == LIMITS | {f"{module}.{name}" for module, names in MODULES.items() for name in names}


def _value(constant: str) -> object:
    module, _, name = constant.partition(".")
    return getattr(import_module(f"{diagnosis.__name__}.{module}"), name)


def test_every_number_of_the_settings_is_a_constant() -> None:
    numbers = {
        f"{section}{field.encode_name}"
        for section, struct in (
            ("", DiagnosisSettings),
            ("weakEvidence.", WeakEvidence),
            ("recovery.", RecoveryPolicy),
            ("suppression.", SuppressionPolicy),
        )
        for field in fields(struct)
    } - {"enforce", "weakEvidence", "recovery", "suppression", "faultClasses"}
    assert numbers <= set(POLICY)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_each_constant_of_a_policy_changes_it(factor: float) -> None:
    policy = Policy(diagnosis=diagnosis_policy())
    for name, scale in POLICY.items():
        assert scale(policy.diagnosis, factor) != policy.diagnosis, name


def test_a_constant_of_a_module_is_changed_where_it_is_used_and_then_as_before() -> None:
    with scaled_planner(scaled_rule("shared_versions.MAX_FLEET_SHARE", 0.5)):
        assert shared_versions.MAX_FLEET_SHARE == _value("suspected_checks.MAX_FLEET_SHARE") == 0.4
    assert shared_versions.MAX_FLEET_SHARE == _value("suspected_checks.MAX_FLEET_SHARE") == 0.8


def test_names_are_unique() -> None:
    names = list(constants())
    assert len(names) == len(set(names))


def episode(rule: str, named: float | None) -> EpisodeResult:
    return EpisodeResult(
        rule=rule,
        kind="leaf dead",
        size_class=64,
        seed=1,
        attempt=0,
        nodes=60,
        score=Score(hours=2.0, named=(named,), faulty_in=3.0),
        parameters={},
        cpu=0.1,
    )


def test_the_table_names_what_changes() -> None:
    rows = [
        episode(PRESENT, 20.0),
        episode(scaled_rule("minNodes", 0.5), 20.0),
        episode(scaled_rule("minNodes", 2.0), None),
    ]
    assert list(table(["minNodes"], rows))[4:] == [
        "| `minNodes` | x 0.5 | 0 | no difference | - |",
        "| `minNodes` | x 2 | 1 | 0.000, -, 3.0 | leaf dead recall -1.00 |",
    ]

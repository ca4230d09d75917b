"""The policy file: its content, its errors, and its warnings."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodeguard.aggregator.policy.policy_file import policy_errors, read_policy
from nodeguard.aggregator.policy.schema import PolicySpec, json_schema
from nodeguard.config.amounts import format_duration, format_share, parse_duration, parse_share
from nodeguard.config.errors import ConfigError
from nodeguard.model.drain import DrainLimits, DrainMode, DrainPolicy, DrainRule, DrainWhen, UnknownHolders
from nodeguard.model.finding import Health
from nodeguard.model.policy import (
    Budget,
    CheckLimit,
    CheckOverride,
    GracePeriods,
    Hold,
    InjectionPolicy,
    MarkWrites,
    Mode,
    ModeRule,
    NodeLocation,
    Policy,
    Pool,
    Silence,
    SoakPeriod,
    StalePolicy,
    TopologyLabels,
    default_policy,
)
from tests.paths import ROOT
from tests.policies import FAULT_CLASSES, diagnosis_policy

EXAMPLE = files("nodeguard.aggregator.policy").joinpath("example.yaml").read_text("utf-8")
NOW = 1_800_000_000.0
CHECKS = {
    "gpu-lost": Health.FATAL,
    "gpu-xid-burst": Health.SUSPECT,
    "port-flap": Health.SUSPECT,
    "memory-low": Health.WARNING,
}


def write(folder: Path, text: str) -> Path:
    file = folder / "policy.yaml"
    file.write_text(text)
    return file


def refused(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read_policy(write(folder, text), CHECKS, NOW, FAULT_CLASSES)
    return str(caught.value).removeprefix(f"{folder}/")


def test_missing_fields_have_the_defaults(tmp_path: Path) -> None:
    assert read_policy(write(tmp_path, "{}"), CHECKS, NOW, FAULT_CLASSES) == (
        default_policy(FAULT_CLASSES),
        (),
    )


def test_the_example_is_the_default_and_has_no_warnings(tmp_path: Path) -> None:
    assert read_policy(write(tmp_path, EXAMPLE), CHECKS, NOW, FAULT_CLASSES) == (
        default_policy(FAULT_CLASSES),
        (),
    )


def test_setting_of_an_unknown_fault_class_is_refused(tmp_path: Path) -> None:
    text = "diagnosis:\n  faultClasses:\n    lnk: {share: 50%}\n"
    assert refused(tmp_path, text) == (
        "policy.yaml:3: lnk: 'lnk' is no fault class: name one of link, link-down, nvlink, power, rollout, silent, thermal"
    )


def test_the_example_shows_every_field() -> None:
    for field in PolicySpec.__struct_encode_fields__:
        assert re.search(rf"^{field}:", EXAMPLE, re.MULTILINE), field


def test_a_grace_period_may_be_zero(tmp_path: Path) -> None:
    policy, problems = read_policy(write(tmp_path, "gracePeriod: {quarantine: 0s}\n"), CHECKS, NOW, ())
    assert policy.grace == GracePeriods(0.0, 60.0)
    assert problems == ()


def uncommented(text: str) -> str:
    """Replace each empty list or mapping of the example by the rows in the comment before it."""
    lines: list[str] = []
    rows: list[str] = []
    for line in text.splitlines():
        if row := re.fullmatch(r" *#  ( *)((?:- |\w+: )[{\[].*)", line):
            rows.append(row[2])
        elif rows and (key := re.fullmatch(r"( *\w+:) (?:\[\]|\{\})", line)):
            lines += [key[1], *(f"      {row}" for row in rows)]
            rows = []
        else:
            lines.append(line)
    return "\n".join(lines)


def test_the_commented_rows_of_the_example_are_valid(tmp_path: Path) -> None:
    checks = {**CHECKS, "nvlink-down": Health.FATAL}
    policy, problems = read_policy(write(tmp_path, uncommented(EXAMPLE)), checks, NOW, FAULT_CLASSES)
    # The example has no drains, so that a rule of its own evicts nothing.
    assert [problem.field for problem in problems] == ["mode"]
    shown = (
        policy.modes,
        policy.pools,
        policy.budget.check_overrides,
        policy.holds,
        policy.silences,
        policy.topologies,
        policy.locations,
        policy.drain.rules,
    )
    assert [len(part) for part in shown] == [2, 1, 1, 3, 1, 2, 2, 2]


WHOLE = """
defaultMode: observe
modeRules:
- {check: gpu-lost, marks: [quarantine], mode: enforce}
- {checks: [gpu-*, port-*], mode: enforce}
pools:
- {name: training, labels: {example.com/pool: training, gpu: ""}, share: 7.5%}
- {name: rest}
budget:
  fleet: 4%
  fatalReserve: 0%
  pool: 12%
  domain: 100%
  suspect: 3%
  perCheck: {new: 2, within: 1h, active: 4}
  checkOverrides:
  - {check: gpu-lost, active: 40}
  - {checks: ["port-*"], new: 3, within: 30s}
gracePeriod: {quarantine: 1s, suspect: 2m}
soak: {initial: 1m, max: 1h, resetAfter: 7d}
markWith: {taint: false, cordon: true, condition: false, deviceTaint: false}
holds:
- {node: "login-*", labels: {rack: "12"}, reason: no GPUs}
- {checks: [port-flap]}
silences:
- {check: memory-low, until: 2027-01-31T18:00:00+01:00}
- {node: gpu-7, reason: loud}
staleNodes: {after: 2m, freezeAbove: 25%}
topologies: {rack: [row, rack], fabric: [example.com/leaf]}
nodeLocations: [{node: "gpu-r12-*", power: feed-a/r12, zone: hall-2}, {node: gpu-1, power: feed-b}]
injection: {allowed: true, checks: [gpu-lost, port-*]}
drain:
  mode: observe
  rules: [{check: gpu-lost, when: immediately}]
  unknownHolders: node
  finishWithin: 10m
  limits: {nodes: 2%, newPerHour: 3, perDomain: 4}
pause: true
"""


def test_every_field_is_converted(tmp_path: Path) -> None:
    policy, warnings = read_policy(write(tmp_path, WHOLE), CHECKS, NOW, FAULT_CLASSES)
    assert [warning.field for warning in warnings] == ["taint"]
    assert policy == (
        Policy(
            modes=(
                ModeRule(Mode.ENFORCE, check="gpu-lost", marks=("quarantine",)),
                ModeRule(Mode.ENFORCE, checks=("gpu-*", "port-*")),
            ),
            pools=(Pool("training", {"example.com/pool": "training", "gpu": ""}, 0.075), Pool("rest", {})),
            budget=Budget(
                fleet=0.04,
                reserve=0.0,
                pool=0.12,
                domain=1.0,
                suspect=0.03,
                check=CheckLimit(2, 3600.0, 4),
                check_overrides=(
                    CheckOverride(check="gpu-lost", active=40),
                    CheckOverride(checks=("port-*",), new=3, within=30.0),
                ),
            ),
            grace=GracePeriods(1.0, 120.0),
            soak=SoakPeriod(60.0, 3600.0, 604_800.0),
            marks=MarkWrites(taint=False, cordon=True, condition=False, device=False),
            holds=(Hold("login-*", {"rack": "12"}, reason="no GPUs"), Hold(checks=("port-flap",))),
            silences=(
                Silence(check="memory-low", until=datetime.fromtimestamp(1_801_414_800, UTC)),
                Silence(node="gpu-7", reason="loud"),
            ),
            stale=StalePolicy(120.0, 0.25),
            topologies=(
                TopologyLabels("fabric", ("example.com/leaf",)),
                TopologyLabels("rack", ("row", "rack")),
            ),
            locations=(
                NodeLocation("gpu-r12-*", {"power": "feed-a/r12", "zone": "hall-2"}),
                NodeLocation("gpu-1", {"power": "feed-b"}),
            ),
            diagnosis=diagnosis_policy(),
            pause=True,
            injection=InjectionPolicy(True, ("gpu-lost", "port-*")),
            drain=DrainPolicy(
                DrainMode.OBSERVE,
                (DrainRule(DrainWhen.IMMEDIATELY, check="gpu-lost"),),
                UnknownHolders.NODE,
                600.0,
                DrainLimits(0.02, 3, 4),
            ),
        )
    )


INVALID = {
    "defaultMode: enforced\n": "defaultMode: 'enforced' is not valid: use one of observe, enforce; did you mean enforce?",
    "defaultMode:\n": "defaultMode: nothing does not fit: write text",
    "modeRules: [{check: a, mode: enforce, marks: [quarantin]}]\n": "marks[0]: 'quarantin' is not valid: use one of quarantine, suspect; did you mean quarantine?",
    "modeRules: [{check: a, mode: enforce, marks: []}]\n": "marks: a list does not fit: write a list of length >= 1",
    "modeRules: [{check: a}]\n": "mode: is missing: add it",
    "modeRules: [{mode: enforce}]\n": "modeRules[0]: has no checks: add `check: gpu-lost` or `checks: [gpu-*]`",
    "modeRules: [{check: a, checks: [b], mode: enforce}]\n": "check: excludes `checks`: remove one of them",
    "modeRules: [{check: GPU lost, mode: enforce}]\n": "check: 'GPU lost' does not fit: write it like gpu-* or gpu-lost",
    "modeRules: [{check: [a], mode: enforce}]\n": "check: a list does not fit: write it like gpu-* or gpu-lost",
    "modeRule: []\n": "modeRule: is not known here: use one of defaultMode, modeRules, pools, budget, gracePeriod, soak, markWith, holds, silences, staleNodes, topologies, nodeLocations, diagnosis, injection, drain, pause, version; did you mean modeRules?",
    "budget: {fleet: 0.05}\n": "fleet: 0.05 has no unit: write it like 5% or 2.5%",
    "budget: {fleet: 5}\n": "fleet: 5 has no unit: write it like 5% or 2.5%",
    "budget: {fleet: 5 %}\n": "fleet: '5 %' does not fit: write it like 5% or 2.5%",
    'budget: {fleet: "5%\\n"}\n': "fleet: '5%\\n' does not fit: write it like 5% or 2.5%",
    "budget: {fleet: 0%}\n": "fleet: 0% is invalid: write more than 0%; to set no marks, use observe mode or `pause: true`",
    "budget: {domain: 101%}\n": "domain: 101% is more than all: write at most 100%",
    "budget: {fatalReserve: 100%}\n": "fatalReserve: 100% leaves nothing for suspect nodes: write less than 100%, such as 20%",
    "pools: [{name: a, share: 0.0%}]\n": "share: 0.0% is invalid: write more than 0%; to set no marks, use observe mode or `pause: true`",
    "staleNodes: {freezeAbove: 0%}\n": "freezeAbove: 0% is invalid: write more than 0%",
    "staleNodes: {after: 45}\n": "after: 45 has no unit: write it like 30s or 10m or 8h",
    "gracePeriod: {suspect: 0}\n": "suspect: 0 has no unit: write it like 5s or 1m or 0s",
    "gracePeriod: {suspect: 0m}\n": "suspect: '0m' does not fit: write it like 5s or 1m or 0s",
    "soak: {initial: 0s}\n": "initial: '0s' does not fit: write it like 30s or 10m or 8h",
    "soak: {resetAfter: 366d}\n": "resetAfter: 366d is longer than a year: write at most 365d",
    "budget: {checkOverrides: [{check: a, within: 9999h}]}\n": "within: 9999h is longer than a year: write at most 365d",
    "soak: {initial: 9h}\n": "initial: `max`, 8h, is less than `initial`, 9h: write `initial` no longer than `max`",
    "soak: {max: 1m}\n": "max: `max`, 1m, is less than `initial`, 10m: write `initial` no longer than `max`",
    "budget: {perCheck: {active: 3}}\n": "active: `active`, 3, is less than `new`, 5, which could never be used up: raise `active` to 5 or lower `new`",
    "budget: {checkOverrides: [{check: a, new: 16}]}\n": "new: `active`, 15, is less than `new`, 16, which could never be used up: raise `active` to 16 or lower `new`",
    "budget: {perCheck: {new: 0}}\n": "new: 0 does not fit: write a whole number >= 1",
    "pools: [{name: a, labels: {x: y}}, {name: a}]\n": "name: 'a' is on line 1 already: keep one of them",
    "pools: [{name: a, labels: {x: y}}, {name: b, labels: {x: y, z: z}}]\n": "name: 'b' has no nodes: 'a', an earlier pool, matches them all: move it before that pool, or remove it",
    "pools: [{name: A b}]\n": "name: 'A b' does not fit: write it like training or pool-1 (lower-case letters and digits, with single hyphens between them, at most 63 characters)",
    "pools: [{name: a, labels: {gpu: true}}]\n": "gpu: true is not text: put it in quotes, as labels are text",
    "pools: [{name: a, labels: {gpu: [1]}}]\n": "gpu: is not a label value: write one value as text",
    "pools: [{name: a, labels: {-gpu: a}}]\n": "-gpu: '-gpu' is not a valid label key: write it like rack or topology.kubernetes.io/zone",
    "pools: [{name: a, labels: {Example.com/gpu: a}}]\n": "Example.com/gpu: 'Example.com/gpu' is not a valid label key: write it like rack or topology.kubernetes.io/zone",
    "holds: [{labels: {gpu: a b}}]\n": "gpu: 'a b' is not a valid label value: write up to 63 letters, digits, '-', '_' and '.', a letter or digit first and last",
    "drain: {rules: [{when: immediately}]}\n": "rules[0]: has no checks: add `check: gpu-lost` or `checks: [gpu-*]`",
    "drain: {rules: [{check: a, when: immediately, after: 2h}]}\n": "after: has no effect with `when: immediately`: remove it, or write `when: deadline`",
    "drain: {rules: [{check: a, when: deadline, after: 2}]}\n": "after: 2 has no unit: write it like 30s or 10m or 8h",
    "drain: {rules: [{check: a, checks: [b], when: immediately}]}\n": "check: excludes `checks`: remove one of them",
    "drain: {rules: [{check: a, when: idle}]}\n": "when: 'idle' is not valid: use one of immediately, deadline, when-idle; did you mean when-idle?",
    "holds: [{reason: x}]\n": "holds[0]: holds nothing: add `node`, `labels` or `checks`",
    "holds: [{node: a, check: b}]\n": "check: excludes `node`: a hold is of nodes or of checks: write two holds",
    "holds: [{node: Gpu_1}]\n": "node: 'Gpu_1' does not fit: write it like gpu-7 or rack-12-*",
    "silences: [{until: tomorrow}]\n": "until: 'tomorrow' does not fit: write it like 2027-01-31T18:00:00Z or 2027-01-31T18:00:00+01:00",
    "silences: [{until: 2027-01-31T18:00:00}]\n": "until: '2027-01-31T18:00:00' does not fit: write it like 2027-01-31T18:00:00Z or 2027-01-31T18:00:00+01:00",
    "topologies: {fabrik: [a]}\n": "fabrik: is not known here: use one of fabric, nvlink, rack, power, zone; did you mean fabric?",
    "topologies: {rack: []}\n": "rack: a list does not fit: write a list of length >= 1",
    "topologies: {rack: [a b]}\n": "rack[0]: 'a b' does not fit: write it like topology.kubernetes.io/zone or rack",
    "topologies: {rack: [a, a]}\n": "rack[1]: 'a' is on line 1 already: keep one of them",
    "nodeLocations: 7\n": "nodeLocations: 7 does not fit: write it like racks.csv",
    "nodeLocations: [{rack: r1}]\n": "nodeLocations[0]: has no nodes: add `node: gpu-r12-*`, or `file: racks.csv`",
    "nodeLocations: [{node: a}]\n": "node: has no location: add one or more of fabric, nvlink, rack, power, zone",
    "nodeLocations: [{file: a.csv, node: a}]\n": "file: excludes `node`: write two rows",
    "nodeLocations: [{file: a.csv, rack: a}]\n": "file: excludes `rack`: write two rows",
    "nodeLocations: none.csv\n": "nodeLocations: 'none.csv' cannot be read: No such file or directory: put it beside policy.yaml, and check that it is readable",
    "nodeLocations: [{file: none.csv}]\n": "file: 'none.csv' cannot be read: No such file or directory: put it beside policy.yaml, and check that it is readable",
    "nodeLocations: [{node: a, rack: row 1}]\n": "rack: 'row 1' does not fit: write it like row-1/r12 or feed-a",
    "nodeLocations: [{node: a, rack: row-1/}]\n": "rack: 'row-1/' does not fit: write it like row-1/r12 or feed-a",
    "nodeLocations: [{node: a, rak: r1}]\n": "rak: is not known here: use one of file, node, fabric, nvlink, rack, power, zone; did you mean rack?",
    "nodeLocations: [{node: a, rack: r1}, {node: a, power: f, rack: r2}]\n": "rack: 'a' has one already, on line 1 of policy.yaml: keep one of them",
    "silences: [{node: *, check: a}]\n": "is not valid YAML: did not find expected alphabetic or numeric character: write the value out, in quotes where it begins with *, & or !",
    "\tpause: true\n": "is not valid YAML: found character that cannot start any token: indent with spaces, not with tabs",
    "silences:\n- node: *-7\n": "node: has an anchor, alias or tag: write the value out, in quotes where it begins with *, & or !",
    "markWith: {taint: 1}\n": "taint: 1 does not fit: write true or false",
    "injection: {allowed: maybe}\n": "allowed: 'maybe' does not fit: write true or false",
    "injection: {checks: []}\n": "checks: a list does not fit: write a list of length >= 1",
    "pause: yes\n": "pause: 'yes' does not fit: write true or false",
    f"modeRules: [{', '.join(['{check: a, mode: observe}'] * 101)}]\n": "modeRules: a list does not fit: write a list of length <= 100",
    "defaultMode: observe\nmode: enforce\n": "mode: is not known here: use one of defaultMode, modeRules, pools, budget, gracePeriod, soak, markWith, holds, silences, staleNodes, topologies, nodeLocations, diagnosis, injection, drain, pause, version; did you mean modeRules?",
    "[]\n": "a list does not fit: write a mapping",
    "": "is empty: write `name: value` lines",
    "# nothing\n": "is empty: write `name: value` lines",
}


@pytest.mark.parametrize("text", INVALID)
def test_an_invalid_file_is_refused_with_line_field_and_remedy(tmp_path: Path, text: str) -> None:
    line = 2 if text.startswith(("defaultMode: observe\nmode", "# nothing", "silences:\n")) else 1
    assert refused(tmp_path, text) == f"policy.yaml:{line}: {INVALID[text]}"


@pytest.mark.parametrize("text", INVALID)
def test_an_invalid_file_has_one_error(tmp_path: Path, text: str) -> None:
    """The field that is left out to find the other errors causes none itself."""
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    assert len(policy_errors(path, FAULT_CLASSES)) == 1


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_policy(tmp_path / "none.yaml", CHECKS, NOW, ())
    assert (
        str(caught.value)
        == f"{tmp_path}/none.yaml: cannot be read: No such file or directory: check that it is there and may be read"
    )


def test_the_published_schema_is_up_to_date() -> None:
    published = json.loads((ROOT / "docs" / "reference" / "policy.schema.json").read_text())
    assert published == json.loads(json.dumps(json_schema())), (
        "run `nodeguard policy schema > docs/reference/policy.schema.json`"
    )


@given(st.integers(1, 1_000_000))
def test_a_formatted_share_is_parsed_to_the_same_value(of_a_million: int) -> None:
    assert round(parse_share(format_share(of_a_million / 1_000_000)) * 1_000_000) == of_a_million


@given(st.integers(1, 365 * 86_400))
def test_a_formatted_duration_is_parsed_to_the_same_value(seconds: int) -> None:
    assert parse_duration(format_duration(float(seconds))) == seconds


WORDS = st.sampled_from(
    ["a", "*", "gpu-*", "5%", "0%", "10m", "enforce", "quarantine", "", "2027-01-31T18:00:00Z"]
)
SCALARS = st.one_of(
    WORDS, st.integers(), st.floats(allow_nan=False), st.booleans(), st.none(), st.text(max_size=4)
)


def names(schema: Any) -> list[str]:
    return sorted({name for part in schema["$defs"].values() for name in part.get("properties", {})})


NAMES = names(json_schema())
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(st.dictionaries(st.sampled_from(PolicySpec.__struct_fields__), ANYTHING, max_size=4))
def test_any_file_is_read_or_refused_in_one_line(tmp_path: Path, data: Any) -> None:
    try:
        policy, _ = read_policy(write(tmp_path, json.dumps(data)), CHECKS, NOW, ())
    except ConfigError as error:
        assert "\n" not in str(error)
        assert error.problem
        assert error.remedy
    else:
        assert 0 < policy.budget.fleet <= 1
        default = policy.budget.check
        overrides = [override.limit(default) for override in policy.budget.check_overrides]
        assert all(limit.active >= limit.new for limit in (default, *overrides))

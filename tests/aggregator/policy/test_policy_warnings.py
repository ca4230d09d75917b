"""The warnings about the settings of a policy file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nodeguard.aggregator.policy.policy_file import read_policy
from tests.aggregator.policy.test_policy_file import CHECKS, NOW, write
from tests.paths import ROOT
from tests.policies import FAULT_CLASSES


def warnings(folder: Path, text: str) -> list[str]:
    return [
        str(warning).removeprefix(f"{folder}/")
        for warning in read_policy(write(folder, text), CHECKS, NOW, FAULT_CLASSES).warnings
    ]


WARNINGS = {
    "defaultMode: enforce\n": "defaultMode: every check marks nodes from the start, also new checks of the next version: enforce the checks that have proven to be right",
    "modeRules: [{checks: [gpu-lost, '*'], mode: enforce}]\n": "checks: every check marks nodes from the start, also new checks of the next version: enforce the checks that have proven to be right",
    "budget: {fleet: 21%}\n": "fleet: a faulty check may take out 21% of the fleet: write at most 20%",
    "staleNodes: {freezeAbove: 51%}\n": "freezeAbove: new marks are set while up to 51% of the fleet are stale: write at most 50%",
    "staleNodes: {after: 29s}\n": "after: 29s is too short: agents send a heartbeat every 10s, and may be slow: write at least 30s",
    "{modeRules: [{check: gpu-lost, mode: enforce}], markWith: {taint: false}}\n": "markWith: without `taint` and `cordon` a mark keeps no work off a node: write `taint: true`, or use observe mode",
    "{modeRules: [{check: gpu-lost, mode: enforce}], markWith: {taint: false, cordon: true}}\n": "taint: without `taint` a suspect mark and the mark of a domain keep no work off a node: write `taint: true`",
    "modeRules: [{checks: [gpu-lost, fpga-*], mode: observe}]\n": "checks[1]: 'fpga-*' matches no check: see `nodeguard checks`; add a folder with your own checks by --checks",
    "budget: {checkOverrides: [{check: fpga, new: 1}]}\n": "check: 'fpga' matches no check: see `nodeguard checks`; add a folder with your own checks by --checks",
    "holds: [{check: fpga}]\n": "check: 'fpga' matches no check: see `nodeguard checks`; add a folder with your own checks by --checks",
    "silences: [{check: fpga}]\n": "check: 'fpga' matches no check: see `nodeguard checks`; add a folder with your own checks by --checks",
    "injection: {checks: [gpu-lost, fpga-*]}\n": "checks[1]: 'fpga-*' matches no check: see `nodeguard checks`; add a folder with your own checks by --checks",
    "diagnosis: {faultClasses: {link: {checks: [port-flap, prot-*]}}}\n": "checks[1]: 'prot-*' matches no check: see `nodeguard checks`; add a folder with your own checks by --checks",
    "modeRules: [{check: memory-*, mode: enforce}]\n": "check: enforces nothing: none of its checks is fatal or suspect: `quarantine` is for fatal checks, `suspect` for suspect ones: see `nodeguard checks`",
    "modeRules: [{check: port-flap, marks: [quarantine], mode: enforce}]\n": "check: enforces nothing: none of its checks is fatal: `quarantine` is for fatal checks, `suspect` for suspect ones: see `nodeguard checks`",
    "modeRules: [{check: gpu-lost, mode: enforce}, {check: '*', mode: observe}]\n": "check: has no effect: later rules match each of its checks, and the last match applies: move it to the end",
    "budget: {checkOverrides: [{check: port-*, new: 1}, {check: port-flap, new: 9}]}\n": "check: has no effect: earlier rows match each of its checks, and the first match applies: move it to the beginning",
    "silences: [{check: gpu-lost, until: 2027-01-15T08:00:00Z}]\n": "until: has expired: remove the silence, or extend it",
    "{topologies: {rack: [row]}, nodeLocations: [{node: a, rack: r1}]}\n": "rack: has no effect: `nodeLocations` define this topology: remove one of the two",
    "drain: {rules: [{check: gpu-lost, when: immediately}]}\n": "drain: no pod is evicted while `mode` is `disabled`: write `mode: observe`, or remove the rules",
    "drain: {mode: enforce}\n": "mode: evicts nothing: no rule is `immediately` or `deadline`: add a rule to `rules`",
    "drain: {mode: observe, rules: [{check: gpu-lost, when: immediately}]}\n": "mode: evicts nothing: the quarantine of none of its checks is enforced: enforce `quarantine` for these checks in `modeRules` first",
    "drain: {mode: enforce, rules: [{check: port-flap, when: immediately}]}\n": "check: evicts nothing: none of its checks is fatal, which a quarantine needs: name fatal checks: see `nodeguard checks`",
    "{modeRules: [{check: gpu-lost, mode: enforce}], drain: {mode: enforce, rules: [{check: '*', when: immediately}]}}\n": "check: every fatal check evicts pods, also new checks of the next version: name the checks that have proven to be right",
    "{modeRules: [{check: gpu-lost, mode: enforce}], drain: {mode: enforce, rules: [{check: gpu-lost, when: when-idle}, {check: gpu-*, when: immediately}]}}\n": "check: has no effect: later rules match each of its checks, and the last match applies: move it to the end",
    "drain: {mode: observe, rules: [{check: port-flap, when: deadline}]}\n": "check: evicts nothing: none of its checks is fatal, which a quarantine needs: name fatal checks: see `nodeguard checks`",
    "drain: {rules: [{check: fpga, when: when-idle}]}\n": "check: 'fpga' matches no check: see `nodeguard checks`; add a folder with your own checks by --checks",
    "silences: [{reason: quiet}]\n": "silences[0]: no incident or Event is ever written: add `check`, `node` or `until`",
}  # fmt: skip


@pytest.mark.parametrize("text", WARNINGS)
def test_a_questionable_setting_has_a_warning(tmp_path: Path, text: str) -> None:
    assert warnings(tmp_path, text) == [f"policy.yaml:1: {WARNINGS[text]}"]


def test_a_row_that_applies_to_a_part_of_its_matches_has_no_warning(tmp_path: Path) -> None:
    text = """
modeRules:
- {check: gpu-*, mode: enforce}
- {check: gpu-*, mode: observe, marks: [suspect]}
- {check: gpu-xid-burst, mode: enforce}
budget: {checkOverrides: [{check: gpu-lost, new: 1}, {check: gpu-*, new: 9}]}
"""
    assert warnings(tmp_path, text) == []


DRAIN = """
modeRules: [{check: gpu-lost, mode: enforce}]
drain: {mode: enforce, rules: [{check: "*", when: when-idle}, {check: gpu-lost, when: immediately}]}
"""


def test_a_drain_without_kubernetes_has_a_warning(tmp_path: Path) -> None:
    assert warnings(tmp_path, DRAIN) == []
    policy = read_policy(write(tmp_path, DRAIN), CHECKS, NOW, FAULT_CLASSES, has_pods=False)
    [warning] = policy.warnings
    assert (warning.line, warning.field) == (3, "mode")
    assert warning.problem == "has no effect: without Kubernetes there are no pods to evict"


def test_an_active_silence_has_no_warning(tmp_path: Path) -> None:
    assert warnings(tmp_path, "silences: [{until: 2027-01-15T08:00:01Z}]\n") == []


def test_the_examples_of_the_docs_are_valid(tmp_path: Path) -> None:
    blocks = re.findall(
        r"^```yaml\n(.*?)^```$",
        (ROOT / "docs" / "concepts" / "policy.md").read_text(),
        re.DOTALL | re.MULTILINE,
    )
    assert len(blocks) == 5
    for block in blocks:
        assert warnings(tmp_path, block) == []

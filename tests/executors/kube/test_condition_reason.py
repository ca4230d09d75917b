"""The reasons of the condition are a closed list that other programs match."""

from __future__ import annotations

import re

from msgspec.structs import replace

from nodeguard.catalog.catalogue import load_builtin
from nodeguard.executors.kube.condition_reason import _CLASSES, FAULT_REASONS, ReasonClass, reason_class
from nodeguard.kube.node_patch import HEALTHY_CONDITION
from nodeguard.model.finding import Action, Health
from nodeguard.model.policy import SoakPeriod
from nodeguard.pipeline.signal_registry import all_signals
from nodeguard.wire.report import ReportedFinding
from tests.docs.pages import blocks, text
from tests.executors.kube.test_condition import condition
from tests.fleet.scene import AT_ONCE, Fleet, finding, in_order

PAGE = "docs/tasks/repair-by-condition.md"

# A name that was once published is matched by programs of others: add names, never change or remove one.
PUBLISHED = """\
GPUFault GPUFaultMonitor GPUFaultRestartWorkload GPUFaultRestartService GPUFaultResetGPU GPUFaultRebootNode
GPUFaultReplaceComponent GPUFaultContactSupport GPUFaultRecovering
NVLinkFault NVLinkFaultMonitor NVLinkFaultRestartWorkload NVLinkFaultRestartService NVLinkFaultResetGPU
NVLinkFaultRebootNode NVLinkFaultReplaceComponent NVLinkFaultContactSupport NVLinkFaultRecovering
NetworkFault NetworkFaultMonitor NetworkFaultRestartWorkload NetworkFaultRestartService NetworkFaultResetGPU
NetworkFaultRebootNode NetworkFaultReplaceComponent NetworkFaultContactSupport NetworkFaultRecovering
NodeFault NodeFaultMonitor NodeFaultRestartWorkload NodeFaultRestartService NodeFaultResetGPU NodeFaultRebootNode
NodeFaultReplaceComponent NodeFaultContactSupport NodeFaultRecovering
"""

LOST = finding(action=Action.REBOOT_NODE, family="gpu-presence")
DOWN = finding("port-down", "port/mlx5_0/1", action=Action.RESTART_SERVICE, family="infiniband", age=30.0)
FULL = finding("fs-read-only", "fs:/var", action=Action.MONITOR, family="storage", age=90.0)


def test_the_published_names_are_the_list() -> None:
    assert [*FAULT_REASONS] == PUBLISHED.split()
    assert all(re.fullmatch(r"[A-Z][A-Za-z]{0,62}", name) for name in FAULT_REASONS)


def test_every_check_of_the_catalogue_has_a_class() -> None:
    """A new family needs an entry of its own; only a site's may have none."""
    families = {check.family for check in load_builtin(all_signals).checks}
    assert {family.partition("-")[0] for family in families} == {*_CLASSES}
    assert {*map(reason_class, families)} == {*ReasonClass}
    assert reason_class("of-a-site") == ReasonClass.NODE


def reason(fleet: Fleet, *findings: ReportedFinding, proven: bool = False) -> str:
    """Report findings, and return the reason that the Node then has."""
    targets = [fault.target for fault in (LOST, DOWN, FULL) if fault not in findings]
    checks = [fault.check for fault in (LOST, DOWN, FULL)]
    fleet.report(0, *findings, proven=(in_order(checks, targets),) if proven else ())
    fleet.carry_out()
    return condition(fleet).reason


def test_a_lesser_cause_does_not_change_the_reason() -> None:
    fleet = Fleet(2)
    assert reason(fleet, LOST) == "GPUFaultRebootNode"
    for findings in ((LOST, DOWN), (DOWN, FULL, LOST), (replace(LOST, message="another text"), FULL)):
        assert reason(fleet, *findings) == "GPUFaultRebootNode"


def test_the_reason_is_of_the_worst_cause_that_is_left() -> None:
    fleet = Fleet(2)
    assert reason(fleet, LOST, DOWN, FULL) == "GPUFaultRebootNode"
    assert reason(fleet, DOWN, FULL, proven=True) == "NetworkFaultRestartService"
    assert reason(fleet, FULL, proven=True) == "NodeFaultMonitor"


def test_of_two_causes_with_one_action_the_worse_mark_counts() -> None:
    fleet = Fleet(2)
    slow = replace(DOWN, health=Health.SUSPECT, action=Action.REBOOT_NODE, age=300.0)
    assert reason(fleet, slow) == "NetworkFaultRebootNode"
    assert reason(fleet, slow, LOST) == "GPUFaultRebootNode"


def test_the_reason_stays_without_a_result() -> None:
    fleet = Fleet(2, replace(AT_ONCE, soak=SoakPeriod()))
    assert reason(fleet, LOST, DOWN) == "GPUFaultRebootNode"
    assert reason(fleet, DOWN) == "GPUFaultRebootNode"
    assert reason(fleet) == "GPUFaultRebootNode"
    fleet.reports.clear()
    fleet.restart()
    fleet.carry_out()
    assert condition(fleet).reason == "GPUFaultRebootNode"
    assert reason(fleet, proven=True) == "GPUFaultRecovering"
    fleet.reports.clear()
    fleet.restart()
    fleet.carry_out()
    assert condition(fleet).reason == "GPUFaultRecovering"


def test_the_page_matches_the_condition_by_its_type() -> None:
    examples = [block.text for block in blocks(PAGE) if block.language]
    assert len(examples) == 3
    assert all(HEALTHY_CONDITION in example for example in examples)


def test_the_page_names_only_reasons_of_the_list() -> None:
    patterns = re.findall(r"`(\^[^`]*\$|\w+Fault\w*)`", text(PAGE))
    assert patterns
    for pattern in patterns:
        assert any(re.fullmatch(pattern, name) for name in FAULT_REASONS), pattern

"""Fleets for tests of the status page, as real planners with decisions."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from nodeguard.aggregator.pages.handler import PagesContext
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.fleet_api.service_state import ServiceState
from nodeguard.model.diagnosis import SuppressionPolicy
from nodeguard.model.finding import Action, Health
from nodeguard.model.mark import HOLD_ANNOTATION, MAINTENANCE_ANNOTATION
from nodeguard.model.policy import Budget, CheckLimit, GracePeriods, Mode, Policy, TopologyLabels
from nodeguard.wire.report import Inventory, ReportedEvidence, UnreadableTargets
from tests.fleet.leaves import down
from tests.fleet.scene import AT_ONCE, Fleet, finding
from tests.policies import diagnosis_policy

# Racks of a pod and nodes of a rack.
_RACKS, _NODES = 8, 8

TOPOLOGIES = (TopologyLabels("fabric", ("pod", "rack")), TopologyLabels("power", ("row",)))
ENFORCED = replace(
    AT_ONCE,
    topologies=TOPOLOGIES,
    grace=GracePeriods(0.0, 0.0, 60.0),
    diagnosis=diagnosis_policy(suppression=SuppressionPolicy(min_nodes=10_000), enforce=("fabric",)),
    budget=Budget(0.05, 0.2, 0.1, 0.25, 0.05, check=CheckLimit(3, 600.0, 15)),
)

INVENTORY = Inventory("570.133.20", "6.8.0-59", "dgx-h100")

CATALOGUE, _ = load_catalogue()
REMEDIES = {
    "gpu-lost": "Reboot the node; if the GPU is missing again, reseat or replace it.",
    "gpu-ecc": "Reset the GPU, and replace it if the errors return.",
    "port-down": "Check the cable and the switch port, then the adapter.",
    "gpu-hot": "Check the fans and the inlet temperature.",
}


def gpu_name(number: int) -> str:
    return f"gpu-h100-{number:04d}"


def plain_fleet(size: int, policy: Policy = ENFORCED) -> Fleet:
    """Healthy nodes of eight GPUs in racks of eight and pods of eight racks."""
    fleet = Fleet(0, policy)
    for number in range(size):
        rack = number // _NODES
        labels = {"pod": f"p{rack // _RACKS}", "rack": f"r{rack}", "row": f"row{number // 96}"}
        fleet.add(number, name=gpu_name(number), labels=labels)
        fleet.report(number, inventory=INVENTORY)
    fleet.after(5.0)
    fleet.carry_out()
    return fleet


def faulty_fleet(policy: Policy = ENFORCED) -> Fleet:
    """A bad night: a degraded leaf switch, GPUs that failed on several nodes, budgets used up, a stale node."""
    fleet = plain_fleet(320, policy)
    fleet.change(66, annotations={HOLD_ANNOTATION: "alice debugs NCCL, until Friday"})
    lost: dict[str, Any] = {
        "action": Action.REBOOT_NODE,
        "message": "GPU 0000:3b:00 fell off the bus (Xid 79); 7 of 8 GPUs are left",
        "evidence": (
            ReportedEvidence("kmsg", "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."),
        ),
        "age": 780.0,
    }
    for number in (100, 133, 201, 242, 290):
        fleet.report(number, finding("gpu-lost", **{**lost, "age": 780.0 + number}), inventory=INVENTORY)
    fleet.report(66, finding("gpu-lost", **lost), inventory=INVENTORY)
    ecc: dict[str, Any] = {
        "health": Health.SUSPECT,
        "message": "12 uncorrectable ECC errors in 10 min",
        "age": 3600.0,
    }
    fleet.report(150, finding("gpu-ecc", "gpu/0000:9a:00", **ecc), inventory=INVENTORY)
    hot: dict[str, Any] = {
        "health": Health.WARNING,
        "message": "the GPU throttles at 89 °C",
        "action": Action.MONITOR,
    }
    for number in (12, 13, 181):
        fleet.report(number, finding("gpu-hot", **hot), inventory=INVENTORY)
    fleet.after(5.0)
    fleet.carry_out()
    for number in range(16, 22):
        fleet.report(number, down())
    for _ in range(10):
        fleet.after(5.0)
        fleet.carry_out()
    for _ in range(60):
        fleet.after(10.0, quiet={"uid-255"})
    fleet.carry_out()
    return fleet


def observed_fleet() -> Fleet:
    """The same night in observe mode, as after the installation."""
    diagnosis = diagnosis_policy(suppression=SuppressionPolicy(min_nodes=10_000))
    return faulty_fleet(policy=replace(ENFORCED, mode=Mode.OBSERVE, diagnosis=diagnosis))


def starting_fleet() -> Fleet:
    """The first minute of an aggregator: a few of many agents have reported."""
    fleet = plain_fleet(320)
    reports = dict(list(fleet.reports.items())[:37])
    fleet.reports = reports
    fleet.restart()
    return fleet


def large_fleet(faults: int, leaf: int = 0) -> Fleet:
    """7,500 nodes with faults of four checks, each in another rack. leaf: nodes of a failed leaf switch."""
    fleet, size = plain_fleet(7500), 7500
    for number in range(512, 512 + leaf):
        fleet.report(number, down())
    for number in range(faults):
        check = ("gpu-lost", "port-down", "gpu-ecc", "gpu-hot")[number % 4]
        fleet.report(number * size // faults, finding(check, message=f"message of {check}"))
    for _ in range(5):
        fleet.after(10.0)
        fleet.carry_out()
    return fleet


HOSTILE = """<script>alert(1)</script><img src=x onerror=alert(1)>"'>&"""


def hostile_fleet() -> Fleet:
    """A fleet in which every text from outside is an attack."""
    fleet = plain_fleet(24)
    labels = {"pod": HOSTILE, "rack": HOSTILE, "row": HOSTILE}
    annotations = {HOLD_ANNOTATION: HOSTILE, MAINTENANCE_ANNOTATION: HOSTILE}
    fleet.change(3, name=HOSTILE, labels=labels, annotations=annotations)
    evil = finding(
        HOSTILE, HOSTILE, component=HOSTILE, message=HOSTILE, note=HOSTILE, targets=(HOSTILE,),
        evidence=(ReportedEvidence(HOSTILE, HOSTILE),),
    )  # fmt: skip
    fleet.report(3, evil, inventory=Inventory(HOSTILE, HOSTILE, HOSTILE))
    unread = (UnreadableTargets(HOSTILE, HOSTILE, HOSTILE, (HOSTILE,)),)
    report = replace(fleet.reports["uid-4"], unreadable=unread, sequence=2)
    fleet.planner.record_report("uid-4", report, fleet.now)
    fleet.after(5.0)
    fleet.plan()
    return fleet


def service_state(fleet: Fleet) -> ServiceState:
    """Return the state of a leader that has run for a day."""
    return ServiceState(
        "nodeguard-aggregator-6f7c9d-x2vbn", is_leader=True, started=fleet.mono - 100_000.0, plan_age=0.4,
        policy_file="/etc/nodeguard/policy.yaml", version="0.1.0",
    )  # fmt: skip


def pages_context(fleet: Fleet, history: str = "") -> PagesContext:
    return PagesContext(
        fleet.planner, lambda: service_state(fleet), lambda: fleet.now, REMEDIES, CATALOGUE, history
    )

from __future__ import annotations

from nodeguard.fleet.state.latest_report import TupleInterner, latest_report
from nodeguard.fleet.state.topology.versions import version_domains
from nodeguard.model.diagnosis import VERSION_TOPOLOGIES
from nodeguard.model.finding import Health
from nodeguard.model.instant import Instant
from nodeguard.wire.report import VERSION, Inventory, Report, ReportedComponent

GPUS = {
    "gpu/0000:1b:00": ReportedComponent(vbios="97.00.82.00.5F"),
    "gpu/0000:3b:00": ReportedComponent(vbios="97.00.82.00.5F"),
    "gpu/0000:5d:00": ReportedComponent(vbios="97.00.88.00.01", firmware="no port's"),
}
PORTS = {
    "port/mlx5_0/1": ReportedComponent(firmware="28.39.1002"),
    "port/mlx5_1/1": ReportedComponent(vbios="no GPU's"),
}


def of(inventory: Inventory, agent: str = "", catalogue: str = "") -> tuple[str, ...]:
    report = Report(
        version=VERSION, node="n", boot_id="b", sequence=1, health=Health.OK, inventory=inventory, agent=agent,
        catalogue=catalogue,
    )  # fmt: skip
    return version_domains(latest_report(report, Instant(1e9, 1.0, "b"), TupleInterner()))


def test_a_node_is_in_a_domain_of_each_version_that_it_or_one_of_its_parts_runs() -> None:
    found = of(Inventory("580.95.05", "6.8.0-60-generic", "", {**GPUS, **PORTS}), "0.2.0", "c0ffee")
    assert found == (
        "driver/580.95.05", "vbios/97.00.82.00.5F", "vbios/97.00.88.00.01", "kernel/6.8.0-60-generic",
        "firmware/28.39.1002", "agent/0.2.0", "catalogue/c0ffee",
    )  # fmt: skip
    assert {domain.partition("/")[0] for domain in found} == set(VERSION_TOPOLOGIES)


def test_what_is_not_known_is_no_domain() -> None:
    assert of(Inventory()) == ()


def test_a_version_is_one_step() -> None:
    assert of(Inventory(driver="580/beta")) == ("driver/580_beta",)

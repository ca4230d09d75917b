"""The socket of an aggregator with the fleet of fleet_commands.py, and a large fleet with many faults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nodeguard.model.diagnosis import SuppressionPolicy
from nodeguard.model.finding import Health
from nodeguard.model.mark import HOLD_ANNOTATION, MAINTENANCE_ANNOTATION
from nodeguard.model.policy import Mode, Policy, Pool, TopologyLabels
from tests.aggregator.api.service import running_api
from tests.cli.fleet_commands import ACTIONS, FLEET
from tests.fleet.scene import Fleet, finding
from tests.policies import diagnosis_policy


@pytest.fixture(scope="module")
def fleet_socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The socket of an aggregator with an unhealthy node."""
    with running_api(tmp_path_factory.mktemp("run"), FLEET, ACTIONS) as address:
        yield address


@pytest.fixture
def fleet_commands(fleet_socket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands query this aggregator, in 100 columns."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NODEGUARD_AGGREGATOR_SOCKET", fleet_socket)
    ACTIONS.calls.clear()
    ACTIONS.error = ""
    ACTIONS.decisions.clear()
    ACTIONS.answers.clear()


@pytest.fixture(scope="session")
def storm() -> Fleet:
    """A fleet of 7,500 nodes: a switch takes the ports of 412 down, some GPUs are lost."""
    policy = Policy(
        mode=Mode.ENFORCE,
        pools=(Pool("training", {"pool": "a"}),),
        topologies=(TopologyLabels("rack", ("rack",)),),
        diagnosis=diagnosis_policy(suppression=SuppressionPolicy(min_nodes=10_000)),
    )
    fleet = Fleet(7500, policy)
    fleet.report(2, finding("gpu-ecc", "gpu/0000:3c:00", message="12 uncorrectable errors in SRAM"))
    fleet.after(10.0)
    fleet.carry_out()
    fleet.after(700.0)
    for number in range(100, 512):
        fleet.report(
            number,
            finding("port-down", "port/mlx5_0/1", family="port", message="port mlx5_0/1 is down: polling"),
        )
    for number in (0, 1, 2, 3, 7):
        fleet.report(number, finding(message="GPU 0000:3b:00 has fallen off the bus: Xid 79"))
    fleet.report(11, finding("gpu-hot", health=Health.SUSPECT, message="91 °C, slowed by hardware"))
    fleet.change(7, annotations={HOLD_ANNOTATION: "alice debugs it"})
    fleet.change(8, annotations={MAINTENANCE_ANNOTATION: "rack move"})
    fleet.after(70.0)
    fleet.carry_out()
    return fleet

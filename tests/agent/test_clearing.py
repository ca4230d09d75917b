"""Clears by operators: on the real catalogue, over restarts of the agent, and of the node's own inventory."""

from __future__ import annotations

import pytest

from nodeguard.agent.state import capture_state, decode_state, encode_state, resume_state
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.derive.derive import PlatformHints
from nodeguard.judge.clear import ClearRequest
from nodeguard.model.finding import Verdict
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Observation, Reading
from nodeguard.model.signal import Scalar
from nodeguard.model.target import NODE
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.sources.machine import LaneHangs
from tests.derive.readings import GPUS, observe, xid

GPU = GPUS[0]
UP: dict[str, Scalar] = {
    "port.up": True,
    "port.state": "ACTIVE",
    "port.phys_state": "LinkUp",
    "port.rate": 400,
}
DOWN: dict[str, Scalar] = {**UP, "port.up": False, "port.state": "DOWN", "port.phys_state": "Polling"}
PORT = "port/mlx5_0/1"


class Node:
    """A node, its agent restarted whenever `restart` is called."""

    def __init__(self, platform: str = "") -> None:
        self.site = PlatformHints(platform)
        self.judgement = Pipeline(*load_catalogue(), self.site)
        self.at = 1_000_000.0

    def now(self) -> Instant:
        return Instant(1e9 + self.at, self.at, "boot")

    def round(self, *observations: Observation, later: float = 70.0, empty: tuple[str, ...] = ()) -> Verdict:
        """Return the verdict after a number of seconds with two readings a minute."""
        names = dict.fromkeys((*empty, *(observation.source for observation in observations)))
        for step in (0.0, later):
            self.at += step
            readings = [
                Reading(
                    name,
                    self.at,
                    tuple(observation for observation in observations if observation.source == name),
                )
                for name in names
            ]
            if step:
                readings = [reading for reading in readings if reading.source != "kmsg"]
            verdict = self.judgement.evaluate(readings, self.now())
        return verdict

    def restart(self, *, rereads: bool = False) -> None:
        """Restart the agent; if it rereads, only with the operators' clears."""
        memory = decode_state(encode_state(capture_state(self.judgement.state, self.now(), LaneHangs())))
        if rereads:
            # The state is from a later time of this boot: only operators' clears are used.
            memory, _ = resume_state(memory, Instant(1e9, self.at - 1.0, "boot"))
        self.judgement = Pipeline(*load_catalogue(), self.site, state=memory.pipeline)

    def clears(self, check: str, slot: str = NODE) -> str:
        """Clear a finding as an operator. Return why it was not cleared, empty if it was."""
        return self.judgement.clear(ClearRequest(check, slot, "", "ann"), self.now()).reason


def checks(verdict: Verdict) -> set[str]:
    return {finding.check for finding in verdict.findings}


def log(*codes: int, at: float) -> Observation:
    return Observation("kmsg", GPU, events=tuple(xid(code, at=at) for code in codes))


def gpus(number: int) -> list[Observation]:
    return [
        observe("nvml", NODE, {"nvml.ready": True}),
        *(observe("nvml", slot, {"gpu.name": "NVIDIA H100 80GB HBM3"}) for slot in GPUS[:number]),
    ]


@pytest.mark.parametrize("rereads", [False, True])
def test_a_clear_survives_a_restart(rereads: bool) -> None:
    node = Node()
    line = log(110, 48, at=node.at - 100)
    assert "gpu-security-fault" in checks(node.round(line))
    assert node.clears("gpu-security-fault", GPU) == ""
    assert "gpu-security-fault" not in checks(node.round())
    node.restart(rereads=rereads)
    node.at += 30.0
    after = node.round(*([line] if rereads else []), empty=("kmsg",))
    assert checks(after) == {"gpu-ecc-uncorrectable"}, "the other finding was not cleared"
    [past] = (finding for finding in after.informational if finding.check == "gpu-security-fault")
    assert past.message.endswith("; cleared by ann")
    assert "gpu-security-fault" in checks(node.round(log(110, at=node.at)))


def test_a_removed_gpu_is_a_finding_until_an_operator_clears_it() -> None:
    node = Node()
    node.round(*gpus(4))
    assert "gpu-count" in checks(node.round(*gpus(3)))
    clearing = node.judgement.clear(ClearRequest("gpu-count", NODE, "", "ann"), node.now())
    assert clearing.message == "gpu-count on node is cleared: the present hardware is now the reference"
    after = node.round(*gpus(3))
    assert "gpu-count" not in checks(after)
    [past] = (finding for finding in after.informational if finding.check == "gpu-count")
    assert past.message.endswith("; cleared by ann")
    node.restart()
    assert "gpu-count" not in checks(node.round(*gpus(3)))
    assert "gpu-count" in checks(node.round(*gpus(2))), "what is there now is the new reference"


def test_a_returned_gpu_raises_the_reference_again() -> None:
    node = Node()
    node.round(*gpus(4))
    node.round(*gpus(3))
    assert node.clears("gpu-count") == ""
    node.round(*gpus(4))
    assert "gpu-count" in checks(node.round(*gpus(3)))


def test_the_inventory_of_a_platform_cannot_be_cleared() -> None:
    node = Node("dgx-h100")
    node.round(*gpus(4))
    assert "gpu-count" in checks(node.round(*gpus(3)))
    clearing = node.judgement.clear(ClearRequest("gpu-count", NODE, "", "ann"), node.now())
    assert clearing.reason == "holds"
    assert "gpu-count" in checks(node.round(*gpus(3)))
    assert (
        decode_state(encode_state(capture_state(node.judgement.state, node.now(), LaneHangs())))
        .pipeline.derived.best[NODE]
        .values["gpu.count"]
        == 4
    )


def test_a_port_that_is_down_on_purpose_is_cleared() -> None:
    node = Node()
    node.round(observe("infiniband", PORT, UP))
    assert "port-down" in checks(node.round(observe("infiniband", PORT, DOWN)))
    assert node.clears("port-down", PORT) == ""
    assert checks(node.round(observe("infiniband", PORT, DOWN))) == set()
    node.round(observe("infiniband", PORT, UP))
    assert "port-down" in checks(node.round(observe("infiniband", PORT, DOWN))), "it was up since"


def test_a_port_of_a_removed_adapter_is_cleared() -> None:
    node = Node()
    other = observe("infiniband", "port/mlx5_9/1", UP)
    node.round(other, observe("infiniband", PORT, UP))
    assert "port-count" in checks(node.round(other))
    assert node.clears("port-count") == ""
    assert checks(node.round(other)) == set()


def test_missing_links_are_cleared() -> None:
    def links(active: int) -> list[Observation]:
        return [
            observe("nvml", GPU, {"gpu.nvlink.active": active}),
            *(observe("nvml", f"{GPU}/nvlink/{at}", {"nvlink.active": at < active}) for at in range(4)),
        ]

    node = Node()
    node.round(*links(4))
    verdict = node.round(*links(2))
    assert [(finding.check, finding.target) for finding in verdict.findings] == [("nvlink-down", GPU)]
    assert node.clears("nvlink-down", GPU) == ""
    assert checks(node.round(*links(2))) == set()


def test_a_finding_without_inventory_is_not_cleared_while_it_is_active() -> None:
    node = Node()
    refused: dict[str, Scalar] = {"gpu.error": "RESET_REQUIRED"}
    assert "gpu-reset-required" in checks(node.round(observe("nvml", GPU, refused)))
    assert node.clears("gpu-reset-required", GPU) == "holds"
    assert "gpu-reset-required" in checks(node.round(observe("nvml", GPU, refused)))

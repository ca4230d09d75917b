"""What people clear, on the real catalogue, over restarts of the agent, and of the node's own inventory."""

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
from tests.derive.look import GPUS, seen, xid

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
        """The verdict of what is read for so many seconds, twice a minute."""
        names = dict.fromkeys((*empty, *(one.source for one in observations)))
        for step in (0.0, later):
            self.at += step
            readings = [
                Reading(name, self.at, tuple(one for one in observations if one.source == name))
                for name in names
            ]
            if step:
                readings = [one for one in readings if one.source != "kmsg"]
            verdict = self.judgement.evaluate(readings, self.now())
        return verdict

    def restart(self, *, rereads: bool = False) -> None:
        """Ends the agent and starts it again; where it rereads, with nothing but what people cleared."""
        memory = decode_state(encode_state(capture_state(self.judgement.state, self.now(), LaneHangs())))
        if rereads:
            # Written at a later moment of this boot than it is now: only people's words are of any use.
            memory, _ = resume_state(memory, Instant(1e9, self.at - 1.0, "boot"))
        self.judgement = Pipeline(*load_catalogue(), self.site, state=memory.pipeline)

    def clears(self, check: str, slot: str = NODE, part: str = "") -> str:
        """A person clears a finding; why nothing was cleared, empty where something was."""
        return self.judgement.clear(ClearRequest(check, slot, part, "ann"), self.now()).reason


def found(verdict: Verdict) -> set[str]:
    return {one.check for one in verdict.findings}


def log(*codes: int, at: float) -> Observation:
    return Observation("kmsg", GPU, events=tuple(xid(code, at=at) for code in codes))


def gpus(number: int) -> list[Observation]:
    return [
        seen("nvml", NODE, {"nvml.ready": True}),
        *(seen("nvml", slot, {"gpu.name": "NVIDIA H100 80GB HBM3"}) for slot in GPUS[:number]),
    ]


@pytest.mark.parametrize("rereads", [False, True])
def test_cleared_by_a_person_and_agent_restarted(rereads: bool) -> None:
    node = Node()
    line = log(110, 48, at=node.at - 100)
    assert "gpu-security-fault" in found(node.round(line))
    assert node.clears("gpu-security-fault", GPU) == ""
    assert "gpu-security-fault" not in found(node.round())
    node.restart(rereads=rereads)
    node.at += 30.0
    after = node.round(*([line] if rereads else []), empty=("kmsg",))
    assert found(after) == {"gpu-ecc-uncorrectable"}, "nobody cleared the other one"
    [past] = (one for one in after.informational if one.check == "gpu-security-fault")
    assert past.message.endswith("; cleared by ann")
    assert "gpu-security-fault" in found(node.round(log(110, at=node.at)))


def test_a_gpu_that_was_taken_out_for_good_is_missed_until_a_person_says_so() -> None:
    node = Node()
    node.round(*gpus(4))
    assert "gpu-count" in found(node.round(*gpus(3)))
    clearing = node.judgement.clear(ClearRequest("gpu-count", NODE, "", "ann"), node.now())
    assert clearing.message == "gpu-count on node is cleared: the present hardware is now the reference"
    after = node.round(*gpus(3))
    assert "gpu-count" not in found(after)
    [past] = (one for one in after.informational if one.check == "gpu-count")
    assert past.message.endswith("; cleared by ann")
    node.restart()
    assert "gpu-count" not in found(node.round(*gpus(3)))
    assert "gpu-count" in found(node.round(*gpus(2))), "what is there now is the new reference"


def test_what_was_taken_out_and_comes_back_raises_the_reference_again() -> None:
    node = Node()
    node.round(*gpus(4))
    node.round(*gpus(3))
    assert node.clears("gpu-count") == ""
    node.round(*gpus(4))
    assert "gpu-count" in found(node.round(*gpus(3)))


def test_a_platform_that_has_more_is_not_argued_with() -> None:
    node = Node("dgx-h100")
    node.round(*gpus(4))
    assert "gpu-count" in found(node.round(*gpus(3)))
    clearing = node.judgement.clear(ClearRequest("gpu-count", NODE, "", "ann"), node.now())
    assert clearing.reason == "holds"
    assert "gpu-count" in found(node.round(*gpus(3)))
    assert (
        decode_state(encode_state(capture_state(node.judgement.state, node.now(), LaneHangs())))
        .pipeline.derived.best[NODE]
        .values["gpu.count"]
        == 4
    )


def test_a_port_that_nobody_wants_up_any_more() -> None:
    node = Node()
    node.round(seen("infiniband", PORT, UP))
    assert "port-down" in found(node.round(seen("infiniband", PORT, DOWN)))
    assert node.clears("port-down", PORT) == ""
    assert found(node.round(seen("infiniband", PORT, DOWN))) == set()
    node.round(seen("infiniband", PORT, UP))
    assert "port-down" in found(node.round(seen("infiniband", PORT, DOWN))), "it was up since"


def test_a_port_that_went_with_its_adapter() -> None:
    node = Node()
    node.round(seen("infiniband", NODE, {"rdma.port_count": 2}), seen("infiniband", PORT, UP))
    assert "port-count" in found(node.round(seen("infiniband", NODE, {"rdma.port_count": 1})))
    assert node.clears("port-count") == ""
    assert found(node.round(seen("infiniband", NODE, {"rdma.port_count": 1}))) == set()


def test_links_that_a_board_has_not_any_more() -> None:
    def links(active: int) -> list[Observation]:
        return [
            seen("nvml", GPU, {"gpu.nvlink.active": active}),
            *(seen("nvml", f"{GPU}/nvlink/{at}", {"nvlink.active": at < active}) for at in range(4)),
        ]

    node = Node()
    node.round(*links(4))
    verdict = node.round(*links(2))
    assert [(one.check, one.target) for one in verdict.findings] == [("nvlink-down", GPU)]
    assert node.clears("nvlink-down", GPU) == ""
    assert found(node.round(*links(2))) == set()


def test_a_reading_that_is_no_matter_of_the_inventory_is_not_cleared_away() -> None:
    node = Node()
    refused: dict[str, Scalar] = {"gpu.error": "RESET_REQUIRED"}
    assert "gpu-reset-required" in found(node.round(seen("nvml", GPU, refused)))
    assert node.clears("gpu-reset-required", GPU) == "holds"
    assert "gpu-reset-required" in found(node.round(seen("nvml", GPU, refused)))

"""What a node is held for over a restart of the agent, whatever happened to the machine in the meantime."""

from __future__ import annotations

import pytest

from nodeguard.agent.judgement import Judgement
from nodeguard.agent.memory import Memory, decoded, encoded, resumed
from nodeguard.cli.knowledge import knowledge
from nodeguard.derive.derive import Site
from nodeguard.model.finding import Finding, Health, Verdict
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Event, Observation, Part, Reading
from nodeguard.model.signal import Scalar
from nodeguard.model.slot import NODE
from nodeguard.sources.machine import Hangs
from tests.derive.look import GPUS, xid

BOOTED = 1e9
DAY = 86_400.0
GPU, OTHER = GPUS[:2]
UNCORRECTABLE, REMAP_FAILED, RISEN = (
    "gpu-ecc-uncorrectable",
    "gpu-row-remap-failed",
    "gpu-ecc-uncorrected-count",
)
RESET = Event("gpu.reset", 0.0, "nvidia 0000:1b:00.0: reset done")
LOADED = Event("driver.load", 0.0, "NVRM: loading NVIDIA UNIX x86_64 Kernel Module")


class Node:
    """A node with two GPUs, its agent restarted whenever `down` is passed."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.judgement = Judgement(*knowledge(), Site(), memory=self.memory)

    def round(
        self,
        at: float,
        *events: Event,
        errors: int = 0,
        part: str = "GPU-1",
        epoch: str = "",
        boot: str = "boot",
        booted: float = BOOTED,
    ) -> Verdict:
        """A round at so many seconds since boot; events happen on the first GPU, or on the node."""
        signals: dict[str, Scalar] = {"gpu.ecc.uncorrected": errors}
        gpus = (
            Observation("nvml", GPU, signals=signals, part=Part(part), epoch=epoch),
            Observation("nvml", OTHER, signals={"gpu.ecc.uncorrected": 0}, part=Part("GPU-2")),
        )
        said = [Event(one.signal, one.at or at, one.text, one.fields) for one in events]
        logged = tuple(
            Observation("kmsg", NODE if one.signal == LOADED.signal else GPU, events=(one,)) for one in said
        )
        now = Instant(booted + at, at, boot)
        verdict = self.judgement.judge([Reading("nvml", at, gpus), Reading("kmsg", at, logged)], now)
        self.memory = decoded(encoded(self.judgement.memory(now, Hangs())))
        return verdict

    def down(self, now: Instant | None = None) -> None:
        """The agent ends and starts again."""
        memory = self.memory
        if now is not None:
            memory, _ = resumed(memory, now)
        self.judgement = Judgement(*knowledge(), Site(), memory=memory)


def found(verdict: Verdict) -> dict[str, Finding]:
    return {one.check: one for one in verdict.findings}


def times(verdict: Verdict, check: str) -> list[int]:
    return [seen.count for seen in found(verdict)[check].evidence]


def test_restart_keeps_what_is_held_and_since_when_and_counts_nothing_twice() -> None:
    node = Node()
    before = node.round(100.0, xid(48, at=90.0), xid(48, at=95.0))
    node.down()
    after = node.round(110.0)
    assert found(before).keys() == found(after).keys() == {UNCORRECTABLE}
    assert found(before)[UNCORRECTABLE].since == found(after)[UNCORRECTABLE].since
    assert times(before, UNCORRECTABLE) == times(after, UNCORRECTABLE) == [2]


def test_a_counter_that_rose_while_the_agent_was_down_has_risen() -> None:
    node = Node()
    node.round(100.0, errors=3)
    node.down()
    assert RISEN in found(node.round(200.0, errors=4))


def test_a_counter_that_rose_while_the_agent_was_long_gone_is_not_placed_in_time() -> None:
    node = Node()
    node.round(100.0, errors=3)
    node.down()
    assert RISEN not in found(node.round(100.0 + DAY, errors=4))


@pytest.mark.parametrize("sign", [RESET, LOADED], ids=["GPU reset", "driver reload"])
def test_what_clears_an_event_does_so_whether_the_agent_ran_or_not(sign: Event) -> None:
    for ran in (True, False):
        node = Node()
        node.round(100.0, xid(48, at=90.0))
        node.down()
        if ran:
            assert UNCORRECTABLE in found(node.round(110.0))
            assert UNCORRECTABLE not in found(node.round(120.0, sign))
            node.down()
        assert UNCORRECTABLE not in found(node.round(130.0, *([] if ran else [sign])))


def test_what_was_cleared_does_not_come_back_with_a_restart() -> None:
    node = Node()
    node.round(100.0, xid(48, at=90.0), RESET)
    node.down()
    assert found(node.round(110.0)) == {}


def test_a_reboot_clears_what_it_clears_and_the_rest_stands() -> None:
    node = Node()
    assert found(node.round(100.0, xid(48, at=90.0), xid(64, at=90.0))).keys() >= {UNCORRECTABLE}
    node.down()
    after = node.round(20.0, boot="next", booted=BOOTED + 300)
    assert found(after).keys() == {REMAP_FAILED}
    node.down()
    again = node.round(30.0, boot="next", booted=BOOTED + 300)
    assert found(again).keys() == {REMAP_FAILED}
    assert times(again, REMAP_FAILED) == [1]


def test_counters_of_the_boot_before_are_no_baseline() -> None:
    node = Node()
    node.round(100.0, errors=3)
    node.down()
    assert found(node.round(20.0, errors=5, boot="next")) == {}


def test_a_part_replaced_while_the_machine_was_off_ends_what_only_that_ends() -> None:
    node = Node()
    assert REMAP_FAILED in found(node.round(100.0, xid(64, at=90.0)))
    node.down()
    after = node.round(20.0, part="GPU-9", boot="next")
    assert found(after) == {}
    node.down()
    assert found(node.round(30.0, part="GPU-9", boot="next")) == {}


def test_another_part_s_counter_is_no_rise() -> None:
    node = Node()
    node.round(100.0, errors=1)
    node.down()
    assert found(node.round(110.0, errors=7, part="GPU-9")) == {}


def test_a_mode_changed_while_the_agent_was_down_begins_counters_anew() -> None:
    node = Node()
    node.round(100.0, errors=1)
    node.down()
    assert found(node.round(110.0, errors=7, epoch="mig")) == {}
    node.down()
    assert RISEN in found(node.round(120.0, errors=8, epoch="mig"))


@pytest.mark.parametrize("jump", [-3_600.0, 3_600.0, -40 * 365 * DAY])
def test_a_clock_that_is_set_moves_the_dates_and_nothing_else(jump: float) -> None:
    node = Node()
    before = found(node.round(100.0, xid(48, at=90.0), errors=1))
    node.down(Instant(BOOTED + jump + 110.0, 110.0, "boot"))
    after = found(node.round(110.0, errors=1, booted=BOOTED + jump))
    assert after.keys() == before.keys() == {UNCORRECTABLE}
    assert after[UNCORRECTABLE].since == before[UNCORRECTABLE].since + jump
    assert after[UNCORRECTABLE].health == before[UNCORRECTABLE].health


def test_a_suspended_machine_has_not_aged() -> None:
    """Seconds since boot stand still meanwhile, and the wall clock comes out days later."""
    node = Node()
    node.round(100.0, xid(48, at=90.0), errors=1)
    node.down(Instant(BOOTED + 3 * DAY + 105.0, 105.0, "boot"))
    after = node.round(105.0, errors=2, booted=BOOTED + 3 * DAY)
    assert found(after)[UNCORRECTABLE].health == Health.FATAL
    assert times(after, UNCORRECTABLE)[0] == 1


@pytest.mark.parametrize("restarts", [False, True])
def test_first_install_on_a_node_that_has_been_up_for_40_days(restarts: bool) -> None:
    node = Node()
    first = node.round(40 * DAY, xid(48, at=DAY))
    assert [one.health for one in first.findings] == [Health.WARNING]
    assert "nothing corroborates it" in found(first)[UNCORRECTABLE].note
    if restarts:
        node.down()
    assert node.round(40 * DAY + 10).health == Health.WARNING
    assert node.round(40 * DAY + 20, xid(48, at=40 * DAY + 15)).health == Health.FATAL


def test_an_event_of_a_moment_before_the_machine_was_set_back_is_read_again_from_its_log() -> None:
    node = Node()
    node.round(100.0, xid(48, at=20.0))
    node.down(Instant(BOOTED + 30.0, 30.0, "boot"))
    assert times(node.round(30.0, xid(48, at=20.0)), UNCORRECTABLE) == [1]

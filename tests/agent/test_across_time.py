"""What a node is held for over a restart of the agent, whatever happened to the machine in the meantime."""

from __future__ import annotations

import pytest

from nodeguard.agent.state import AgentState, capture_state, decode_state, encode_state, resume_state
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.derive.derive import PlatformHints
from nodeguard.model.finding import Finding, Health, Verdict
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Component, Event, Observation, Reading
from nodeguard.model.signal import Scalar
from nodeguard.model.target import NODE
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.sources.machine import LaneHangs
from tests.derive.look import GPUS, xid

BOOTED = 1e9
DAY = 86_400.0
GPU, OTHER = GPUS[:2]
UNCORRECTABLE, REMAP_FAILED, RISEN = (
    "gpu-ecc-uncorrectable",
    "gpu-row-remap-failed",
    "gpu-pcie-replays",
)
RESET = Event("gpu.reset", 0.0, "nvidia 0000:1b:00.0: reset done")
LOADED = Event("driver.load", 0.0, "NVRM: loading NVIDIA UNIX x86_64 Kernel Module")


class Node:
    """A node with two GPUs, its agent restarted whenever `down` is passed."""

    def __init__(self) -> None:
        self.memory = AgentState()
        self.judgement = Pipeline(*load_catalogue(), PlatformHints(), state=self.memory.pipeline)

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
        signals: dict[str, Scalar] = {"gpu.pcie.replay_rollovers": errors}
        gpus = (
            Observation("nvml", GPU, signals=signals, component=Component(part), epoch=epoch),
            Observation("nvml", OTHER, signals={"gpu.ecc.uncorrected": 0}, component=Component("GPU-2")),
        )
        said = [Event(one.signal, one.at or at, one.text, one.fields) for one in events]
        logged = tuple(
            Observation("kmsg", NODE if one.signal == LOADED.signal else GPU, events=(one,)) for one in said
        )
        now = Instant(booted + at, at, boot)
        verdict = self.judgement.evaluate([Reading("nvml", at, gpus), Reading("kmsg", at, logged)], now)
        self.memory = decode_state(encode_state(capture_state(self.judgement.state, now, LaneHangs())))
        return verdict

    def down(self, now: Instant | None = None) -> None:
        """The agent ends and starts again."""
        memory = self.memory
        if now is not None:
            memory, _ = resume_state(memory, now)
        self.judgement = Pipeline(*load_catalogue(), PlatformHints(), state=memory.pipeline)


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


def test_a_driver_that_was_loaded_anew_begins_counters_anew() -> None:
    node = Node()
    node.round(100.0, errors=3, epoch="load 1")
    assert found(node.round(110.0, LOADED, errors=5, epoch="load 2")) == {}
    assert RISEN in found(node.round(120.0, errors=6, epoch="load 2"))


def test_a_part_replaced_while_the_agent_runs_ends_what_is_said_of_the_old_one() -> None:
    node = Node()
    assert REMAP_FAILED in found(node.round(100.0, xid(64, at=90.0), errors=1))
    assert found(node.round(110.0, part="GPU-9", errors=7)) == {}
    assert RISEN in found(node.round(120.0, part="GPU-9", errors=8))


@pytest.mark.parametrize("jump", [-3_600.0, 3_600.0, -40 * 365 * DAY])
def test_a_clock_that_is_set_while_the_agent_runs_ends_and_ages_nothing(jump: float) -> None:
    node = Node()
    node.round(100.0, xid(48, at=90.0), errors=1)
    node.round(110.0, errors=2)
    after = found(node.round(120.0, errors=2, booted=BOOTED + jump))
    assert after.keys() == {UNCORRECTABLE, RISEN}
    assert after[UNCORRECTABLE].health == Health.FATAL
    assert after[UNCORRECTABLE].since == BOOTED + jump + 90.0
    assert times(node.round(130.0, errors=2, booted=BOOTED), UNCORRECTABLE)[0] == 1


def test_a_machine_that_slept_while_the_agent_ran_has_not_waited() -> None:
    """What has to last must last while somebody looks: three days of sleep are no five minutes of heat."""
    judgement = Pipeline(*load_catalogue(), PlatformHints())
    hot: dict[str, Scalar] = {"gpu.clocks.sw_thermal": True}
    slept, heard = 0.0, []
    for at in range(0, 400, 10):
        slept = 3 * DAY if at >= 200 else 0.0
        now = Instant(BOOTED + at + slept, float(at), "boot")
        verdict = judgement.evaluate(
            [Reading("nvml", now.mono, (Observation("nvml", GPU, signals=hot),))], now
        )
        heard.append((at, "gpu-software-thermal" in found(verdict)))
    assert [at for at, hot_now in heard if hot_now] == list(range(300, 400, 10))


class Watched:
    """One slot of a node, with one source that reads it every so many seconds."""

    def __init__(self, source: str, slot: str, every: float) -> None:
        self.judgement = Pipeline(*load_catalogue(), PlatformHints())
        self.source, self.slot, self.every, self.at = source, slot, every, 0.0

    def through(self, until: float, **signals: Scalar) -> list[str]:
        """Checks that were found after the last reading; `a__b` stands for the signal `a.b`."""
        values = {name.replace("__", "."): value for name, value in signals.items()}
        while self.at < until:
            self.at += self.every
            now = Instant(BOOTED + self.at, self.at, "boot")
            row = Observation(self.source, self.slot, signals=values)
            verdict = self.judgement.evaluate([Reading(self.source, self.at, (row,))], now)
        return sorted(found(verdict))


def test_a_link_flaps_within_an_hour_and_the_hour_ends() -> None:
    port = Watched("infiniband", "port/mlx5_0/1", 60.0)
    heard = [port.through(600.0 * (step + 1), port__link_downed=5 + step) for step in range(4)]
    assert heard == [[], ["port-link-downed"], ["port-link-downed"], ["port-flap"]]
    last = 1860.0
    assert port.through(last + 3480, port__link_downed=8) == ["port-link-downed"]
    assert port.through(last + DAY - 60, port__link_downed=8) == ["port-link-downed"]
    assert port.through(last + DAY, port__link_downed=8) == []


def test_a_link_that_is_lost_twice_an_hour_does_not_flap() -> None:
    port = Watched("infiniband", "port/mlx5_0/1", 60.0)
    heard = {tuple(port.through(1800.0 * (step + 1), port__link_downed=step)) for step in range(12)}
    assert heard == {(), ("port-link-downed",)}


def test_rows_are_remapped_to_the_last_one() -> None:
    gpu = Watched("nvml", GPU, 3600.0)
    heard = [gpu.through(DAY * (day + 1), gpu__row_remap__uncorrected=508 + day) for day in range(5)]
    assert heard == [[], [], [], ["gpu-row-remap-rising"], ["gpu-row-remap-limit"]]


def test_rows_that_are_remapped_seldom_are_no_trend_and_a_trend_ends() -> None:
    gpu = Watched("nvml", GPU, 3600.0)
    for week in range(4):
        assert gpu.through(7 * DAY * (week + 1), gpu__row_remap__uncorrected=2 * week) == []
    first = gpu.at + 3600.0
    assert gpu.through(first, gpu__row_remap__uncorrected=9) == ["gpu-row-remap-rising"]
    assert gpu.through(first + 7 * DAY - 3600.0, gpu__row_remap__uncorrected=9) == ["gpu-row-remap-rising"]
    assert gpu.through(first + 7 * DAY, gpu__row_remap__uncorrected=9) == []


@pytest.mark.parametrize(("lasting", "fires"), [(50.0, False), (70.0, True)])
def test_heat_is_told_of_where_it_lasts_and_while_it_does(lasting: float, fires: bool) -> None:
    gpu = Watched("nvml", GPU, 10.0)
    gpu.through(100.0, gpu__clocks__hw_thermal=False)
    assert gpu.through(100.0 + lasting, gpu__clocks__hw_thermal=True) == ["gpu-thermal-slowdown"] * fires
    assert gpu.through(100.0 + lasting + 10.0, gpu__clocks__hw_thermal=False) == []
    assert gpu.through(100.0 + 2 * lasting, gpu__clocks__hw_thermal=True) == [], "it begins anew"


def test_heat_by_fits_and_starts_adds_up_and_is_over_after_the_window() -> None:
    gpu = Watched("nvml", GPU, 10.0)
    gpu.through(100.0, gpu__clocks__hw_thermal_time=0.0)
    heard = [
        gpu.through(100.0 + 150.0 * step, gpu__clocks__hw_thermal_time=25.0 * step) for step in (1, 2, 3)
    ]
    assert heard == [[], [], ["gpu-thermal-slowdown"]]
    assert gpu.through(1100.0, gpu__clocks__hw_thermal_time=75.0) == []


def test_a_burst_of_warnings_is_more_than_a_warning_until_it_is_over() -> None:
    node = Node()
    warned = [found(node.round(100.0 + step, xid(39, at=100.0 + step))) for step in range(10)]
    assert [one.keys() for one in warned] == [{"gpu-xid-warning"}] * 9 + [{"gpu-xid-burst"}]
    assert warned[-1]["gpu-xid-burst"].health == Health.SUSPECT
    node.down()
    assert found(node.round(3690.0)).keys() == {"gpu-xid-burst"}
    assert found(node.round(3701.0)).keys() == {"gpu-xid-warning"}
    assert found(node.round(3710.0, RESET)) == {}


def test_what_a_reading_agrees_with_is_fatal_however_old_it_is() -> None:
    judgement = Pipeline(*load_catalogue(), PlatformHints())
    gpu = Observation("nvml", GPU, signals={"gpu.recovery_action": 1})
    line = Observation("kmsg", GPU, events=(xid(95, at=DAY),))
    at = 40 * DAY
    verdict = judgement.evaluate(
        [Reading("nvml", at, (gpu,)), Reading("kmsg", at, (line,))], Instant(BOOTED + at, at, "boot")
    )
    assert verdict.health == Health.FATAL
    assert found(verdict)[UNCORRECTABLE].note == ""


def test_a_driver_that_moved_in_the_boot_before_does_not_move_now() -> None:
    """Else its moment, far ahead of the new boot's clock, would excuse all that is missing for as long."""
    judgement = Pipeline(*load_catalogue(), PlatformHints())

    def looked(at: float, boot: str, *events: Event) -> Verdict:
        host = Observation("host", NODE, signals={"host.uptime": at, "driver.loaded": False})
        bus = Observation("pci", NODE, signals={"gpu.pci_count": 8})
        log = (Observation("kmsg", NODE, events=events),) if events else ()
        rows = [Reading("host", at, (host,)), Reading("pci", at, (bus,)), Reading("kmsg", at, log)]
        return judgement.evaluate(rows, Instant(BOOTED + at, at, boot))

    at = 50 * DAY
    looked(at - 700, "boot")
    assert found(looked(at, "boot", Event("driver.unload", at - 1, "unloaded"))) == {}
    looked(1200.0, "next")
    assert found(looked(1900.0, "next")).keys() == {"driver-not-loaded"}

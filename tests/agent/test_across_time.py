"""Findings over a restart of the agent, with changes of the machine in the meantime."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from nodeguard.agent.state import AgentState, capture_state, decode_state, encode_state, resume_state
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.derive.derive import PlatformHints
from nodeguard.derive.fault_ends import SOAK
from nodeguard.derive.state import DeriveState
from nodeguard.model.finding import Finding, Health, Verdict
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Component, Event, Observation, Reading
from nodeguard.model.signal import Scalar
from nodeguard.model.target import NODE
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.sources.machine import LaneHangs
from tests.derive.readings import GPUS, xid

BOOTED = 1e9
DAY = 86_400.0
GPU, OTHER = GPUS[:2]
UNCORRECTABLE, REMAP_FAILED, RISEN = ("gpu-ecc-uncorrectable", "gpu-row-remap-failed", "gpu-pcie-replays")
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
        more: Mapping[str, Scalar] = {},
    ) -> Verdict:
        """Evaluate a round at a number of seconds since boot; events are on the first GPU, or on the node.

        more: further signals of the first GPU.
        """
        signals: dict[str, Scalar] = {"gpu.pcie.replay_rollovers": errors, **more}
        gpus = (
            Observation("nvml", GPU, signals=signals, component=Component(part), epoch=epoch),
            Observation("nvml", OTHER, signals={"gpu.ecc.uncorrected": 0}, component=Component("GPU-2")),
        )
        dated = [Event(event.signal, event.at or at, event.text, event.fields) for event in events]
        logged = tuple(
            Observation("kmsg", NODE if event.signal == LOADED.signal else GPU, events=(event,))
            for event in dated
        )
        now = Instant(booted + at, at, boot)
        verdict = self.judgement.evaluate([Reading("nvml", at, gpus), Reading("kmsg", at, logged)], now)
        self.memory = decode_state(encode_state(capture_state(self.judgement.state, now, LaneHangs())))
        return verdict

    def down(self, now: Instant | None = None) -> None:
        """Restart the agent."""
        memory = self.memory
        if now is not None:
            memory, _ = resume_state(memory, now)
        self.judgement = Pipeline(*load_catalogue(), PlatformHints(), state=memory.pipeline)


def by_check(verdict: Verdict) -> dict[str, Finding]:
    return {finding.check: finding for finding in verdict.findings}


def times(verdict: Verdict, check: str) -> list[int]:
    return [seen.count for seen in by_check(verdict)[check].evidence]


def test_a_restart_keeps_findings_with_their_times_and_counts() -> None:
    node = Node()
    before = node.round(100.0, xid(48, at=90.0), xid(48, at=95.0))
    node.down()
    after = node.round(110.0)
    assert by_check(before).keys() == by_check(after).keys() == {UNCORRECTABLE}
    assert by_check(before)[UNCORRECTABLE].since == by_check(after)[UNCORRECTABLE].since
    assert times(before, UNCORRECTABLE) == times(after, UNCORRECTABLE) == [2]


def test_a_counter_increase_during_a_restart_counts() -> None:
    node = Node()
    node.round(100.0, errors=3)
    node.down()
    assert RISEN in by_check(node.round(200.0, errors=4))


def test_a_counter_increase_during_a_long_stop_has_no_rate() -> None:
    node = Node()
    node.round(100.0, errors=3)
    node.down()
    assert RISEN not in by_check(node.round(100.0 + DAY, errors=4))


@pytest.mark.parametrize("sign", [RESET, LOADED], ids=["GPU reset", "driver reload"])
def test_an_event_is_cleared_while_the_agent_is_down(sign: Event) -> None:
    for ran in (True, False):
        node = Node()
        node.round(100.0, xid(48, at=90.0))
        node.down()
        if ran:
            assert UNCORRECTABLE in by_check(node.round(110.0))
            assert UNCORRECTABLE not in by_check(node.round(120.0, sign))
            node.down()
        assert UNCORRECTABLE not in by_check(node.round(130.0, *([] if ran else [sign])))


def test_a_cleared_finding_does_not_return_after_a_restart() -> None:
    node = Node()
    node.round(100.0, xid(48, at=90.0), RESET)
    node.down()
    assert by_check(node.round(110.0)) == {}


def test_a_reboot_clears_only_findings_that_it_may_clear() -> None:
    node = Node()
    assert by_check(node.round(100.0, xid(48, at=90.0), xid(64, at=90.0))).keys() >= {UNCORRECTABLE}
    node.down()
    after = node.round(20.0, boot="next", booted=BOOTED + 300)
    assert by_check(after).keys() == {REMAP_FAILED}
    node.down()
    again = node.round(30.0, boot="next", booted=BOOTED + 300)
    assert by_check(again).keys() == {REMAP_FAILED}
    assert times(again, REMAP_FAILED) == [1]


def test_counters_of_the_previous_boot_are_no_baseline() -> None:
    node = Node()
    node.round(100.0, errors=3)
    node.down()
    assert by_check(node.round(20.0, errors=5, boot="next")) == {}


def test_a_component_replaced_while_the_machine_was_off_clears_its_findings() -> None:
    node = Node()
    assert REMAP_FAILED in by_check(node.round(100.0, xid(64, at=90.0)))
    node.down()
    after = node.round(20.0, part="GPU-9", boot="next")
    assert by_check(after) == {}
    node.down()
    assert by_check(node.round(30.0, part="GPU-9", boot="next")) == {}


def test_the_counter_of_another_component_is_no_increase() -> None:
    node = Node()
    node.round(100.0, errors=1)
    node.down()
    assert by_check(node.round(110.0, errors=7, part="GPU-9")) == {}


def test_a_mode_change_while_the_agent_was_down_rebases_counters() -> None:
    node = Node()
    node.round(100.0, errors=1)
    node.down()
    assert by_check(node.round(110.0, errors=7, epoch="mig")) == {}
    node.down()
    assert RISEN in by_check(node.round(120.0, errors=8, epoch="mig"))


@pytest.mark.parametrize("jump", [-3_600.0, 3_600.0, -40 * 365 * DAY])
def test_a_clock_adjustment_changes_only_the_times(jump: float) -> None:
    node = Node()
    before = by_check(node.round(100.0, xid(48, at=90.0), errors=1))
    node.down(Instant(BOOTED + jump + 110.0, 110.0, "boot"))
    after = by_check(node.round(110.0, errors=1, booted=BOOTED + jump))
    assert after.keys() == before.keys() == {UNCORRECTABLE}
    assert after[UNCORRECTABLE].since == before[UNCORRECTABLE].since + jump
    assert after[UNCORRECTABLE].health == before[UNCORRECTABLE].health


def test_suspended_time_does_not_count() -> None:
    """Seconds since boot stop during a suspension, and the wall clock is days later after it."""
    node = Node()
    node.round(100.0, xid(48, at=90.0), errors=1)
    node.down(Instant(BOOTED + 3 * DAY + 105.0, 105.0, "boot"))
    after = node.round(105.0, errors=2, booted=BOOTED + 3 * DAY)
    assert by_check(after)[UNCORRECTABLE].health == Health.FATAL
    assert times(after, UNCORRECTABLE)[0] == 1


@pytest.mark.parametrize("restarts", [False, True])
def test_first_install_on_a_node_that_has_been_up_for_40_days(restarts: bool) -> None:
    node = Node()
    first = node.round(40 * DAY, xid(48, at=DAY))
    assert [finding.health for finding in first.findings] == [Health.WARNING]
    assert "nothing corroborates it" in by_check(first)[UNCORRECTABLE].note
    if restarts:
        node.down()
    assert node.round(40 * DAY + 10).health == Health.WARNING
    assert node.round(40 * DAY + 20, xid(48, at=40 * DAY + 15)).health == Health.FATAL


def test_an_event_before_a_restored_snapshot_is_read_again() -> None:
    node = Node()
    node.round(100.0, xid(48, at=20.0))
    node.down(Instant(BOOTED + 30.0, 30.0, "boot"))
    assert times(node.round(30.0, xid(48, at=20.0)), UNCORRECTABLE) == [1]


def test_a_driver_reload_rebases_counters() -> None:
    node = Node()
    node.round(100.0, errors=3, epoch="load 1")
    assert by_check(node.round(110.0, LOADED, errors=5, epoch="load 2")) == {}
    assert RISEN in by_check(node.round(120.0, errors=6, epoch="load 2"))


def test_a_component_replaced_while_the_agent_runs_clears_its_findings() -> None:
    node = Node()
    assert REMAP_FAILED in by_check(node.round(100.0, xid(64, at=90.0), errors=1))
    assert by_check(node.round(110.0, part="GPU-9", errors=7)) == {}
    assert RISEN in by_check(node.round(120.0, part="GPU-9", errors=8))


@pytest.mark.parametrize("jump", [-3_600.0, 3_600.0, -40 * 365 * DAY])
def test_a_clock_adjustment_while_the_agent_runs_changes_no_finding(jump: float) -> None:
    node = Node()
    node.round(100.0, xid(48, at=90.0), errors=1)
    node.round(110.0, errors=2)
    after = by_check(node.round(120.0, errors=2, booted=BOOTED + jump))
    assert after.keys() == {UNCORRECTABLE, RISEN}
    assert after[UNCORRECTABLE].health == Health.FATAL
    assert after[UNCORRECTABLE].since == BOOTED + jump + 90.0
    assert times(node.round(130.0, errors=2, booted=BOOTED), UNCORRECTABLE)[0] == 1


def test_suspended_time_is_no_duration_of_a_condition() -> None:
    """Three days of suspension are not five minutes of heat: a duration needs readings."""
    judgement = Pipeline(*load_catalogue(), PlatformHints())
    hot: dict[str, Scalar] = {"gpu.clocks.sw_thermal": True}
    slept, raised = 0.0, []
    for at in range(0, 400, 10):
        slept = 3 * DAY if at >= 200 else 0.0
        now = Instant(BOOTED + at + slept, float(at), "boot")
        verdict = judgement.evaluate(
            [Reading("nvml", now.mono, (Observation("nvml", GPU, signals=hot),))], now
        )
        raised.append((at, "gpu-software-thermal" in by_check(verdict)))
    assert [at for at, hot_now in raised if hot_now] == list(range(300, 400, 10))


class Watched:
    """One target of a node, with one source that reads it at an interval."""

    def __init__(self, source: str, slot: str, every: float) -> None:
        self.judgement = Pipeline(*load_catalogue(), PlatformHints())
        self.source, self.slot, self.every, self.at = source, slot, every, 0.0

    def through(self, until: float, **signals: Scalar) -> list[str]:
        """Return the checks with findings after the last reading; `a__b` is the signal `a.b`."""
        values = {name.replace("__", "."): value for name, value in signals.items()}
        while self.at < until:
            self.at += self.every
            now = Instant(BOOTED + self.at, self.at, "boot")
            row = Observation(self.source, self.slot, signals=values)
            verdict = self.judgement.evaluate([Reading(self.source, self.at, (row,))], now)
        return sorted(by_check(verdict))


def test_a_link_flaps_within_an_hour_and_the_hour_ends() -> None:
    port = Watched("infiniband", "port/mlx5_0/1", 60.0)
    raised = [port.through(600.0 * (step + 1), port__link_downed=5 + step) for step in range(4)]
    assert raised == [[], ["port-link-downed"], ["port-link-downed"], ["port-flap"]]
    last = 1860.0
    assert port.through(last + 3480, port__link_downed=8) == ["port-link-downed"]
    assert port.through(last + DAY - 60, port__link_downed=8) == ["port-link-downed"]
    assert port.through(last + DAY, port__link_downed=8) == []


def test_a_link_that_is_lost_twice_an_hour_does_not_flap() -> None:
    port = Watched("infiniband", "port/mlx5_0/1", 60.0)
    raised = {tuple(port.through(1800.0 * (step + 1), port__link_downed=step)) for step in range(12)}
    assert raised == {(), ("port-link-downed",)}


def test_row_remapping_up_to_the_limit() -> None:
    gpu = Watched("nvml", GPU, 3600.0)
    raised = [gpu.through(DAY * (day + 1), gpu__row_remap__uncorrected=508 + day) for day in range(5)]
    assert raised == [[], [], [], ["gpu-row-remap-rising"], ["gpu-row-remap-limit"]]


def test_rare_row_remapping_is_no_trend_and_a_trend_ends() -> None:
    gpu = Watched("nvml", GPU, 3600.0)
    for week in range(4):
        assert gpu.through(7 * DAY * (week + 1), gpu__row_remap__uncorrected=2 * week) == []
    first = gpu.at + 3600.0
    assert gpu.through(first, gpu__row_remap__uncorrected=9) == ["gpu-row-remap-rising"]
    assert gpu.through(first + 7 * DAY - 3600.0, gpu__row_remap__uncorrected=9) == ["gpu-row-remap-rising"]
    assert gpu.through(first + 7 * DAY, gpu__row_remap__uncorrected=9) == []


@pytest.mark.parametrize(("lasting", "fires"), [(50.0, False), (70.0, True)])
def test_heat_is_a_finding_if_it_lasts_and_while_it_lasts(lasting: float, fires: bool) -> None:
    gpu = Watched("nvml", GPU, 10.0)
    gpu.through(100.0, gpu__clocks__hw_thermal=False)
    assert gpu.through(100.0 + lasting, gpu__clocks__hw_thermal=True) == ["gpu-thermal-slowdown"] * fires
    assert gpu.through(100.0 + lasting + 10.0, gpu__clocks__hw_thermal=False) == []
    assert gpu.through(100.0 + 2 * lasting, gpu__clocks__hw_thermal=True) == [], "the duration starts again"


def test_intermittent_heat_adds_up_within_the_window() -> None:
    gpu = Watched("nvml", GPU, 10.0)
    gpu.through(100.0, gpu__clocks__hw_thermal_time=0.0)
    raised = [
        gpu.through(100.0 + 150.0 * step, gpu__clocks__hw_thermal_time=25.0 * step) for step in (1, 2, 3)
    ]
    assert raised == [[], [], ["gpu-thermal-slowdown"]]
    assert gpu.through(1100.0, gpu__clocks__hw_thermal_time=75.0) == []


def test_a_burst_of_warnings_raises_another_finding() -> None:
    node = Node()
    warned = [by_check(node.round(100.0 + step, xid(39, at=100.0 + step))) for step in range(10)]
    assert [findings.keys() for findings in warned] == [{"gpu-xid-warning"}] * 9 + [{"gpu-xid-burst"}]
    assert warned[-1]["gpu-xid-burst"].health == Health.SUSPECT
    node.down()
    assert by_check(node.round(3690.0)).keys() == {"gpu-xid-burst"}
    assert by_check(node.round(3701.0)).keys() == {"gpu-xid-warning"}
    assert by_check(node.round(3710.0, RESET)) == {}


def test_an_event_that_a_reading_confirms_is_fatal_at_any_age() -> None:
    judgement = Pipeline(*load_catalogue(), PlatformHints())
    gpu = Observation("nvml", GPU, signals={"gpu.recovery_action": 1})
    line = Observation("kmsg", GPU, events=(xid(95, at=DAY),))
    at = 40 * DAY
    verdict = judgement.evaluate(
        [Reading("nvml", at, (gpu,)), Reading("kmsg", at, (line,))], Instant(BOOTED + at, at, "boot")
    )
    assert verdict.health == Health.FATAL
    assert by_check(verdict)[UNCORRECTABLE].note == ""


def test_a_driver_change_of_the_previous_boot_has_no_effect() -> None:
    """Otherwise its time, far ahead of the new boot's clock, would suppress missing devices for as long."""
    judgement = Pipeline(*load_catalogue(), PlatformHints())

    def looked(at: float, boot: str, *events: Event) -> Verdict:
        host = Observation("host", NODE, signals={"host.uptime": at, "driver.loaded": False})
        bus = Observation("pci", NODE, signals={"gpu.pci_count": 8})
        log = (Observation("kmsg", NODE, events=events),) if events else ()
        rows = [Reading("host", at, (host,)), Reading("pci", at, (bus,)), Reading("kmsg", at, log)]
        return judgement.evaluate(rows, Instant(BOOTED + at, at, boot))

    at = 50 * DAY
    looked(at - 700, "boot")
    assert by_check(looked(at, "boot", Event("driver.unload", at - 1, "unloaded"))) == {}
    looked(1200.0, "next")
    assert by_check(looked(1900.0, "next")).keys() == {"driver-not-loaded"}


@pytest.mark.parametrize("works", [True, False])
def test_a_fault_of_an_older_version_ends_when_a_reading_proves_it(works: bool) -> None:
    """The derivation of that version did not follow the fault, so only the judge remembers it."""
    node = Node()
    assert "gpu-init-failed" in by_check(node.round(100.0, Event("gpu.init_failed", 90.0)))
    pipeline = replace(node.memory.pipeline, derived=DeriveState("boot"))
    node.memory = replace(node.memory, pipeline=pipeline)
    node.down()
    read: dict[str, Scalar] = {"gpu.answers": works, "gpu.error": "none" if works else "UNKNOWN"}
    for at in (100.0 + SOAK, 110.0 + SOAK):
        verdict = node.round(at, more=read)
    assert ("gpu-init-failed" in by_check(verdict)) is not works

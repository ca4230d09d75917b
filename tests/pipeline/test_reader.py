from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator

import pytest

from nodeguard.model.failure import HungError, StalledError
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Observation, Status
from nodeguard.model.target import NODE
from nodeguard.pipeline.reader import Reader, read_source
from nodeguard.sources.machine import Machine
from tests.agent.scene import Scripted
from tests.sources.fake_machine import FakeMachine
from tests.waiting import PATIENCE, until

# Long enough for a thread to run, short enough to wait for.
SOON = 0.5
GPU = Observation("a", "gpu/0000:3b:00", signals={"x": 1})


def failing(error: Exception) -> Scripted:
    """A source that reads one target and then fails."""

    def fail(_: Machine) -> Iterator[Observation]:
        yield GPU
        raise error

    return Scripted("a", fail)


FAILURES = [
    (OSError(errno.EIO, "Input/output error", "/sys/a"), "failed", "/sys/a: Input/output error (EIO)"),
    (OSError(errno.EACCES, os.strerror(errno.EACCES)), "failed", "permission denied: run as root"),
    (StalledError("statvfs(/nfs)"), "hung", "statvfs(/nfs) gave no answer"),
    (HungError("/sys/b"), "hung", "/sys/b gave no answer"),
    (KeyError("x"), "failed", "error in the source itself, please report it: KeyError: 'x'"),
]


@pytest.mark.parametrize(("error", "status", "detail"), FAILURES)
@pytest.mark.parametrize("threaded", [False, True])
def test_a_failure_is_part_of_the_reading(
    error: Exception, status: str, detail: str, *, threaded: bool
) -> None:
    source, machine = failing(error), FakeMachine()
    reading = Reader(machine).read([source], 5.0)[0] if threaded else read_source(source, machine)
    whole = reading.observations[-1]
    assert reading.observations[:-1] == (GPU,)
    assert (whole.target, whole.status, whole.detail) == (NODE, status, detail)
    assert (reading.source, reading.complete, reading.at) == ("a", False, 1000.0)


def test_a_round_that_ends_is_complete() -> None:
    reading = read_source(Scripted("a", lambda _: iter([GPU])), FakeMachine())
    assert (reading.observations, reading.complete) == ((GPU,), True)


@pytest.mark.parametrize("status", ["failed", "hung"])
def test_a_round_with_a_failed_node_observation_is_incomplete(status: Status) -> None:
    whole = Observation("a", NODE, status)
    assert not read_source(Scripted("a", lambda _: iter([whole, GPU])), FakeMachine()).complete


@pytest.mark.parametrize(("slot", "status"), [("gpu/0000:3b:00", "hung"), (NODE, "absent"), (NODE, "lost")])
def test_a_failed_target_leaves_a_round_complete(slot: str, status: Status) -> None:
    observation = Observation("a", slot, status)
    assert read_source(Scripted("a", lambda _: iter([observation])), FakeMachine()).complete


def test_a_source_that_hangs_is_reported_and_delays_no_other() -> None:
    released = threading.Event()

    def stuck(_: Machine) -> Iterator[Observation]:
        yield GPU
        released.wait()

    late, fine = Scripted("late", stuck, deadline=SOON), Scripted("fine")
    reader = Reader(FakeMachine())
    try:
        for _ in range(2):
            silent, read_meanwhile = reader.read([late, fine], 60.0)
            assert silent.source == "late"
            assert not silent.complete
            whole = silent.observations[-1]
            assert (whole.target, whole.status) == (NODE, "hung")
            assert whole.detail == f"gave no answer within {SOON:g} s"
            assert read_meanwhile.complete
        assert (late.rounds, fine.rounds) == (1, 2)
    finally:
        released.set()
    _wait_for("late")
    again = reader.read([late], 60.0)[0]
    assert (again.observations, again.complete, late.rounds) == ((GPU,), True, 2)


def test_observations_of_a_late_source_are_used() -> None:
    released = threading.Event()
    begun = threading.Event()

    def stuck(_: Machine) -> Iterator[Observation]:
        yield GPU
        begun.set()
        released.wait()

    class Waiting(FakeMachine):
        """A machine with a clock that is read before the source, or after it has read something."""

        def now(self) -> Instant:
            if any(thread.name == "late" for thread in threading.enumerate()):
                assert begun.wait(PATIENCE)
            return super().now()

    try:
        [reading] = Reader(Waiting()).read([Scripted("late", stuck, deadline=SOON)], 60.0)
        assert reading.observations[0] == GPU
        assert reading.observations[1].status == "hung"
    finally:
        released.set()
        _wait_for("late")


def test_every_source_has_its_deadline() -> None:
    released = threading.Event()

    def stuck(_: Machine) -> Iterator[Observation]:
        released.wait()
        yield GPU

    try:
        [reading] = Reader(FakeMachine()).read([Scripted("late", stuck, deadline=3600.0)], SOON)
        assert reading.observations[0].detail == f"gave no answer within {SOON:g} s"
    finally:
        released.set()
        _wait_for("late")


def test_readings_come_in_the_order_of_the_sources() -> None:
    sources = [Scripted(name) for name in ("b", "c", "a")]
    assert [reading.source for reading in Reader(FakeMachine()).read(sources, 5.0)] == ["b", "c", "a"]


def _wait_for(name: str) -> None:
    """Wait for the end of a reading: its thread then ends, or waits for the next one under another name."""
    until(lambda: all(thread.name != name for thread in threading.enumerate()))

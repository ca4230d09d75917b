from __future__ import annotations

import math
from typing import Any

import pytest

from nodeguard.sources.machine import BoundedMachine, LogRecords, MetadataRequest, MetadataResponse
from nodeguard.worker.result import LaneResult
from tests.sources.fake_machine import FakeMachine


class Timed(FakeMachine):
    """A machine that notes how long it is wall."""

    wall = math.nan

    def log(self, within: float = math.inf) -> LogRecords:
        self.wall = within
        return LogRecords(())

    def statvfs(self, mounts: tuple[str, ...], within: float = math.inf) -> LaneResult:
        self.wall = within
        return LaneResult()

    def nvml(self, within: float = math.inf, leave: frozenset[int] = frozenset()) -> LaneResult:
        self.wall = within
        return LaneResult()


@pytest.mark.parametrize(("limit", "left"), [(120.0, 114.0), (60.0, 54.0), (20.0, 14.0), (2.0, 1.4)])
def test_worker_lane_has_less_time_than_its_source(limit: float, left: float) -> None:
    machine = Timed()
    bounded = BoundedMachine(machine, limit)
    bounded.nvml()
    assert machine.wall == pytest.approx(left)
    machine.later(left / 2)
    bounded.statvfs(("/",))
    assert machine.wall == pytest.approx(left / 2)
    bounded.nvml(0.1)
    assert machine.wall == 0.1
    bounded.log()
    assert machine.wall == pytest.approx(left / 4)
    machine.later(limit)
    bounded.nvml()
    assert machine.wall == 0


def test_other_reads_are_passed_to_the_machine() -> None:
    machine = FakeMachine(
        {"/a/b": "1"},
        links={"/a/l": "b"},
        calls={"adjtimex": {"status": 1}, MetadataRequest("/x").call: {"status": 200, "body": "y"}},
    )
    bounded: Any = BoundedMachine(machine, 5.0)
    assert (bounded.read("/a/b"), bounded.names("/a"), bounded.link("/a/l")) == ("1", ("b", "l"), "b")
    assert bounded.http(MetadataRequest("/x"), 2.0) == MetadataResponse(200, "y")
    assert (bounded.call("adjtimex"), bounded.now()) == ({"status": 1}, machine.now())

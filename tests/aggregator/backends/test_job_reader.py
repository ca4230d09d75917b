"""Tests for nodeguard.aggregator.backends.job_reader; tests/e2e/test_jobs.py reads from a real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nodeguard.aggregator.backends.job_reader import READS_PER_SECOND, JobReader, ReadingSchedule
from nodeguard.aggregator.clock import current_instant
from nodeguard.aggregator.fleet_inputs import FleetInputs
from nodeguard.fleet.planner import Planner
from nodeguard.kube.client import ApiClient
from nodeguard.model.finding import DataStatus, Health
from nodeguard.model.inventory import InventoryNode
from nodeguard.model.job import NodeJob
from nodeguard.wire.report import VERSION, Report
from tests.controlplane.certificates import Authority
from tests.controlplane.credentials import write_kubeconfig
from tests.fleet.leaves import ENFORCED, down
from tests.fleet.scene import CHECKS
from tests.logs import LogLines


def read(schedule: ReadingSchedule, wanted: dict[str, float], now: float) -> list[str]:
    due = schedule.due(wanted, now)
    for uid in due:
        schedule.record_read(uid, now)
    return due


def test_the_newest_votes_are_read_first_at_a_bounded_rate() -> None:
    schedule, wanted = ReadingSchedule(), {f"uid-{number}": 1_000.0 + number for number in range(50)}
    assert read(schedule, wanted, 1_100.0) == [f"uid-{number}" for number in range(49, 29, -1)]
    assert len(read(schedule, wanted, 1_101.0)) == READS_PER_SECOND
    assert len(read(schedule, wanted, 1_102.0)) == 10
    assert read(schedule, wanted, 1_103.0) == []


def test_a_node_is_read_again_for_a_newer_vote_but_not_at_once() -> None:
    schedule = ReadingSchedule()
    assert read(schedule, {"a": 100.0}, 140.0) == ["a"]
    assert read(schedule, {"a": 100.0}, 9_000.0) == []
    assert read(schedule, {"a": 8_990.0}, 9_001.0) == ["a"]
    assert read(schedule, {"a": 9_020.0}, 9_030.0) == []
    assert read(schedule, {"a": 9_020.0}, 9_031.0) == ["a"]


def test_a_node_that_was_read_right_after_its_vote_is_read_once_more() -> None:
    schedule = ReadingSchedule()
    assert read(schedule, {"a": 100.0}, 101.0) == ["a"]
    assert read(schedule, {"a": 100.0}, 130.0) == []
    assert read(schedule, {"a": 100.0}, 131.0) == ["a"]
    assert read(schedule, {"a": 100.0}, 1_000.0) == []


def test_nodes_that_are_not_wanted_any_more_are_forgotten() -> None:
    schedule = ReadingSchedule()
    read(schedule, {"a": 100.0, "b": 100.0}, 200.0)
    assert schedule.update({"b": 100.0}) == ("a",)
    assert schedule.update({"b": 100.0}) == ()
    assert read(schedule, {"a": 100.0, "b": 100.0}, 300.0) == ["a"]


def test_no_node_is_read_for_a_while_after_an_error() -> None:
    schedule = ReadingSchedule()
    schedule.record_failure(200.0)
    assert schedule.due({"a": 100.0}, 259.0) == []
    assert schedule.due({"a": 100.0}, 260.0) == ["a"]


class Scene:
    """A reader, and a planner with one Node that votes."""

    def __init__(self, api: ApiClient) -> None:
        self.planner = Planner(ENFORCED, CHECKS)
        self.planner.update_node(InventoryNode("uid-1", "gpu-1", labels={"pod": "p0", "rack": "r0"}, gpus=8))
        report = Report(
            version=VERSION, node="gpu-1", boot_id="boot-1", sequence=1, health=Health.FATAL,
            data_status=DataStatus.FRESH, findings=(down(),),
        )  # fmt: skip
        self.planner.record_report("uid-1", report, current_instant())
        inputs = FleetInputs(self.planner, lambda: None)
        self.reader = JobReader(api, self.planner, inputs)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    """A reader without an API server."""
    write_kubeconfig(
        tmp_path / "kubeconfig", "https://127.0.0.1:1", Authority(tmp_path).certificate, "secret"
    )
    api = await ApiClient.connect(str(tmp_path / "kubeconfig"))
    yield Scene(api)
    await api.close()


async def test_an_error_is_logged_and_counted_and_pauses_the_readings(scene: Scene, log: LogLines) -> None:
    for _ in range(3):
        await scene.reader.read_due()
    assert scene.reader.results == {"read": 0, "failed": 1}
    assert log.messages() == ["cannot read the pods of a Node, incidents name no jobs"]
    assert scene.planner.state.jobs.jobs("uid-1") == ()


async def test_jobs_of_a_node_that_does_not_vote_any_more_are_forgotten(scene: Scene) -> None:
    scene.reader.schedule.record_read("uid-1", current_instant().mono)
    scene.planner.state.update_jobs("uid-1", (NodeJob("a/b"),))
    await scene.reader.read_due()
    assert scene.planner.state.jobs.names("uid-1") == ("a/b",)
    scene.planner.diagnosis.voting.remove_node("uid-1")
    await scene.reader.read_due()
    assert scene.planner.state.jobs.names("uid-1") == ()

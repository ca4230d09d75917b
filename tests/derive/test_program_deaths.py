from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from nodeguard.derive.program_deaths import DIED, NodeWork, record_work
from nodeguard.derive.xid_index import XidRecord
from nodeguard.model.observation import Component, Event, Observation, Reading
from tests.derive.readings import machine, tables

GPUS = [f"gpu/0000:{bus:02x}:00" for bus in range(0x10, 0x90, 0x10)]
MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
START = 20 * DAY
BAD = 4


class Node:
    """A node with a job on each GPU for days, except on the bad one."""

    def __init__(self, *, idle: bool = False, listed: bool = True, gpus: int = 8, workers: str = "") -> None:
        """Start it. workers: USER:JOB:PARENT of the processes on all GPUs."""
        self._workers = workers
        self.work = NodeWork()
        self.now = START
        self.verdicts: list[str] = []
        self.events: list[Event] = []
        self.parts = {gpu: Component(f"GPU-{gpu}") for gpu in GPUS}
        self._idle, self._listed, self._gpus = idle, listed, GPUS[:gpus]
        self.see()

    def _own(self, index: int) -> str:
        owner = self._workers or f"user{index}:job{index}:parent{index}"
        return f"{index}:{START - 8 * DAY:.2f}:{owner}"

    def see(self, *, extra: str = "") -> None:
        """Read the processes of all GPUs. extra: entries of the bad GPU."""
        rows = []
        for index, gpu in enumerate(self._gpus):
            own = "" if self._idle else self._own(index)
            signals = {"gpu.process_owners": extra if index == BAD else own} if self._listed else {}
            rows.append(
                Observation("nvml", gpu, signals={"gpu.answers": True, **signals}, component=self.parts[gpu])
            )
        self.read(Reading("nvml", self.now, tuple(rows)), *rows)

    def read(
        self, reading: Reading, *rows: Observation, xids: dict[str, tuple[XidRecord, ...]] | None = None
    ) -> None:
        rows = rows or tuple(Observation("nvml", gpu, signals={"gpu.answers": True}) for gpu in self._gpus)
        self.work, found = record_work(
            self.work, [reading], machine(*rows, at=self.now), xids or {}, tables(), self.now
        )
        self.events += [event for row in found.values() for event in row if event.signal == DIED]
        self.verdicts += [str(event.fields["verdict"]) for row in found.values() for event in row]

    def die(
        self, pid: int, *, gpu: int = BAD, owner: str = "", code: int = 13, after: float = 10 * MINUTE,
        xids: dict[str, tuple[XidRecord, ...]] | None = None,
    ) -> None:  # fmt: skip
        """Let a process die. owner: USER:JOB or USER:JOB:PARENT."""
        self.now += after
        self.see()
        fields: dict[str, str | int | float | bool] = {"xid": code, "pid": pid, "rest": ""}
        if owner:
            user, job, parent = (*owner.split(":"), f"of-{owner}".replace(":", "-"))[:3]
            fields["owner"] = f"{pid}:{self.now - 300:.2f}:{user}:{job}:{parent}"
        event = Event("gpu.xid.line", self.now, fields=fields)
        self.read(Reading("kmsg", self.now, (Observation("kmsg", GPUS[gpu], events=(event,)),)), xids=xids)


def test_programs_of_several_users_on_one_gpu_are_suspect_with_both_counts() -> None:
    node = Node()
    for pid in range(100, 102):
        node.die(pid, owner=f"u{pid}:j{pid}")
    assert node.verdicts == ["suspect"]
    fields = node.events[0].fields
    assert (fields["processes"], fields["programs"], fields["others"], fields["others_ran"]) == (2, 2, 7, 7)


def crash_loop(node: Node) -> None:
    for pid in range(100, 130):
        node.die(pid, owner="u:j", after=5 * MINUTE)


def everywhere(node: Node) -> None:
    for pid in range(100, 132):
        node.die(pid, gpu=pid % 8, owner=f"u{pid}:j{pid}", after=5 * MINUTE)


def one_process(node: Node) -> None:
    for _ in range(20):
        node.die(100, owner="u:j", after=MINUTE)


def at_once(node: Node) -> None:
    for pid in range(100, 104):
        node.die(pid, owner=f"u{pid}:j{pid}", after=1.0)


def only_removed(node: Node) -> None:
    for pid in range(100, 120):
        node.die(pid, owner=f"u{pid}:j{pid}", code=45)


def after_a_fault_of_the_gpu(node: Node) -> None:
    for pid in range(100, 104):
        faults = (XidRecord(48, node.now + 10 * MINUTE - 1, has_message=True),)
        node.die(pid, owner=f"u{pid}:j{pid}", xids={GPUS[BAD]: faults})


def retries_of_one_user(node: Node) -> None:
    for pid in range(100, 104):
        node.die(pid, owner=f"u:j{pid}")


@pytest.mark.parametrize(
    "happens",
    [
        crash_loop,
        everywhere,
        one_process,
        at_once,
        only_removed,
        after_a_fault_of_the_gpu,
        retries_of_one_user,
    ],
)
def test_what_programs_do_by_themselves_is_no_finding(happens: Callable[[Node], None]) -> None:
    node = Node()
    happens(node)
    assert node.verdicts == []


def test_idle_neighbours_are_no_control() -> None:
    node = Node(idle=True)
    for pid in range(100, 120):
        node.see(extra=f"{pid}:{node.now:.2f}:u{pid}:j{pid}:p{pid}")
        node.die(pid, owner=f"u{pid}:j{pid}")
    assert node.verdicts == []


def test_processes_that_only_the_log_names_are_a_warning() -> None:
    node = Node(listed=False)
    for pid in range(100, 112):
        node.die(pid, code=43, after=0.02)
    assert set(node.verdicts) == {"warning"}
    assert node.events[-1].fields["processes"] == 12


def test_minutes_are_those_of_the_deaths_also_when_the_log_is_read_late() -> None:
    node = Node(listed=False)
    lines = [
        Event("gpu.xid.line", node.now - DAY + pid * MINUTE, fields={"xid": 31, "pid": pid, "rest": ""})
        for pid in range(1, 7)
    ]
    node.read(Reading("kmsg", node.now, (Observation("kmsg", GPUS[BAD], events=tuple(lines)),)))
    assert (node.events[0].at, node.events[0].fields["minutes"]) == (lines[-1].at, 5)


def test_programs_that_fail_at_once_fail_within_a_minute() -> None:
    node = Node(listed=False)
    for pid in range(100, 112):
        node.die(pid, code=43, after=0.0)
    assert node.events[-1].fields["minutes"] == 1


def test_log_of_a_machine_with_one_gpu_has_no_control() -> None:
    node = Node(listed=False, gpus=1)
    for pid in range(100, 112):
        node.die(pid)
    assert node.verdicts == []


def test_owner_that_nvml_listed_before_is_used() -> None:
    node = Node()
    for pid in range(100, 102):
        node.see(extra=f"{pid}:{node.now:.2f}:u{pid}:j{pid}:p{pid}")
        node.die(pid)
    assert node.verdicts == ["suspect"]


def test_process_of_the_same_job_that_is_killed_on_another_gpu_does_not_end_the_series() -> None:
    node = Node()
    for pid in range(100, 102):
        node.die(pid, owner=f"u{pid}:j{pid}")
        node.die(pid + 100, gpu=5, owner=f"u{pid}:j{pid}", code=45, after=5.0)
    assert node.verdicts == ["suspect"]


def test_worker_that_dies_again_and_again_while_its_siblings_run_is_suspect() -> None:
    node = Node(workers="u:j:supervisor")
    for pid in range(100, 103):
        node.die(pid, owner="u:j:supervisor", after=20 * MINUTE)
    assert node.verdicts == ["suspect"]


def test_program_that_is_tried_beside_others_in_one_container_is_no_finding() -> None:
    node = Node(workers="u:j:launcher")
    for pid in range(100, 110):
        node.die(pid, owner="u:j:shell")
    assert node.verdicts == []


def test_death_on_another_gpu_ends_the_series() -> None:
    node = Node()
    node.die(100, owner="u100:j100")
    node.die(101, gpu=2, owner="u101:j101")
    node.die(102, owner="u102:j102")
    node.die(103, owner="u103:j103")
    assert node.verdicts == []


@pytest.mark.parametrize("signal", ["gpu.reset", "driver.load"])
def test_reset_forgets_what_was_before(signal: str) -> None:
    node = Node()
    node.die(100, owner="u100:j100")
    node.read(Reading("kmsg", node.now, (Observation("kmsg", GPUS[BAD], events=(Event(signal, node.now),)),)))
    node.die(101, owner="u101:j101")
    assert node.verdicts == []


def test_replaced_component_starts_from_zero() -> None:
    node = Node()
    node.die(100, owner="u100:j100")
    node.parts[GPUS[BAD]] = Component("GPU-new")
    node.die(101, owner="u101:j101")
    assert node.verdicts == []


def test_deaths_of_earlier_series_are_counted_until_a_finding_or_reset() -> None:
    node = Node()
    for pid in range(100, 110):
        node.die(pid, owner=f"u{pid}:j{pid}", after=8 * HOUR)
        node.die(pid + 1000, gpu=2, owner=f"u{pid}:k{pid}", after=8 * HOUR)
    assert node.work.earlier == {GPUS[BAD]: 10, GPUS[2]: 9}
    node.die(200, owner="u200:j200")
    node.read(
        Reading("kmsg", node.now, (Observation("kmsg", GPUS[BAD], events=(Event("gpu.reset", node.now),)),))
    )
    assert node.work.earlier == {GPUS[2]: 10}


def test_deaths_that_were_a_finding_do_not_count_again() -> None:
    node = Node()
    for pid in range(100, 103):
        node.die(pid, owner=f"u{pid}:j{pid}")
    assert node.verdicts == ["suspect"]


def test_state_survives_a_restart() -> None:
    node = Node()
    node.die(100, owner="u100:j100")
    node.work = msgspec.msgpack.decode(msgspec.msgpack.encode(node.work), type=NodeWork)
    node.die(101, owner="u101:j101")
    assert node.verdicts == ["suspect"]


def test_state_is_bounded() -> None:
    node = Node()
    for pid in range(100, 500):
        node.die(pid, owner=f"u:j{pid}", after=61.0)
    work = node.work
    assert max(len(work.deaths), len(work.processes), len(work.failed)) <= 64
    assert all(len(row.owners) <= 64 and len(row.programs) <= 64 for row in work.gpus.values())

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from nodeguard.aggregator.history.component_faults import load_component_faults, read_component_faults
from nodeguard.aggregator.history.store import HistoryStore
from nodeguard.fleet.diagnosis.repeat_offenders import FaultHistory
from nodeguard.fleet.state.history_events import HistoryEvent, HistoryNote, NoteKind
from nodeguard.model.finding import Action, Health
from nodeguard.model.incident import Incident, IncidentState
from nodeguard.wire.report import Inventory, ReportedComponent
from tests.aggregator.history.scene import DAY, START, said

FAULT = Incident(
    name="node-1-gpu", node="node-1", uid="uid-1", target="gpu/0000:3b:00", cause="gpu-lost",
    health=Health.FATAL, state=IncidentState.MARKED, first_seen=START, last_transition=START, component="GPU-1",
    action=Action.RESET_GPU,
)  # fmt: skip


def failed(day: float, **more: Any) -> HistoryNote:
    since = START + day * DAY
    one = replace(FAULT, first_seen=since, last_transition=since, **more)
    return HistoryNote(since, NoteKind.INCIDENT, one.name, one.node, msgspec.json.encode(one).decode())


def kept(path: Path, *steps: HistoryEvent) -> Path:
    """A history of a fleet of a few hundred, and of what else is told."""
    file = path / "history.sqlite"
    store = HistoryStore(str(file))
    store.add([*(said(0.0, number) for number in range(400)), *steps], START)
    store.close()
    return file


def lemons(file: Path) -> list[tuple[str, str, int]]:
    return [
        (one.part, one.node, one.faults)
        for one in read_component_faults(str(file)).repeat_offenders(START + 4 * DAY)
    ]


def test_what_failed_before_is_remembered(tmp_path: Path) -> None:
    file = kept(
        tmp_path,
        failed(0.0),
        failed(1.0),
        failed(1.0, state=IncidentState.RESOLVED),
        failed(2.0),
        failed(3.0),
    )
    assert lemons(file) == [("GPU-1", "node-1", 4)]


def test_what_a_domain_was_to_blame_for_is_no_fault_of_a_part(tmp_path: Path) -> None:
    explained = failed(1.0), failed(1.0, parent="rack-r0"), failed(1.0)
    file = kept(tmp_path, failed(0.0), *explained, failed(2.0), failed(3.0))
    assert lemons(file) == []


def test_what_is_no_fault_of_a_part_does_not_count(tmp_path: Path) -> None:
    others: tuple[dict[str, Any], ...] = (
        {"health": Health.WARNING},
        {"action": Action.RESTART_WORKLOAD},
        {"action": Action.RESTART_SERVICE},
        {"component": ""},
        {"component": "CPU_SrcID#0_DIMM#1", "target": "dimm/mc0/dimm1"},
        {"node": "", "domain": "rack/r0"},
    )
    steps = [failed(day, name=f"{number}", **more) for number, more in enumerate(others) for day in range(4)]
    assert lemons(kept(tmp_path, *steps)) == []


def test_what_befell_many_parts_of_a_node_was_a_fault_of_none(tmp_path: Path) -> None:
    steps = [failed(day, name=one, component=one) for day in range(4) for one in ("a", "b", "c")]
    assert lemons(kept(tmp_path, *steps)) == []


def test_a_part_is_told_of_where_it_was_seen_last(tmp_path: Path) -> None:
    moved = said(
        3.5 * DAY, 2, 9, inventory=Inventory(components={"gpu/0000:9d:00": ReportedComponent("GPU-1")})
    )
    file = kept(tmp_path, *map(failed, range(4)), moved)
    assert lemons(file) == [("GPU-1", "node-2", 4)]


async def test_a_planner_is_told_of_what_was_before_it(tmp_path: Path) -> None:
    kept(tmp_path, *map(failed, range(4)))
    known, told = FaultHistory(), list[str]()
    await load_component_faults(str(tmp_path), known, told.append)
    assert [one.part for one in known.repeat_offenders(START + 4 * DAY)] == ["GPU-1"]
    assert told == []


async def test_a_history_that_cannot_be_read_costs_lemons_alone(tmp_path: Path) -> None:
    known, told = FaultHistory(), list[str]()
    await load_component_faults(str(tmp_path), known, told.append)
    assert told == []  # There is none yet.
    file = tmp_path / "history.sqlite"
    file.write_bytes(b"mode: enforce\n" * 100)
    await load_component_faults(str(file), known, told.append)
    [said_of] = told
    assert said_of.startswith(f"{file}: cannot read the faults of components (")
    assert said_of.endswith("): repeat offenders are counted from now")

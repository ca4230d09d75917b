from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from nodeguard.aggregator.history.component_faults import load_component_faults, read_component_faults
from nodeguard.aggregator.history.store import HistoryStore
from nodeguard.fleet.components.repeat_offenders import FaultHistory
from nodeguard.fleet.state.history_events import HistoryEvent, HistoryNote, NoteKind
from nodeguard.model.finding import Action, Health
from nodeguard.model.incident import Incident, IncidentState
from nodeguard.wire.report import Inventory, ReportedComponent
from tests.aggregator.history.scene import DAY, START, received
from tests.logs import LogLines

FAULT = Incident(
    name="node-1-gpu", node="node-1", uid="uid-1", target="gpu/0000:3b:00", cause="gpu-lost",
    health=Health.FATAL, state=IncidentState.MARKED, first_seen=START, last_transition=START, component="GPU-1",
    action=Action.RESET_GPU,
)  # fmt: skip


def fault(day: float, **fields: Any) -> HistoryNote:
    since = START + day * DAY
    incident = replace(FAULT, first_seen=since, last_transition=since, **fields)
    text = msgspec.json.encode(incident).decode()
    return HistoryNote(since, NoteKind.INCIDENT, incident.name, incident.node, text)


def write_history(path: Path, *steps: HistoryEvent) -> Path:
    """Write the history of a fleet of 400 nodes with some more steps. Return its file."""
    file = path / "history.sqlite"
    store = HistoryStore(str(file))
    store.add([*(received(0.0, number) for number in range(400)), *steps], START)
    store.close()
    return file


def repeat_offenders(file: Path) -> list[tuple[str, str, int]]:
    offenders = read_component_faults(str(file)).repeat_offenders(START + 4 * DAY)
    return [(offender.part, offender.node, offender.faults) for offender in offenders]


def test_earlier_faults_of_a_component_count(tmp_path: Path) -> None:
    file = write_history(
        tmp_path,
        fault(0.0),
        fault(1.0),
        fault(1.0, state=IncidentState.RESOLVED),
        fault(2.0),
        fault(3.0),
    )
    assert repeat_offenders(file) == [("GPU-1", "node-1", 4)]


def test_faults_that_a_degraded_domain_explains_do_not_count(tmp_path: Path) -> None:
    explained = fault(1.0), fault(1.0, parent="rack-r0"), fault(1.0)
    file = write_history(tmp_path, fault(0.0), *explained, fault(2.0), fault(3.0))
    assert repeat_offenders(file) == []


def test_only_faults_of_identified_components_count(tmp_path: Path) -> None:
    others: tuple[dict[str, Any], ...] = (
        {"health": Health.WARNING},
        {"action": Action.RESTART_WORKLOAD},
        {"action": Action.RESTART_SERVICE},
        {"component": ""},
        {"component": "CPU_SrcID#0_DIMM#1", "target": "dimm/mc0/dimm1"},
        {"node": "", "domain": "rack/r0"},
    )
    steps = [
        fault(day, name=f"{number}", **fields) for number, fields in enumerate(others) for day in range(4)
    ]
    assert repeat_offenders(write_history(tmp_path, *steps)) == []


def test_simultaneous_faults_of_many_components_do_not_count(tmp_path: Path) -> None:
    steps = [fault(day, name=name, component=name) for day in range(4) for name in ("a", "b", "c")]
    assert repeat_offenders(write_history(tmp_path, *steps)) == []


def test_a_moved_component_is_listed_at_its_last_location(tmp_path: Path) -> None:
    moved = received(
        3.5 * DAY, 2, 9, inventory=Inventory(components={"gpu/0000:9d:00": ReportedComponent("GPU-1")})
    )
    file = write_history(tmp_path, *map(fault, range(4)), moved)
    assert repeat_offenders(file) == [("GPU-1", "node-2", 4)]


async def test_the_faults_of_a_history_are_added(tmp_path: Path, log: LogLines) -> None:
    write_history(tmp_path, *map(fault, range(4)))
    faults = FaultHistory()
    await load_component_faults(str(tmp_path), faults)
    assert [offender.part for offender in faults.repeat_offenders(START + 4 * DAY)] == ["GPU-1"]
    assert log.text() == []


async def test_an_unreadable_history_is_logged_and_a_missing_one_is_not(
    tmp_path: Path, log: LogLines
) -> None:
    faults = FaultHistory()
    await load_component_faults(str(tmp_path), faults)
    assert log.text() == []
    file = tmp_path / "history.sqlite"
    file.write_bytes(b"mode: enforce\n" * 100)
    await load_component_faults(str(file), faults)
    [line] = log.text()
    assert line.startswith(
        "WARNING cannot read the faults of components, repeat offenders are counted from now "
        f"file={file} error="
    )

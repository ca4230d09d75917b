"""nodeguard report."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from nodeguard.aggregator.history.store import HistoryStore
from nodeguard.cli.commands.report import default_history
from nodeguard.cli.main import main
from nodeguard.fleet.state.history_events import HistoryEvent, HistoryNote, NodeObserved, NoteKind
from nodeguard.fleet.state.node_marks import encode_record
from nodeguard.model.finding import Action, Health
from nodeguard.model.hardware import Hardware
from nodeguard.model.incident import FalseAlarm, Incident, IncidentState, OperatorDecision
from nodeguard.model.inventory import InventoryNode
from nodeguard.model.mark import Mark, MarkCause, MarkRecord
from tests.docs.pages import example

HOUR = 3_600.0
START = 1_793_491_200.0  # 2026-11-01 00:00:00 UTC
END = START + 20 * 24 * HOUR
GAP = START + 9 * 24 * HOUR
# Check, target, action, mark, serial number, and the hours of each fault from the begin, with its duration.
FAULTS = (
    ("gpu-lost", "gpu/0000:3b:00", Action.REPLACE_COMPONENT, Mark.QUARANTINE, "1650522", ((30, 20), (200, 31), (460, None))),
    ("gpu-ecc-uncorrectable", "gpu/0000:1b:00", Action.RESET_GPU, Mark.QUARANTINE, "1650877", ((5, 2), (90, 3), (150, 2), (310, 6))),
    ("port-flap", "port/mlx5_0/1", Action.CONTACT_SUPPORT, Mark.SUSPECT, "", ((60, 9), (380, 26))),
)  # fmt: skip


def fault_events(number: int, injected: bool = False) -> Iterator[HistoryEvent]:
    """Yield the incidents and marks of the faults of a node."""
    check, target, action, mark, serial, periods = FAULTS[number]
    node = f"gpu-{number + 1}"
    for count, (after, hours) in enumerate(periods):
        began = START + after * HOUR
        cause = MarkCause(mark, check, target, "gpu", began + 60.0)
        health = Health.FATAL if mark == Mark.QUARANTINE else Health.SUSPECT
        hardware = Hardware(serial=serial) if serial else None
        incident = Incident(
            f"i-{number}-{count}", node, f"uid-{node}", target, check, health, IncidentState.MARKED, began,
            began, action=action, hardware=hardware, injected=injected,
        )  # fmt: skip
        yield _note(began, NoteKind.INCIDENT, incident.name, node, msgspec.json.encode(incident).decode())
        if not injected:
            record = encode_record(MarkRecord(causes=(cause,)))
            yield _note(began + 60.0, NoteKind.MARKS, f"uid-{node}", node, record)
        if hours is None:
            continue
        ended = began + hours * HOUR
        over = replace(
            incident, state=IncidentState.RESOLVED, resolved_at=ended, health=Health.OK,
            highest_health=health, action=Action.NONE,
        )  # fmt: skip
        yield _note(ended, NoteKind.INCIDENT, incident.name, node, msgspec.json.encode(over).decode())
        yield _note(ended + 600.0, NoteKind.MARKS, f"uid-{node}", node, "")


def _note(at: float, kind: NoteKind, name: str, node: str, text: str) -> HistoryNote:
    return HistoryNote(at, kind, name, node, text)


@pytest.fixture
def history(tmp_path: Path) -> str:
    """Return the history of eight nodes for 20 days, without an aggregator for six hours of the tenth day."""
    events: list[HistoryEvent] = [
        NodeObserved(START, InventoryNode(f"uid-gpu-{number}", f"gpu-{number}", gpus=8))
        for number in range(1, 9)
    ]
    for number in range(len(FAULTS)):
        events += fault_events(number)
    decision = OperatorDecision("i-2-0", false_alarm=FalseAlarm("ada", reason="a switch was replaced"))
    text = msgspec.json.encode(decision).decode()
    events.append(_note(START + 70 * HOUR, NoteKind.DECISION, "i-2-0", "", text))
    path = tmp_path / "history.sqlite"
    store = HistoryStore(str(path))
    events.sort(key=lambda event: event.at)
    times = sorted({*range(int(START), int(END) + 1, 120)})
    for at in times:
        if not GAP < at < GAP + 6 * HOUR:
            due = [event for event in events if event.at <= at]
            events = events[len(due) :]
            store.add(due, float(at))
    store.close()
    return str(path)


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["report", *words]) == 0
    return capsys.readouterr().out


def read_json(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    return json.loads(printed(capsys, *words, "-o", "json"))


def test_the_page_shows_the_output(history: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = example("docs/tasks/report-availability.md", "AVAILABILITY")
    assert printed(capsys, history) == page


def test_parts_are_serial_numbers_where_known(history: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = read_json(capsys, history, "--by", "part")
    names = {group["name"]: group["figures"]["faults"] for group in report["groups"]}
    assert names == {"serial 1650522": 3, "serial 1650877": 4, "gpu-3: port mlx5_0/1": 1}
    actions = read_json(capsys, os.path.dirname(history), "--by", "action")["groups"]
    assert {group["name"] for group in actions} == {"replace-component", "reset-gpu", "contact-support"}


def test_since_goes_back_from_the_end_of_the_history(
    history: str, capsys: pytest.CaptureFixture[str]
) -> None:
    report = read_json(capsys, history, "--since", "1d")
    assert (report["since"], report["until"]) == ("2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z")
    assert (report["node_days"], report["total"]["faults"], report["gaps"]) == (8.0, 1, [])


def test_a_history_of_more_days_than_are_kept_begins_with_its_first_complete_record(
    history: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store = HistoryStore(history)
    store.trim(END, 10.0, 1 << 30)
    store.close()
    report = read_json(capsys, history)
    assert report["since"] >= "2026-11-08"
    assert report["total"]["faults"] == 3


def test_rehearsals_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = HistoryStore(str(tmp_path / "history.sqlite"))
    store.add([*fault_events(0, injected=True)], time.time())
    store.close()
    report = read_json(capsys, str(tmp_path))
    assert (report["injected_faults"], report["total"]["faults"], report["groups"]) == (3, 0, [])


def test_a_missing_history_is_an_error_with_its_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "/nonexistent"]) == 3
    error = capsys.readouterr().err
    assert error.endswith("no such file or directory: name the file that aggregator --history writes\n")


def test_the_history_of_the_systemd_unit_is_found(tmp_path: Path) -> None:
    places = [f"{tmp_path}/pod", f"{tmp_path}/unit"]
    assert default_history(places) == places[0]
    HistoryStore(f"{places[1]}/history.sqlite").close()
    assert default_history(places) == places[1]

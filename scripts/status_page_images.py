"""The pictures of the status page in the documentation: `python -m scripts.status_page_images`.

Needs Chromium and pngquant. The fleet is that of the tests.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from nodeguard.aggregator.history.store import HistoryStore
from nodeguard.aggregator.pages.handler import StatusPages, serve_pages
from nodeguard.fleet.state.history_events import HistoryEvent, HistoryNote, NoteKind, ReportReceived
from nodeguard.fleet.state.node_marks import encode_record
from nodeguard.model.finding import Health
from nodeguard.model.mark import MarkCause, MarkRecord
from tests.aggregator.history.scene import received
from tests.aggregator.pages.scenes import faulty_fleet, gpu_name, pages_context
from tests.browser import Tab, browser, new_tab
from tests.fleet.scene import Fleet, finding
from tests.ports import free_ports

IMAGES = Path(__file__).parent.parent / "docs" / "images"
NODE = 100
HOUR = 3600.0


def past(now: float) -> list[HistoryEvent]:
    """Return the reports of a node in the past week: a hot GPU, ECC errors, and a lost GPU."""
    hot = finding("gpu-hot", health=Health.WARNING, message="the GPU throttles at 89 °C", age=0.0)
    ecc = finding("gpu-ecc", health=Health.SUSPECT, message="12 uncorrectable ECC errors", age=0.0)
    lost = finding("gpu-lost", message="GPU 0000:3b:00 fell off the bus (Xid 79)", age=0.0)
    timeline = (
        (150.0, (hot,)), (146.0, ()), (98.0, (hot,)), (80.0, ()), (50.0, (hot, ecc)), (47.0, (ecc,)),
        (29.0, ()), (0.43, (lost,)),
    )  # fmt: skip
    steps: list[HistoryEvent] = []
    for sequence, (hours, findings) in enumerate(timeline):
        report = received(0.0, NODE, sequence, *findings).report
        steps.append(ReportReceived(now - hours * HOUR, f"uid-{NODE}", report))
    return steps


def changes(fleet: Fleet) -> list[HistoryEvent]:
    """Return the notes of the fleet's incidents, of a pause in the night, and of the first policy."""
    notes = [
        HistoryNote(fleet.wall - 30 * HOUR, NoteKind.POLICY, "", "", "{}"),
        HistoryNote(fleet.wall - 9 * HOUR, NoteKind.PAUSE, "", "", "paused by alice: a driver rollout"),
        HistoryNote(fleet.wall - 7 * HOUR, NoteKind.RESUME, "", "", "resumed by alice"),
    ]
    for incident in fleet.planner.all_incidents():
        text = msgspec.json.encode(incident).decode()
        notes.append(HistoryNote(incident.first_seen, NoteKind.INCIDENT, incident.name, incident.node, text))
        if incident.node and incident.mark:
            cause = MarkCause(incident.mark, incident.cause, incident.target, "", incident.last_transition)
            for record in (MarkRecord(), MarkRecord((cause,))):
                at, text = incident.last_transition, encode_record(record)
                notes.append(HistoryNote(at, NoteKind.MARKS, incident.uid, incident.node, text))
    return sorted(notes, key=lambda note: note.at)


async def take(tab: Tab, path: Path) -> None:
    """Write a picture of the page, with few colors."""
    await tab.screenshot(path)
    await asyncio.to_thread(
        subprocess.run, ["pngquant", "--force", "--strip", "--output", str(path), "64", str(path)], check=True
    )
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


async def main() -> None:
    """Take the pictures."""
    IMAGES.mkdir(exist_ok=True)
    fleet, [port] = faulty_fleet(), free_ports(1)
    # Processes of the browser may still write at its end.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        store = HistoryStore(f"{directory}/history.sqlite")
        store.add([*past(fleet.wall), *changes(fleet)], fleet.wall)
        store.close()
        pages = StatusPages(pages_context(fleet, directory))
        with browser(Path(directory)) as url:
            await take_all(pages, port, url)


async def take_all(pages: StatusPages, port: int, browser_url: str) -> None:
    """Take the pictures of served pages with a browser."""
    async with serve_pages(("127.0.0.1", port), pages), new_tab(browser_url) as tab:
        for path, name, width, dark in (
            ("/", "status-page", 1280, False),
            (f"/nodes/{gpu_name(NODE)}", "status-page-node", 1000, True),
        ):
            await tab.view(width, dark=dark)
            await tab.open(f"http://localhost:{port}{path}")
            await tab.shows("document.getElementById('live').innerText.startsWith('live')")
            await take(tab, IMAGES / f"{name}.png")


if __name__ == "__main__":
    if missing := [program for program in ("chromium", "pngquant") if shutil.which(program) is None]:
        sys.exit(f"missing: run 'apt-get install {' '.join(missing)}' as root, then again")
    asyncio.run(main())

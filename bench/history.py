"""What a history costs a transition, in bytes and CPU, beside a bare INSERT of as many bytes; and how long a
backtest of 30 days of 7,500 nodes takes.

`python bench/history.py`. Every node reports as a recorded DGX H100 does, with parts of its own; 1,500
transitions a day: findings of four checks that come and go, and warnings that ask for nothing.
"""

from __future__ import annotations

import os
import random
import resource
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parent.parent))

from fixtures.bundles import bundle_path
from nodeguard.aggregator.history.reader import read_history
from nodeguard.aggregator.history.store import HistoryStore
from nodeguard.backtest.backtest import run_backtest
from nodeguard.backtest.recordings import recording_steps as recorded
from nodeguard.bundle.recording import Recording
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.derive.derive import PlatformHints
from nodeguard.fleet.state.history_events import HistoryEvent, NodeObserved, ReportReceived
from nodeguard.model.finding import Health
from nodeguard.model.node import Node
from nodeguard.model.policy import Mode, Policy
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.sources.registry import all_sources
from nodeguard.wire.digest import digest
from nodeguard.wire.report import Report, ReportedFinding, ReportedPassing
from tests.fleet.scene import finding

NODES = 7500
DAYS = 30
A_DAY = 1500
BATCH = 500
START = 1_700_000_000.0

KINDS = (("gpu-lost", Health.FATAL), ("port-down", Health.FATAL), ("gpu-row-remap-pending", Health.SUSPECT),
         ("port-flap", Health.SUSPECT))  # fmt: skip
# Of a hundred transitions, so many are of warnings.
WARNINGS = 60


def main() -> None:
    """Print the figures."""
    template = healthy()
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory) / "history.sqlite")
        store = HistoryStore(path)
        first = [step for number in range(NODES) for step in joined(number, template)]
        took = written(store, first)
        row("what holds of a fleet of 7,500", took, len(first), store.size())
        before, days = store.size(), list(month(template))
        took = written(store, days)
        row("transitions", took, len(days), store.size() - before)
        reference(directory, len(days), (store.size() - before) // len(days))
        began = time.perf_counter()
        store.trim(START + DAYS * 86_400.0, DAYS - 1, 1 << 30)
        print(f"{'to let go of a day':44}{time.perf_counter() - began:9.2f} s")
        store.close()
        checks = [check.id for check in load_catalogue()[0].checks]
        for name, mode in (("enforced", Mode.ENFORCE), ("observed", Mode.OBSERVE)):
            began = time.process_time()
            past = read_history(path)
            found = run_backtest(past.steps, [Policy(mode=mode)], checks, 0.0, past.last_alive)
            took = time.process_time() - began
            many = len(found.results[0].marks)
            print(f"{f'a backtest, {name}: {found.reports} reports':44}{took:9.2f} s of CPU   {many} spans")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak of this process: {peak:.0f} MiB; load of the machine: {os.getloadavg()[0]:.2f}")


def healthy() -> Report:
    """The report of a recorded machine that is well."""
    catalogue, signals = load_catalogue()
    recording = Recording.open(str(bundle_path("healthy-dgx-h100")))
    judgement = Pipeline(catalogue, signals, PlatformHints(recording.manifest.platform), one_shot=True)
    found = recorded("node", recording, all_sources(catalogue.patterns), judgement, catalogue)
    return [step.report for step in found if isinstance(step, ReportReceived)][-1]


def joined(number: int, template: Report) -> Iterator[HistoryEvent]:
    """A node and its first report."""
    labels = {f"feature.node.kubernetes.io/cpu-{bit}": "true" for bit in range(60)}
    places = {
        "topology.kubernetes.io/zone": "z1",
        "rack": f"r{number // 8}",
        "kubernetes.io/hostname": f"node-{number}",
    }
    yield NodeObserved(START, Node(f"node-{number}", f"uid-{number}", labels={**labels, **places}, gpus=8))
    yield said(START, number, 0, template)


def said(
    at: float, number: int, sequence: int, template: Report, *findings: ReportedFinding
) -> ReportReceived:
    """What a node says: that it is well, or what is found."""
    inventory = template.inventory
    own = {slot: replace(part, id=f"{part.id}-{number}") for slot, part in inventory.components.items()}
    proven = template.passing
    if findings:
        names = {one.check for one in findings}
        proven = tuple(
            ReportedPassing(tuple(check for check in each.checks if check not in names), each.targets)
            for each in proven
        )
    made = replace(
        template,
        node=f"node-{number}",
        sequence=sequence,
        findings=findings,
        health=max((one.health for one in findings), key=lambda one: one.rank, default=Health.OK),
        inventory=replace(inventory, components=own),
        passing=proven,
    )
    return ReportReceived(at, f"uid-{number}", replace(made, digest=digest(made)))


def month(template: Report) -> Iterator[HistoryEvent]:
    """Findings that begin and end, by time."""
    chance = random.Random(1)
    begun: list[tuple[float, int, ReportedFinding | None]] = []
    for _ in range(DAYS * A_DAY // 2):
        at, number = START + 60.0 + chance.random() * DAYS * 86_400.0, chance.randrange(NODES)
        check, health = chance.choice(KINDS)
        if chance.randrange(100) < WARNINGS:
            check, health = "gpu-hot", Health.WARNING
        slots = [slot for slot in template.inventory.components if slot.startswith(check.partition("-")[0])]
        begun.append((at, number, finding(check, chance.choice(slots), health=health, age=0.0)))
        begun.append((at + chance.expovariate(1 / 7200.0), number, None))
    for sequence, (at, number, one) in enumerate(sorted(begun, key=lambda each: each[0]), 1):
        yield said(at, number, sequence, template, *((one,) if one else ()))


def written(store: HistoryStore, steps: list[HistoryEvent]) -> float:
    """CPU seconds of writing some steps."""
    began = time.process_time()
    for start in range(0, len(steps), BATCH):
        store.add(steps[start : start + BATCH], START)
    return time.process_time() - began


def reference(directory: str, many: int, size: int) -> None:
    """As many rows of one text each."""
    connection = sqlite3.connect(Path(directory) / "bare.sqlite", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("CREATE TABLE bare (id INTEGER PRIMARY KEY, text TEXT)")
    began = time.process_time()
    for start in range(0, many, BATCH):
        connection.execute("BEGIN")
        for number in range(start, min(start + BATCH, many)):
            connection.execute("INSERT INTO bare (text) VALUES (?)", (f"{number:<{max(1, size - 8)}}",))
        connection.execute("COMMIT")
    row("reference: a bare INSERT of as many bytes", time.process_time() - began, many, many * size)
    connection.close()


def row(what: str, took: float, many: int, size: int) -> None:
    each = f"{took / many * 1e6:7.0f} µs of CPU, {size / many:6.0f} bytes each"
    print(f"{what:44}{many:9} steps   {each}   {size / (1 << 20):7.1f} MiB")


if __name__ == "__main__":
    main()

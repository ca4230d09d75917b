"""Bytes and CPU of a transition in a history, beside a bare INSERT, and CPU of a backtest.

`python bench/history.py`. The bare INSERT is of as many bytes. The backtest is of 30 days of 7,500 nodes.
Every node reports as a recorded DGX H100 does, with components of its own; 1,500 transitions a day: findings
of four checks that start and end, and warnings without a mark.
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
from nodeguard.model.inventory import InventoryNode
from nodeguard.model.policy import Mode, default_policy
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
# Percentage of transitions that are warnings.
WARNINGS = 60


def main() -> None:
    """Print the figures."""
    template = healthy()
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory) / "history.sqlite")
        store = HistoryStore(path)
        first = [step for number in range(NODES) for step in joined(number, template)]
        took = written(store, first)
        row("state of a fleet of 7,500", took, len(first), store.size())
        before, days = store.size(), list(month(template))
        took = written(store, days)
        row("transitions", took, len(days), store.size() - before)
        reference(directory, len(days), (store.size() - before) // len(days))
        began = time.perf_counter()
        store.trim(START + DAYS * 86_400.0, DAYS - 1, 1 << 30)
        print(f"{'removal of a day':44}{time.perf_counter() - began:9.2f} s")
        store.close()
        catalogue, _ = load_catalogue()
        checks = [check.id for check in catalogue.checks]
        policy = default_policy(catalogue.fault_classes)
        for name, mode in (("enforced", Mode.ENFORCE), ("observed", Mode.OBSERVE)):
            began = time.process_time()
            past = read_history(path)
            result = run_backtest(past.steps, [replace(policy, mode=mode)], checks, 0.0, past.last_alive)
            took = time.process_time() - began
            many = len(result.results[0].marks)
            print(f"{f'a backtest, {name}: {result.reports} reports':44}{took:9.2f} s of CPU   {many} spans")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak of this process: {peak:.0f} MiB; load of the machine: {os.getloadavg()[0]:.2f}")


def healthy() -> Report:
    """Return the report of a recorded healthy machine."""
    catalogue, signals = load_catalogue()
    recording = Recording.open(str(bundle_path("healthy-dgx-h100")))
    judgement = Pipeline(catalogue, signals, PlatformHints(recording.manifest.platform), one_shot=True)
    steps = recorded("node", recording, all_sources(catalogue.patterns), judgement, catalogue)
    return [step.report for step in steps if isinstance(step, ReportReceived)][-1]


def joined(number: int, template: Report) -> Iterator[HistoryEvent]:
    """Yield a node and its first report."""
    labels = {f"feature.node.kubernetes.io/cpu-{bit}": "true" for bit in range(60)}
    places = {
        "topology.kubernetes.io/zone": "z1",
        "rack": f"r{number // 8}",
        "kubernetes.io/hostname": f"node-{number}",
    }
    yield NodeObserved(
        START, InventoryNode(f"uid-{number}", f"node-{number}", labels={**labels, **places}, gpus=8)
    )
    yield report_of(START, number, 0, template)


def report_of(
    at: float, number: int, sequence: int, template: Report, *findings: ReportedFinding
) -> ReportReceived:
    """Return the report of a node, healthy without findings."""
    inventory = template.inventory
    components = {
        target: replace(part, id=f"{part.id}-{number}") for target, part in inventory.components.items()
    }
    passing = template.passing
    if findings:
        names = {item.check for item in findings}
        passing = tuple(
            ReportedPassing(tuple(check for check in item.checks if check not in names), item.targets)
            for item in passing
        )
    made = replace(
        template,
        node=f"node-{number}",
        sequence=sequence,
        findings=findings,
        health=max((item.health for item in findings), key=lambda health: health.rank, default=Health.OK),
        inventory=replace(inventory, components=components),
        passing=passing,
    )
    return ReportReceived(at, f"uid-{number}", replace(made, digest=digest(made)))


def month(template: Report) -> Iterator[HistoryEvent]:
    """Yield findings that start and end, by time."""
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
    for sequence, (at, number, item) in enumerate(sorted(begun, key=lambda entry: entry[0]), 1):
        yield report_of(at, number, sequence, template, *((item,) if item else ()))


def written(store: HistoryStore, steps: list[HistoryEvent]) -> float:
    """Write some steps. Returns the CPU seconds that takes."""
    began = time.process_time()
    for start in range(0, len(steps), BATCH):
        store.add(steps[start : start + BATCH], START)
    return time.process_time() - began


def reference(directory: str, many: int, size: int) -> None:
    """Insert as many rows with one text each."""
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


def row(name: str, took: float, count: int, size: int) -> None:
    average = f"{took / count * 1e6:7.0f} µs of CPU, {size / count:6.0f} bytes each"
    print(f"{name:44}{count:9} steps   {average}   {size / (1 << 20):7.1f} MiB")


if __name__ == "__main__":
    main()

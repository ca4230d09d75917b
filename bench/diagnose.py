"""Duration of the diagnosis of 7,500 nodes, beside the encoding of 7,500 small objects as JSON.

`python bench/diagnose.py`. From scratch: all nodes and all votes are new, as at the start of an aggregator.
One change: the diagnosis after one more vote.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent.parent))

from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.fleet.diagnosis.diagnosis import Diagnosis
from nodeguard.fleet.diagnosis.node_evidence import NodeEvidence
from nodeguard.fleet.state.fleet_state import FleetState
from nodeguard.model.diagnosis import DiagnosisPolicy
from nodeguard.model.policy import Policy

NODES, LEAF, LEAVES, RACK, ROW = 7500, 28, 18, 8, 16
RUNS, CHANGES = 7, 500

VIEWS = {"port-down": ("fabric",), "gpu-thermal-slowdown": ("rack",), "gpu-lost": ()}


def main() -> None:
    """Print the figures."""
    objects = [{"node": f"node-{number}", "gpus": 8, "ok": True} for number in range(NODES)]
    row("reference: json of 7,500 objects", [timed(lambda: json.dumps(objects)) for _ in range(RUNS)])
    order = random.Random(1)
    rule = DiagnosisPolicy(classes=load_catalogue()[0].fault_classes)
    for name, check, unhealthy in (
        ("20 nodes flap", "port-down", order.sample(range(NODES), 20)),
        ("a leaf is down", "port-down", range(LEAF)),
        ("a pod is down", "port-down", range(LEAF * LEAVES)),
        ("1,000 nodes are hot", "gpu-thermal-slowdown", order.sample(range(NODES), 1000)),
        ("a check fires everywhere", "gpu-lost", range(NODES)),
    ):
        build = partial(diagnose_from_scratch, rule, check, unhealthy)
        row(f"{name}: from scratch", [timed(build) for _ in range(RUNS)])
        diagnosis = build()
        row(f"{name}: one change", list(changes(diagnosis, check, order)))
    print(f"load of the machine in the last minute: {os.getloadavg()[0]:.2f}")


def diagnose_from_scratch(rule: DiagnosisPolicy, check: str, unhealthy: Iterable[int]) -> Diagnosis:
    """Return a diagnosis that has just received everything."""
    made = Diagnosis(rule, NodeEvidence(FleetState(Policy())))
    for number in range(NODES):
        leaf, rack = number // LEAF, number // RACK
        paths = (
            f"fabric/p{leaf // LEAVES}/l{leaf}", f"rack/row{rack // ROW}/r{rack}",
            f"power/f{rack // 32}/r{rack}", "driver/580.95.05", "kernel/6.8.0", "agent/0.1.0", "catalogue/1",
        )  # fmt: skip
        made.voting.set_domains(f"uid-{number}", paths)
    made.evaluate(-1_000_000.0)
    for number in unhealthy:
        made.vote(f"uid-{number}", check, VIEWS[check], 1_000.0)
    made.evaluate(1_000.0)
    made.evaluate(1_020.0)
    return made


def changes(diagnosis: Diagnosis, check: str, order: random.Random) -> Iterable[float]:
    """Yield the milliseconds of one more vote each."""
    for number, node in enumerate(order.sample(range(NODES), CHANGES)):
        at = 1_020.0 + number * 0.01
        uid = f"uid-{node}"

        def change(uid: str = uid, at: float = at) -> None:
            diagnosis.vote(uid, check, VIEWS[check], at)
            diagnosis.evaluate(at)

        yield timed(change)


def timed(work: Callable[[], object]) -> float:
    """Return the milliseconds of a call."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1e3


def row(name: str, times: Iterable[float]) -> None:
    """Print a row: the median, and the maximum."""
    taken = list(times)
    print(f"{name:<44}{median(taken):>10.3f} ms{max(taken):>12.3f} ms at most", flush=True)


if __name__ == "__main__":
    main()

"""An agent that is killed at random moments: no fault is lost, and none counted twice.

`NODEGUARD_KILLS=200` kills it so many times.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from fixtures.bundles import bundle_path
from nodeguard.agent.state import decode_state
from nodeguard.model.target import gpu_target
from nodeguard.wire.report import Report
from tests.agent.reporting.receiver import Receiver, receiving
from tests.waiting import PROMPTLY, until

pytestmark = pytest.mark.slow

BUNDLE = bundle_path("healthy-dgx-h100")
KILLS = int(os.environ.get("NODEGUARD_KILLS", "15"))

# Of applications: nothing that the GPU says of itself ends what they make, and they are no finding.
XIDS = (13, 31, 43, 45)

# No answer of the GPU System Processor: a finding, so that the memory is written at once.
REPORTED_XID = 119

Fault = tuple[str, int]


class Node:
    """A node on a bundle whose kernel log grows, and what was written into it."""

    def __init__(self, directory: Path, receiver: Receiver) -> None:
        self.bundle = Path(shutil.copytree(BUNDLE, directory / "bundle", symlinks=True))
        self.state = directory / "state"
        self.config = directory / "agent.yaml"
        (directory / "token").write_text("secret")
        self.config.write_text(
            f"state: {self.state}\nlisten: 127.0.0.1:0\n"
            f"aggregator: {{addresses: ['{receiver.address}'], token_file: {directory}/token}}\n"
        )
        known = (json.loads((self.bundle / "nvml.json").read_text()))["devices"]
        self.gpus = [gpu_target(device["nvmlDeviceGetPciInfo_v3"]["busId"]) for device in known]
        self.written: Counter[Fault] = Counter()
        self.heard: list[dict[str, object]] = []

    @contextmanager
    def agent(self) -> Iterator[subprocess.Popen[str]]:
        words = ["agent", "--from", str(self.bundle), "--config", str(self.config)]
        command = [sys.executable, "-m", "nodeguard.cli.main", *words]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                yield process
            finally:
                process.kill()
                assert process.stderr is not None
                self.heard += _lines(process.stderr)

    def write(self, count: int) -> None:
        with (self.bundle / "kmsg").open("a") as log:
            for _ in range(count):
                log.write(self._line(random.choice(XIDS)))

    def write_reported(self) -> None:
        """Write an Xid of which the agent makes a finding."""
        with (self.bundle / "kmsg").open("a") as log:
            log.write(self._line(REPORTED_XID))

    def _line(self, xid: int) -> str:
        number, slot = sum(self.written.values()), random.choice(self.gpus)
        self.written[slot, xid] += 1
        text = f"NVRM: Xid (PCI:{slot.removeprefix('gpu/')}): {xid}, pid=1234, name=train, text"
        return f"3,{5000 + number},{1_000_000_000_000 + number},-;{text}\n"

    def remembered(self) -> Counter[Fault]:
        slots = decode_state((self.state / "state").read_bytes()).pipeline.judged.targets
        return Counter(
            {
                (name, int(one.fields["xid"])): one.count
                for name, slot in slots.items()
                for one in slot.events.values()
                if "xid" in one.fields
            }
        )


def _lines(log: IO[str]) -> list[dict[str, object]]:
    """Lines of a log, the last of which may have been cut by a kill."""
    found = []
    for line in log.read().splitlines():
        assert "Traceback" not in line
        if line.endswith("}"):
            found.append(json.loads(line))
    return found


def named(report: Report) -> set[tuple[str, str]]:
    return {(one.check, one.target) for one in report.findings}


def test_killed_at_any_moment_it_loses_and_doubles_nothing(tmp_path: Path) -> None:
    random.seed(5)
    with receiving() as receiver:
        node = Node(tmp_path, receiver)
        for _ in range(KILLS):
            with node.agent():
                time.sleep(random.uniform(0.0, 0.8))
                node.write(random.randint(0, 3))
                time.sleep(random.uniform(0.0, 0.8))
        node.write_reported()
        with node.agent() as process:
            until(lambda: node.state.exists() and node.remembered() == node.written, every=0.2)
            until(lambda: receiver.applied and not receiver.applied[-1].leaving)
            process.send_signal(signal.SIGTERM)
            process.wait(PROMPTLY)
    assert node.remembered() == node.written
    assert receiver.applied[-1].leaving
    numbers = [one.sequence for one in receiver.applied]
    assert numbers == sorted(set(numbers))
    told = {(one["check"], one["target"]) for one in node.heard if one["event"] == "finding"}
    for one in receiver.applied:
        assert named(one) <= told
    assert node.heard[-1]["event"] == "end"

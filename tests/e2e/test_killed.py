"""An agent that is killed at random times loses no fault, and counts none twice.

`NODEGUARD_KILLS=200` sets the number of kills.
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

# Xids of applications: they cause no finding, and no reading of the GPU clears them.
XIDS = (13, 31, 43, 45)

# The GPU System Processor does not answer: a finding, so that the agent writes its state at once.
REPORTED_XID = 119

# The agent ends within two seconds, without a last report if the aggregator is slower: see
# tests/agent/reporting/test_last_report.py. On a busy machine the receiver of this test may be.
_PATIENT_AGENT = f"""
import sys
from nodeguard.agent import service
from nodeguard.agent.reporting import endpoint_pool
from nodeguard.cli.main import main
service._LAST = endpoint_pool.LAST = endpoint_pool._UNDER_WAY = {PROMPTLY}
sys.exit(main())
"""

Fault = tuple[str, int]


class Node:
    """A node with a bundle, and the faults that the test has written to its kernel log."""

    def __init__(self, directory: Path, receiver: Receiver) -> None:
        self.bundle = Path(shutil.copytree(BUNDLE, directory / "bundle", symlinks=True))
        self.state = directory / "state"
        self.config = directory / "agent.yaml"
        (directory / "token").write_text("secret")
        self.config.write_text(
            f"state: {self.state}\nlisten: 127.0.0.1:0\n"
            f"aggregator: {{addresses: ['{receiver.address}'], token_file: {directory}/token}}\n"
        )
        devices = json.loads((self.bundle / "nvml.json").read_text())["devices"]
        self.gpus = [gpu_target(device["nvmlDeviceGetPciInfo_v3"]["busId"]) for device in devices]
        self.written: Counter[Fault] = Counter()
        self.log: list[dict[str, object]] = []

    @contextmanager
    def agent(self) -> Iterator[subprocess.Popen[str]]:
        arguments = ["agent", "--from", str(self.bundle), "--config", str(self.config)]
        command = [sys.executable, "-c", _PATIENT_AGENT, *arguments]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                yield process
            finally:
                process.kill()
                assert process.stderr is not None
                self.log += _lines(process.stderr)

    def write(self, count: int) -> None:
        with (self.bundle / "kmsg").open("a") as log:
            for _ in range(count):
                log.write(self._line(random.choice(XIDS)))

    def write_reported(self) -> None:
        """Write an Xid that causes a finding."""
        with (self.bundle / "kmsg").open("a") as log:
            log.write(self._line(REPORTED_XID))

    def _line(self, xid: int) -> str:
        number, gpu = sum(self.written.values()), random.choice(self.gpus)
        self.written[gpu, xid] += 1
        text = f"NVRM: Xid (PCI:{gpu.removeprefix('gpu/')}): {xid}, pid=1234, name=train, text"
        return f"3,{5000 + number},{1_000_000_000_000 + number},-;{text}\n"

    def stored_faults(self) -> Counter[Fault]:
        """Return the faults in the agent's state file, none before its first write."""
        file = self.state / "state"
        targets = decode_state(file.read_bytes()).pipeline.judged.targets if file.exists() else {}
        return Counter(
            {
                (name, int(event.fields["xid"])): event.count
                for name, target in targets.items()
                for event in target.events.values()
                if "xid" in event.fields
            }
        )


def _lines(log: IO[str]) -> list[dict[str, object]]:
    """Return the lines of a log. A kill may have cut the last one."""
    lines = []
    for line in log.read().splitlines():
        assert "Traceback" not in line
        if line.endswith("}"):
            lines.append(json.loads(line))
    return lines


def finding_keys(report: Report) -> set[tuple[str, str]]:
    return {(finding.check, finding.target) for finding in report.findings}


def test_an_agent_killed_at_any_time_loses_and_doubles_no_fault(tmp_path: Path) -> None:
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
            until(lambda: node.stored_faults() == node.written, every=0.2)
            process.send_signal(signal.SIGTERM)
            process.wait(PROMPTLY)
    assert node.stored_faults() == node.written
    assert receiver.applied[-1].leaving
    numbers = [report.sequence for report in receiver.applied]
    assert numbers == sorted(set(numbers))
    logged = {(line["check"], line["target"]) for line in node.log if line["msg"] == "finding raised"}
    for report in receiver.applied:
        assert finding_keys(report) <= logged
    assert node.log[-1]["msg"] == "agent stopped"

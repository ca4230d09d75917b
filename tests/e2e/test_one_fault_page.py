"""The page that follows one fault from start to end prints what its commands show, on a real API server."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.cluster import Cluster
from tests.docs.pages import Block, blocks
from tests.e2e import scene
from tests.e2e.fleet import Agent, Fleet
from tests.e2e.operator import Operator
from tests.e2e.scene import running_fleet
from tests.waiting import until

pytestmark = pytest.mark.slow

PAGE = "docs/tasks/one-fault.md"
# The node of the page, and a machine that loses the GPU of the page 55 s after its start.
NODE, RECORDING = "gpu-7", "gpu-off-bus"
# The soak period is long enough to be seen, and shorter than that of a fleet.
POLICY = """
modeRules: [{check: gpu-lost, marks: [quarantine], mode: enforce}]
soak: {initial: 30s}
"""


@pytest.fixture
def fleet(controlplane: Cluster) -> Iterator[Fleet]:
    with running_fleet(controlplane, POLICY, NODE, "gpu-8", bundles={NODE: RECORDING}) as running:
        yield running


def test_each_transcript_is_what_its_command_prints(fleet: Fleet, tmp_path: Path) -> None:
    agent, log = fleet.agents[NODE], fleet.cluster.processes.log(f"agent-{NODE}")
    [aggregator] = fleet.aggregators
    sockets = {"NODEGUARD_AGGREGATOR_SOCKET": str(aggregator.socket)}
    operator = Operator(fleet.cluster.kubeconfig, log.read_text, tmp_path, {}, sockets)
    kernel, finding, decided, in_kubernetes, soaking, history = blocks(PAGE)
    assert kernel.text in "".join(
        f"{line.partition(';')[2]}\n"
        for line in (agent.bundle / "frames/000060/kmsg").read_text().splitlines()
    )
    # The agent replays a minute before the fault: a command in a loop would cost more than all of this test.
    aggregator.until(lambda: scene.is_marked(fleet.cluster, NODE))
    for block in (decided, in_kubernetes):
        until_shown(operator, block)
    logged = [json.loads(line) for line in log.read_text().splitlines()]
    assert any(json.loads(finding.text).items() <= entry.items() for entry in logged)
    reboot(agent)
    aggregator.until(lambda: scene.has_incident_state(fleet.cluster, NODE, "Recovering"))
    until_shown(operator, soaking)
    aggregator.until(lambda: scene.is_unmarked(fleet.cluster, NODE))
    until_shown(operator, history)


def reboot(agent: Agent) -> None:
    """Start the machine again, as it was before it lost the GPU."""
    agent.kill()
    shutil.rmtree(agent.bundle / "frames")
    manifest = agent.bundle / "bundle.yaml"
    manifest.write_text(manifest.read_text().replace('boot_id: "b', 'boot_id: "c'))
    agent.start()


def until_shown(operator: Operator, block: Block) -> None:
    """Wait until the commands of a block print what the page shows, where an ellipsis is anything."""
    for transcript in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, printed = transcript.partition("\n")
        _until_printed(operator, command, re.escape(masked(printed)).replace("…", ".*"))


def _until_printed(operator: Operator, command: str, pattern: str) -> None:
    output = ""

    def is_printed() -> bool:
        nonlocal output
        output = operator.run(PAGE, command)
        return re.fullmatch(pattern, masked(output), re.DOTALL) is not None

    until(is_printed, lambda: f"{pattern}\nis not:\n{output}", every=0.5)


def masked(text: str) -> str:
    """Return a text in one line, without what differs between runs: times, ages and the hash of an incident."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "TIME", text)
    text = re.sub(r"\b\d+(m\d+)?s\b", "AGE", text)
    return re.sub(r"-[0-9a-f]{8}\b", "-HASH", " ".join(text.split()))

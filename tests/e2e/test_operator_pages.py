"""The tasks of an operator of a cluster, with the commands of their pages, on a real API server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.cluster import Cluster
from tests.docs.pages import blocks, example
from tests.e2e import scene
from tests.e2e.fleet import Fleet
from tests.e2e.operator import Operator
from tests.e2e.scene import running_fleet
from tests.waiting import until

pytestmark = pytest.mark.slow

# A drain needs a kubelet: tests/e2e/test_pods.py runs it.
ENFORCE, HOLD, RETURN = (
    f"docs/tasks/{name}.md" for name in ("enforce-the-first-check", "pause-hold-unmark", "return-a-node")
)
RUNBOOK = "docs/runbooks/node-quarantined.md"

# The node of the pages, and a machine that loses the GPU of the pages 55 s after its start.
NODE, RECORDING = "gpu-7", "gpu-off-bus"

# Appended to the policy of the page: the waits of a fleet take minutes.
FAST = "gracePeriod: {quarantine: 1s}\nsoak: {initial: 1s}\n"

DESCRIBE, DESCRIBE_NODE = f"nodeguard describe node {NODE}", f"kubectl describe node {NODE}"

# No kubelet runs a pod here: commands of nodeguard ask the aggregator of this machine.
NAMES = {"kubectl exec -i -n nodeguard deploy/nodeguard-aggregator --": ""}


@pytest.fixture
def fleet(controlplane: Cluster) -> Iterator[Fleet]:
    with running_fleet(
        controlplane, "defaultMode: observe\n", NODE, "gpu-8", bundles={NODE: RECORDING}
    ) as running:
        yield running


@pytest.fixture
def operator(fleet: Fleet, tmp_path: Path) -> Operator:
    [aggregator] = fleet.aggregators
    log = fleet.cluster.processes.log(aggregator.name)
    sockets = {"NODEGUARD_AGGREGATOR_SOCKET": str(aggregator.socket)}
    return Operator(fleet.cluster.kubeconfig, log.read_text, tmp_path, NAMES, sockets)


def shown(text: str) -> str:
    """Return a text in one line, without the hash of an incident and the sizes of the catalogue."""
    line = re.sub(r"-[0-9a-f]{8}\b", "-HASH", " ".join(text.split()))
    return re.sub(r"\d+ (fatal|suspect) checks", r"N \1 checks", line)


# What the pages print before a message of `kubectl describe`, without the columns of times.
_COLUMNS = re.compile(r"^(Warning Nodeguard\w+|NodeguardHealthy False Quarantined) ")


def until_shown(operator: Operator, command: str, printed: str) -> None:
    """Wait until a command of the page shows what the page prints."""
    message = _COLUMNS.sub("", shown(printed))
    output = ""

    def is_shown() -> bool:
        nonlocal output
        output = operator.run(ENFORCE, command)
        return message in shown(output)

    until(is_shown, lambda: f"'{message}' is not in:\n{output}", every=0.3)


def test_the_first_check_is_enforced_paused_held_and_released(fleet: Fleet, operator: Operator) -> None:
    see_the_dry_run(fleet, operator)
    enforce(fleet, operator)
    pause(fleet, operator)
    hold_and_unmark(fleet, operator)
    return_the_node(fleet, operator)


def see_the_dry_run(fleet: Fleet, operator: Operator) -> None:
    until_shown(operator, DESCRIBE_NODE, example(ENFORCE, "Warning  NodeguardDryRun"))
    assert "1 node would be quarantined" in shown(operator.run(ENFORCE, "nodeguard status"))
    assert "dry run" in operator.run(ENFORCE, "nodeguard get incidents --check gpu-lost --all")
    assert "would be quarantined: gpu-lost" in operator.run(ENFORCE, DESCRIBE)
    assert scene.taints(fleet.cluster, NODE) == []


def enforce(fleet: Fleet, operator: Operator) -> None:
    [aggregator] = fleet.aggregators
    policy = next(block.text for block in blocks(ENFORCE) if block.text.startswith("modeRules:"))
    operator.write("policy.yaml", policy)
    checked = operator.run(ENFORCE, "nodeguard policy check policy.yaml --nodes 512")
    assert shown(checked).startswith(shown(example(ENFORCE, "policy.yaml - ok")))
    in_pod = "kubectl exec -i -n nodeguard deploy/nodeguard-aggregator --"
    piped = operator.run(ENFORCE, f"{in_pod} nodeguard policy check - --nodes 512 < policy.yaml")
    assert "by 1 of" in piped
    # The kubelet brings the ConfigMap to the aggregator, with the same text.
    fleet.policy.write_text(policy + FAST)
    aggregator.until(lambda: scene.is_marked(fleet.cluster, NODE))
    taints, condition, event = example(ENFORCE, "Taints:  nodeguard.dev").split("\n\n")
    for part in (taints, condition, event):
        until_shown(operator, DESCRIBE_NODE, part)
    until_shown(operator, "nodeguard status", "observe by default; enforced: gpu-lost")
    assert operator.run(RUNBOOK, DESCRIBE).startswith(f"FATAL  {NODE}")


def pause(fleet: Fleet, operator: Operator) -> None:
    operator.run(HOLD, 'nodeguard pause --reason "a bad driver"')
    until_shown(operator, "nodeguard status", "a bad driver")
    operator.run(HOLD, "nodeguard resume")
    assert "a bad driver" not in shown(operator.run(ENFORCE, "nodeguard status"))
    assert scene.is_marked(fleet.cluster, NODE)


def hold_and_unmark(fleet: Fleet, operator: Operator) -> None:
    [aggregator] = fleet.aggregators
    operator.run(HOLD, f'kubectl annotate node {NODE} nodeguard.dev/hold="alice debugs it"')
    until_shown(operator, DESCRIBE, "alice debugs it")
    operator.run(HOLD, f"kubectl annotate node {NODE} nodeguard.dev/hold-")
    operator.run(HOLD, f'nodeguard unmark {NODE} --reason "a false alarm"')
    aggregator.until(lambda: not scene.is_marked(fleet.cluster, NODE))
    held = scene.get_node(fleet.cluster, NODE)["metadata"]["annotations"]["nodeguard.dev/hold"]
    assert "a false alarm" in held
    # A fault that still exists is marked again.
    operator.run(HOLD, f"kubectl annotate node {NODE} nodeguard.dev/hold-")
    aggregator.until(lambda: scene.is_marked(fleet.cluster, NODE))
    operator.run(HOLD, f'kubectl annotate node {NODE} nodeguard.dev/maintenance="firmware"')
    until_shown(operator, DESCRIBE, "firmware")
    fleet.cluster.kubectl("annotate", "node", NODE, "nodeguard.dev/maintenance-")


def return_the_node(fleet: Fleet, operator: Operator) -> None:
    [aggregator] = fleet.aggregators
    until_shown(operator, DESCRIBE, "waiting for")
    assert "gpu-lost" in operator.run(RETURN, f"nodeguard get incidents --node {NODE}")
    clear = f"nodeguard incidents clear {NODE}/gpu-ecc-uncorrectable"
    operator.run(RETURN, clear, {"gpu-ecc-uncorrectable": "gpu-lost"}, accept={3})
    operator.run(RETURN, f"kubectl taint node {NODE} nodeguard.dev/quarantine-")
    aggregator.until(lambda: scene.is_marked(fleet.cluster, NODE))

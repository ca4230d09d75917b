"""A receiver that owns the nodes, with real aggregators: over outages of both, and a kill."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nodeguard.fleet.state.node_marks import decode_record
from nodeguard.model.mark import STATE_ANNOTATION, MarkRecord
from tests.controlplane.cluster import Cluster
from tests.e2e.processes import until
from tests.e2e.scene import (
    ENFORCED,
    get_node,
    has_incident_state,
    inject_gpu_fault,
    is_marked,
    is_unmarked,
    log_driver_load,
    running_fleet,
    taints,
)
from tests.e2e.test_standalone import XID, Site, insecure_settings
from tests.executors.receiver import MarkReceiver
from tests.waiting import PROMPTLY

pytestmark = pytest.mark.slow


def settings_file(directory: Path, receiver: MarkReceiver, owns: str) -> str:
    """Write a notification file with a receiver that owns nodes, and return its path."""
    file = directory / "notifications.yaml"
    file.write_text(f"markWebhooks:\n- {{name: scheduler, url: '{receiver.url}', owns: {owns}}}\n")
    return str(file)


class Owned:
    """A site without Kubernetes, with a node that a receiver owns."""

    def __init__(self, directory: Path, receiver: MarkReceiver) -> None:
        self.site, self.receiver = Site(directory), receiver
        self._options = ("--insecure", "--notifications", settings_file(directory, receiver, "{}"))
        self._state = directory / "state" / "decisions.json"
        self._stack = ExitStack()

    def start(self) -> subprocess.Popen[bytes]:
        return self._stack.enter_context(self.site.aggregator(*self._options))

    def begin(self) -> subprocess.Popen[bytes]:
        """Start the aggregator and the agent, and let the node have a fault."""
        process = self.start()
        bundle = self._stack.enter_context(self.site.node("gpu-1", insecure_settings(self.site)))
        self.site.wait_for_reports(1)
        with (bundle / "kmsg").open("a") as kernel:
            kernel.write(XID)
        return process

    def close(self) -> None:
        self._stack.close()

    def record(self) -> MarkRecord:
        nodes = json.loads(self._state.read_text()).get("nodes", {}) if self._state.exists() else {}
        return decode_record(nodes.get("gpu-1", {}).get("state", "")) or MarkRecord()

    def accepted(self) -> tuple[str, ...]:
        accepted = self.record().accepted
        return () if accepted is None else accepted.marks

    def marked(self) -> int:
        """Return the number of nodes with a quarantine in effect."""
        count: int = self.site.query("status")["marked"]["quarantine"]["nodes"]
        return count

    def text(self, *arguments: str) -> str:
        return " ".join(self.site.run(*arguments).stdout.split())


@pytest.fixture
def owned(tmp_path: Path) -> Iterator[Owned]:
    receiver = MarkReceiver()
    with receiver.serving():
        scene = Owned(tmp_path, receiver)
        yield scene
        scene.close()
    assert "Traceback" not in scene.site.log.read_text()


def test_a_mark_counts_when_the_receiver_has_accepted_it(owned: Owned) -> None:
    receiver = owned.receiver
    receiver.status = 503
    owned.begin()
    log = owned.site.log
    until(lambda: bool(owned.record().causes), log)
    late = "its write waits for a 2xx response of the webhook scheduler, which owns the node, since "
    until(
        lambda: late in (text := owned.text("describe", "node", "gpu-1")) and "HTTP status 503" in text, log
    )
    owner = "webhook scheduler: a mark is in effect once its receiver has accepted it"
    assert owner in owned.text("describe", "node", "gpu-1")
    status = owned.text("status")
    assert "1 owned by webhook scheduler" in status
    assert "the webhook that owns the node has not accepted the mark" in status
    assert (owned.accepted(), owned.marked(), receiver.drained) == ((), 0, {})
    receiver.status = 200
    until(lambda: owned.accepted() == ("quarantine",), log)
    until(lambda: owned.site.states() == {"gpu-1": "Marked"}, log)
    assert owned.marked() == 1
    assert "marked quarantine 1 node" in owned.text("status")
    assert receiver.drained == {"gpu-1": {"quarantine"}}


def test_a_successor_knows_what_the_receiver_has_accepted(owned: Owned) -> None:
    receiver = owned.receiver
    process = owned.begin()
    site = owned.site
    until(lambda: owned.accepted() == ("quarantine",), site.log)
    receiver.status = 503
    process.send_signal(signal.SIGKILL)
    process.wait(PROMPTLY)
    owned.start()
    site.wait_for_reports(1)
    until(lambda: site.states() == {"gpu-1": "Marked"}, site.log)
    assert owned.marked() == 1

    [incident] = [item["name"] for item in site.query("get", "incidents", "--node", "gpu-1")["incidents"]]
    assert site.run("incidents", "clear", incident).returncode == 0
    removal = "the write that removes the mark waits for a 2xx response of the webhook scheduler"
    until(lambda: removal in owned.text("describe", "incident", incident), site.log)
    assert owned.accepted() == ("quarantine",)
    assert owned.marked() == 1
    used = {item["name"]: item["used"] for item in site.query("get", "budgets")["budgets"]}
    assert used["fleet"] == 1
    receiver.status = 200
    until(lambda: (receiver.drained, owned.marked()) == ({}, 0), site.log)
    until(lambda: (owned.accepted(), owned.record().causes) == ((), ()), site.log)


def test_a_receiver_owns_some_nodes_of_a_cluster(controlplane: Cluster, tmp_path: Path) -> None:
    receiver = MarkReceiver()
    options = ("--notifications", settings_file(tmp_path, receiver, "{node: 's-*'}"))

    def record(name: str) -> MarkRecord:
        annotations = get_node(controlplane, name)["metadata"].get("annotations", {})
        return decode_record(annotations.get(STATE_ANNOTATION, "")) or MarkRecord()

    names = ("s-1", "k-1")
    with receiver.serving(), running_fleet(controlplane, ENFORCED, *names, options=options) as fleet:
        [aggregator] = fleet.aggregators
        receiver.status = 503
        for agent in fleet.agents.values():
            inject_gpu_fault(agent)
        aggregator.until(lambda: is_marked(controlplane, "k-1"))
        aggregator.until(lambda: record("s-1").causes)
        assert record("s-1").accepted is None
        receiver.status = 200
        aggregator.until(lambda: record("s-1").accepted)
        aggregator.until(lambda: has_incident_state(controlplane, "s-1", "Marked"))
        receiver.status = 503
        aggregator.kill()
        aggregator.start()
        aggregator.until(lambda: aggregator.metric("nodeguard_aggregator_active") == 1)
        assert receiver.drained == {"s-1": {"quarantine"}}
        assert has_incident_state(controlplane, "s-1", "Marked")
        for agent in fleet.agents.values():
            log_driver_load(agent)
        aggregator.until(lambda: is_unmarked(controlplane, "k-1"))
        assert record("s-1").accepted
        receiver.status = 200
        aggregator.until(lambda: receiver.drained == {})
        aggregator.until(lambda: record("s-1").accepted is None and not record("s-1").causes)
        assert not taints(controlplane, "s-1")

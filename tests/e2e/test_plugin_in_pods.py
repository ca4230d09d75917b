"""The kubectl plug-in and the Role nodeguard-admin: commands in the pod of the leader, on real kubelets."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.laptop import USER, Laptop
from tests.e2e.pod_fleet import VALUES, PodFleet
from tests.kubelet.site import Site
from tests.waiting import PROMPTLY

pytestmark = pytest.mark.slow


@pytest.fixture
def fleet(site: Site) -> Iterator[PodFleet]:
    """nodeguard on two nodes, with the role of administrators."""
    running = PodFleet(site)
    running.install({**VALUES, "roles": {"admin": {"enabled": True}}})
    running.settle()
    yield running
    running.uninstall()


def test_an_administrator_runs_commands_in_the_pod_of_the_leader(fleet: PodFleet, tmp_path: Path) -> None:
    laptop = Laptop(fleet.site.cluster, "administrator", tmp_path)
    assert "the Role nodeguard-admin" in laptop.run("status", code=3)
    laptop.give("role", "nodeguard-admin")
    begin = fleet.site.audit.size()
    read_the_fleet(laptop, fleet)
    ask_an_agent(laptop)
    pause_and_resume(laptop)
    answer_a_question(laptop)
    assert fleet.site.audit.forbidden(begin) == []
    # It gives no right to read incidents.
    assert "the ClusterRole nodeguard-viewer" in laptop.run("get", "incidents", code=3)


def read_the_fleet(laptop: Laptop, fleet: PodFleet) -> None:
    replica = json.loads(laptop.run("status", "-o", "json"))["replica"]
    assert replica["is_leader"]
    assert replica["leader"] == fleet.leader()
    assert "2 nodes" in laptop.run_printed("kubectl nodeguard status")
    assert "node-1" in laptop.run_printed("kubectl nodeguard describe node gpu-7", **{"gpu-7": "node-1"})
    assert "node 'gpu-99' not found" in laptop.run("describe", "node", "gpu-99", code=3)


def ask_an_agent(laptop: Laptop) -> None:
    printed = "kubectl nodeguard --on gpu-7 status --agent --values"
    laptop.run_printed(printed, **{"gpu-7": "node-1"})
    values = laptop.run("--on", "node-1", "status", "--agent", "--values", "-o", "json")
    assert json.loads(values)["node"] == "node-1"
    checked = json.loads(laptop.run("--on", "node-1", "check", "-o", "json", "--fail-on", "never"))
    assert checked["evaluated_targets"]
    assert "no agent runs on a node 'gpu-99'" in laptop.run("--on", "gpu-99", "status", "--agent", code=3)


def pause_and_resume(laptop: Laptop) -> None:
    laptop.run_printed('kubectl nodeguard pause --reason "a bad driver"')
    assert f"by {USER}" in laptop.run("status")
    laptop.run_printed("kubectl nodeguard resume")


def answer_a_question(laptop: Laptop) -> None:
    """Run a command that asks, at a terminal."""
    control, terminal = pty.openpty()
    command = ["kubectl", "nodeguard", "unmark", "--all"]
    with subprocess.Popen(
        command,
        env=laptop.environment,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    ) as process:
        os.close(terminal)
        read_until(control, "Type yes to continue")
        os.write(control, b"no\r")
        read_until(control, "nothing was changed")
        assert process.wait(PROMPTLY) == 3
    os.close(control)
    # Without a terminal nothing is read from the standard input of the caller.
    assert "add --yes without a terminal" in laptop.run("unmark", "--all", code=3)


def read_until(control: int, text: str) -> None:
    """Read from a terminal until a text. Fails with all that was read if the terminal is closed before."""
    output = ""
    with suppress(OSError):  # the other end is closed
        while text not in output:
            output += os.read(control, 4096).decode(errors="replace")
    assert text in output

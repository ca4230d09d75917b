"""The shipped script for Slurm's HealthCheckProgram, Prolog and Epilog, run by hand and by a real slurmd."""

from __future__ import annotations

import os
import pty
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from fixtures.bundles import bundle_path
from tests.docs.pages import blocks
from tests.executors.receiver import documented_receiver
from tests.paths import ROOT
from tests.slurm.cluster import SlurmCluster, running_slurm
from tests.waiting import until

pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.slow]

SCRIPT = ROOT / "daemonset/slurm/nodeguard-healthcheck"


class Node:
    """What the script finds on a node: a program `nodeguard` that the test chooses, and the system log."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.programs = directory / "bin"
        self.programs.mkdir(parents=True)
        self._log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._log.bind(str(directory / "log"))
        self._log.setblocking(False)
        logger = shutil.which("logger")
        self.install("logger", f'exec {logger} --socket {directory / "log"} "$@"')
        self.script = self.install(
            "healthcheck",
            f"export PATH={self.programs}:$PATH NODEGUARD={self.programs}/nodeguard NODEGUARD_SECONDS=20\n"
            f"export SLURM_CONF={directory.parent / 'slurm.conf'}\nexec {SCRIPT}",
        )

    def close(self) -> None:
        self._log.close()

    def install(self, name: str, text: str) -> Path:
        path = self.programs / name
        new = path.with_suffix(".new")
        new.write_text(f"#!/bin/sh\n{text}\n")
        new.chmod(0o755)
        new.replace(path)
        return path

    def replays(self, recording: str) -> None:
        """Have the program be the real one, on a recording."""
        self.install(
            "nodeguard",
            f'shift; cd {ROOT}; exec {sys.executable} -m nodeguard.cli.main check --from {bundle_path(recording)} "$@"',
        )

    def log(self) -> list[str]:
        """Return the new messages of the system log."""
        messages = []
        while True:
            try:
                messages.append(self._log.recv(4096).decode())
            except BlockingIOError:
                return messages

    def run(self, node: str, **more: str) -> int:
        """Run the script as slurmd does, with more environment. Returns its exit code."""
        environment = {**os.environ, "SLURMD_NODENAME": node, **more}
        return subprocess.run([self.script], env=environment, timeout=60.0, check=False).returncode


HEALTHY, FATAL = "healthy-dgx-h100", "gpu-off-bus"


class Site(NamedTuple):
    """A cluster of the nodes gpu-1 and gpu-2 with the script as Prolog, and what it finds on them."""

    slurm: SlurmCluster
    node: Node


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("s")
    with closing(Node(directory / "node")) as node:
        node.replays(HEALTHY)
        settings = f"Prolog={node.script}\nPrologFlags=Alloc\nSchedulerParameters=nohold_on_prolog_fail"
        with running_slurm(directory, ["gpu-1", "gpu-2"], settings) as slurm:
            yield Site(slurm, node)


@pytest.fixture
def site(running: Site) -> Site:
    """Return the cluster with all nodes idle, and a healthy machine."""
    running.node.replays(HEALTHY)
    running.node.log()
    for name in running.slurm.nodes:
        running.slurm.resume(name)
    return running


def test_a_healthy_node_stays_as_it_is(site: Site) -> None:
    assert site.node.run("gpu-1") == 0
    assert site.slurm.state("gpu-1") == "IDLE"
    assert site.node.log() == []


def test_a_fatal_finding_drains_the_node_once(site: Site) -> None:
    site.node.replays(FATAL)
    assert site.node.run("gpu-1") == 1
    assert site.slurm.state("gpu-1") == "IDLE+DRAIN"
    reason = site.slurm.reason("gpu-1")
    assert reason.startswith("nodeguard: GPU lost: GPU 5 (0000:c3:00")
    assert site.slurm.state("gpu-2") == "IDLE"
    [line] = site.node.log()
    assert "gpu-1 is drained: FATAL" in line
    time.sleep(1.1)  # the reason has a time in whole seconds
    assert site.node.run("gpu-1") == 1
    assert site.slurm.reason("gpu-1") == reason
    assert site.node.log() == []


def test_the_reason_begins_with_the_worst_of_several_findings(site: Site) -> None:
    site.node.replays("bad-night")
    assert site.node.run("gpu-1") == 1
    fault = "GPU lost: GPU 5 (0000:c3:00, serial 1650522100005, module 6). Reboot the node."
    assert site.slurm.reason("gpu-1").startswith(f"nodeguard: {fault} 2 fatal, 1 suspect, 1 warning. [")


def test_a_rehearsal_drains_a_healthy_node(site: Site) -> None:
    program = f'cd {ROOT}; exec {sys.executable} -m nodeguard.cli.main "$@"'
    site.node.install("nodeguard", program)
    assert site.node.run("gpu-1", NODEGUARD_FROM="fixtures/gpu-off-bus") == 1
    assert site.slurm.reason("gpu-1").startswith("nodeguard: GPU lost")


_SITE_CHECK = """
version: 1
family: site
checks:
  - id: too-many-gpus
    title: Too many GPUs
    target: node
    health: fatal
    action: monitor
    when: {signal: gpu.count, at_least: 2, for: 5m}
    message: "{gpu.count} GPUs"
    remedy: Remove a GPU.
    description: A rule of the site.
    source: Site policy.
"""


def test_the_documented_script_runs_the_checks_of_the_site_and_its_own_program(
    site: Site, tmp_path: Path
) -> None:
    checks = tmp_path / "site.yaml"
    page = "docs/tasks/write-a-check.md"
    [printed] = [block.text for block in blocks(page) if block.language == "sh"]
    own = site.node.install("own", f"touch {tmp_path}/ran")
    paths = {
        "/etc/nodeguard/checks.d": str(tmp_path),
        "/etc/slurm/nodeguard-healthcheck": str(site.node.script),
        "/usr/sbin/nhc": str(own),
    }
    for path, here in paths.items():
        assert path in printed
        printed = printed.replace(path, here)
    script = tmp_path / "healthcheck"
    script.write_text(printed)
    script.chmod(0o755)

    def run() -> int:
        environment = {**os.environ, "SLURMD_NODENAME": "gpu-1"}
        return subprocess.run([script], env=environment, timeout=60.0, check=False).returncode

    assert run() == 0
    assert (tmp_path / "ran").exists()
    checks.write_text(_SITE_CHECK)
    assert run() == 1
    assert site.slurm.reason("gpu-1").startswith("nodeguard: Too many GPUs")


def test_without_a_system_log_standard_error_has_the_messages(site: Site) -> None:
    site.node.replays(FATAL)
    logger = site.node.programs / "logger"
    with_log = logger.read_text()
    site.node.install("logger", f'exec {shutil.which("logger")} --socket {site.node.directory}/none "$@"')
    try:
        done = subprocess.run(
            [site.node.script],
            env={**os.environ, "SLURMD_NODENAME": "gpu-1"},
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        logger.write_text(with_log)
    assert done.stderr.startswith("nodeguard-healthcheck: gpu-1 is drained: FATAL  gpu-off-bus")


def test_a_person_who_runs_it_sees_its_messages(site: Site) -> None:
    site.node.replays(FATAL)
    control, terminal = pty.openpty()
    subprocess.run(
        [site.node.script], env={**os.environ, "SLURMD_NODENAME": "gpu-1"}, stderr=terminal, check=False
    )
    os.close(terminal)
    with open(control, "rb", buffering=0) as output:
        assert b"gpu-1 is drained: FATAL  gpu-off-bus should take no work. GPU lost" in output.read(4096)
    assert len(site.node.log()) == 1


def test_the_documented_receiver_drains_and_resumes_only_its_own_nodes(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", site.slurm.environment["SLURM_CONF"])
    set_marks = documented_receiver()["set_marks_in_slurm"]
    cause = {"check": "gpu-lost", "target": "gpu/0000:3b:00", "message": "the GPU is lost"}
    marks = [{"kind": "quarantine", "causes": [cause]}]
    set_marks("gpu-1", marks)
    assert site.slurm.reason("gpu-1").startswith("nodeguard: gpu-lost gpu/0000:3b:00 the GPU is lost [")
    set_marks("gpu-1", [{"kind": "quarantine", "causes": [{**cause, "message": ""}]}])
    assert site.slurm.reason("gpu-1").startswith("nodeguard: gpu-lost gpu/0000:3b:00 the GPU is lost [")
    set_marks("gpu-1", [])
    until(lambda: site.slurm.state("gpu-1") == "IDLE")
    site.slurm.ask("scontrol", "update", "NodeName=gpu-2", "State=DRAIN", "Reason=alice: new cables")
    for new_marks in (marks, []):
        set_marks("gpu-2", new_marks)
        assert site.slurm.reason("gpu-2").startswith("alice: new cables")


@pytest.fixture
def maintained(site: Site) -> Iterator[Site]:
    """Return the cluster with gpu-1 in a reservation for maintenance, and gpu-2 in an ordinary one."""
    for node, flags in (("gpu-1", "MAINT,IGNORE_JOBS"), ("gpu-2", "IGNORE_JOBS")):
        site.slurm.ask(
            *("scontrol", "create", "reservation", f"ReservationName={node}", "Users=root", "StartTime=now"),
            *("Duration=60", f"Nodes={node}", f"Flags={flags}"),
        )
    until(lambda: "MAINT" in site.slurm.state("gpu-1"), lambda: site.slurm.state("gpu-1"))
    yield site
    for node in site.slurm.nodes:
        site.slurm.run("scontrol", "delete", f"ReservationName={node}")
    until(lambda: "MAINT" not in site.slurm.state("gpu-1"), lambda: site.slurm.state("gpu-1"))


def test_a_node_in_a_reservation_for_maintenance_is_drained_after_it(maintained: Site) -> None:
    slurm, node = maintained
    node.replays(FATAL)
    assert node.run("gpu-1") == 0
    assert "DRAIN" not in slurm.state("gpu-1")
    assert node.log() == []
    slurm.ask("scontrol", "delete", "ReservationName=gpu-1")
    until(lambda: slurm.state("gpu-1") == "IDLE", lambda: slurm.state("gpu-1"))
    assert node.run("gpu-1") == 1
    assert slurm.reason("gpu-1").startswith("nodeguard: GPU lost")


def test_a_node_in_another_reservation_is_drained(maintained: Site) -> None:
    maintained.node.replays(FATAL)
    assert maintained.node.run("gpu-2") == 1
    assert maintained.slurm.reason("gpu-2").startswith("nodeguard: GPU lost")


def test_a_job_of_the_maintenance_starts_on_a_faulty_node(maintained: Site) -> None:
    """Those who repair the node test it with jobs in their reservation."""
    maintained.node.replays(FATAL)
    output = maintained.slurm.ask("srun", "--reservation=gpu-1", "-w", "gpu-1", "echo", "tested")
    assert "tested" in output
    assert maintained.slurm.reason("gpu-1") == ""


def test_the_documented_receiver_drains_a_node_after_its_maintenance(
    maintained: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", maintained.slurm.environment["SLURM_CONF"])
    receiver = documented_receiver()
    marks = [
        {"kind": "quarantine", "causes": [{"check": "gpu-lost", "target": "gpu/5", "message": "is lost"}]}
    ]
    body = {"change": "all", "part": 1, "parts": 1, "epoch": 1, "nodes": [{"node": "gpu-1", "marks": marks}]}
    receiver["receive"]({**body, "sequence": 1}, receiver["set_marks_in_slurm"])
    assert "DRAIN" not in maintained.slurm.state("gpu-1")
    maintained.slurm.ask("scontrol", "delete", "ReservationName=gpu-1")
    until(lambda: maintained.slurm.state("gpu-1") == "IDLE", lambda: maintained.slurm.state("gpu-1"))
    receiver["receive"]({**body, "sequence": 2}, receiver["set_marks_in_slurm"])
    assert maintained.slurm.reason("gpu-1").startswith("nodeguard: gpu-lost gpu/5 is lost")


def test_a_node_that_is_out_of_service_keeps_the_reason_of_its_administrator(site: Site) -> None:
    site.node.replays(FATAL)
    for state, shown in (("DRAIN", "IDLE+DRAIN"), ("DOWN", "DOWN")):
        site.slurm.ask("scontrol", "update", "NodeName=gpu-1", f"State={state}", "Reason=alice: new cables")
        before = site.slurm.reason("gpu-1")
        assert site.node.run("gpu-1") == 1
        assert (site.slurm.state("gpu-1"), site.slurm.reason("gpu-1")) == (shown, before)
        site.slurm.resume("gpu-1")


def test_a_node_that_was_resumed_is_drained_again_whatever_reason_is_left(site: Site) -> None:
    site.node.replays(FATAL)
    site.slurm.ask("scontrol", "update", "NodeName=gpu-1", "State=DRAIN", "Reason=alice: new cables")
    site.slurm.resume("gpu-1")
    assert site.node.run("gpu-1") == 1
    assert "nodeguard: GPU lost" in site.slurm.reason("gpu-1")


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("exit 0", ""),
        ("echo Traceback; exit 1", "ended with 1: Traceback"),
        ('echo "python3: can\'t open file"; exit 2', "ended with 2: python3: can't open file"),
        ("exit 2", "ended with 2: no output"),
        ("echo 'nodeguard check: unknown option'; exit 3", "ended with 3: nodeguard check: unknown option"),
        ("exec /there/is/no/interpreter", "ended with 127"),
        ("exec /etc", "ended with 126"),
        ("kill -9 $$", "ended with 137"),
        ("exec sleep 60", "ended with 124: no output"),
        ("printf 'FATAL but \\033]0;x\\007 killed'; exit 137", "ended with 137: FATAL but ]0;x killed"),
    ],
)
def test_every_other_end_of_the_check_drains_nothing_and_is_logged(
    site: Site, program: str, message: str
) -> None:
    site.node.install("nodeguard", program)
    assert site.node.run("gpu-1") == 0
    assert site.slurm.state("gpu-1") == "IDLE"
    lines = site.node.log()
    assert len(lines) == (1 if message else 0)
    assert all(message in line and "the health of gpu-1 is not known" in line for line in lines)


def test_without_the_program_nothing_is_drained(site: Site) -> None:
    (site.node.programs / "nodeguard").unlink()
    assert site.node.run("gpu-1") == 0
    [line] = site.node.log()
    assert "ended with 127" in line


def test_a_controller_that_does_not_know_the_node_is_logged(site: Site) -> None:
    site.node.replays(FATAL)
    assert site.node.run("gpu-9") == 1
    [line] = site.node.log()
    assert "gpu-9 is not drained, its health is fatal: scontrol:" in line


def test_as_prolog_it_keeps_the_job_off_until_the_node_is_repaired(site: Site) -> None:
    site.node.replays(FATAL)
    output = site.node.directory / "job.out"
    submitted = site.slurm.ask(
        "sbatch", "-w", "gpu-1", "-o", str(output), "--wrap", "echo worked on $SLURMD_NODENAME"
    )
    until(lambda: "DRAIN" in site.slurm.state("gpu-1"))
    until(lambda: "PENDING BeginTime" in site.slurm.ask("squeue", "-h", "-o", "%T %r"))
    assert site.slurm.reason("gpu-1").startswith("nodeguard: GPU lost")
    assert not output.exists()
    site.node.replays(HEALTHY)
    site.slurm.resume("gpu-1")
    # Slurm lets a job that was queued again wait for two minutes.
    site.slurm.ask("scontrol", "update", f"JobId={submitted.split()[-1]}", "StartTime=now")
    until(lambda: output.exists() and "worked on gpu-1" in output.read_text())


def test_slurmd_runs_it_at_an_interval(tmp_path: Path) -> None:
    with closing(Node(tmp_path / "node")) as node:
        node.replays(HEALTHY)
        settings = f"HealthCheckProgram={node.script}\nHealthCheckInterval=2\nHealthCheckNodeState=ANY"
        with running_slurm(tmp_path, ["gpu-1"], settings) as slurm:
            node.replays(FATAL)
            until(lambda: slurm.state("gpu-1") == "IDLE+DRAIN")
            assert slurm.reason("gpu-1").startswith("nodeguard: GPU lost")


def test_a_prolog_that_was_deleted_first_drains_the_node(site: Site) -> None:
    """So the page has another order of removal."""
    removed = site.node.script.rename(site.node.script.with_suffix(".removed"))
    try:
        site.slurm.ask("sbatch", "-w", "gpu-1", "-o", "/dev/null", "--wrap", "true")
        until(lambda: "DRAIN" in site.slurm.state("gpu-1"))
        assert site.slurm.reason("gpu-1").startswith("Prolog error")
    finally:
        removed.rename(site.node.script)
        site.slurm.ask("scancel", "--user", "root")


def test_as_epilog_it_drains_the_node_of_a_job_with_the_fault_as_its_reason(tmp_path: Path) -> None:
    with closing(Node(tmp_path / "node")) as node:
        node.replays(HEALTHY)
        with running_slurm(tmp_path, ["gpu-1"], f"Epilog={node.script}") as slurm:
            slurm.ask("srun", "true")
            until(lambda: slurm.state("gpu-1") == "IDLE")
            node.replays(FATAL)
            slurm.ask("srun", "true")
            until(lambda: slurm.state("gpu-1") == "IDLE+DRAIN")
            assert slurm.reason("gpu-1").startswith("nodeguard: GPU lost")

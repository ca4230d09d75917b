"""A Slurm cluster for tests: the distribution's munged, slurmctld and slurmd, with their own files and ports."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.ports import free_ports
from tests.waiting import until

_SETTINGS = """
ClusterName=nodeguard
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge/socket
CredType=cred/munge
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool-%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=0
MailProg=/bin/true
"""


class SlurmCluster:
    """A cluster that runs on this machine. directory: its configuration, state and logs; nodes: their names."""

    def __init__(self, directory: Path, nodes: Sequence[str], settings: str) -> None:
        """settings: more lines of slurm.conf."""
        self.directory, self.nodes = directory, tuple(nodes)
        controller, *ports = free_ports(1 + len(nodes))
        lines = [
            _SETTINGS.format(host=socket.gethostname(), controller=controller, directory=directory),
            settings,
        ]
        for node, port in zip(nodes, ports, strict=True):
            lines.append(
                f"NodeName={node} NodeAddr=127.0.0.1 NodeHostname={socket.gethostname()} Port={port} CPUs=2"
            )
        lines.append(f"PartitionName=all Nodes={','.join(nodes)} Default=YES State=UP MaxTime=INFINITE")
        (directory / "slurm.conf").write_text("\n".join([*lines, ""]))
        # Without it, 22.05 and newer read the cgroups of the machine.
        (directory / "cgroup.conf").write_text(
            "CgroupPlugin=disabled\n" if _is_newer() else "CgroupAutomount=no\n"
        )
        (directory / "state").mkdir()
        for folder in ("munge", "tmp"):
            (directory / folder).mkdir(mode=0o755)
        key = directory / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        self.environment = {**os.environ, "SLURM_CONF": str(directory / "slurm.conf")}

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command of Slurm."""
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=60.0, check=False
        )

    def ask(self, *command: str) -> str:
        """Return the output of a command of Slurm that succeeds."""
        done = self.run(*command)
        assert done.returncode == 0, f"{command}: {done.stderr}{done.stdout}"
        return done.stdout

    def state(self, node: str) -> str:
        """Return the state of a node as `scontrol show node` has it: IDLE+DRAIN."""
        return self._field(node, "State")

    def reason(self, node: str) -> str:
        """Return the reason of a node's state, with its user and time; empty for none."""
        return self._field(node, "Reason")

    def resume(self, node: str) -> None:
        """Resume a node if it is out of service, and wait until it is idle."""
        if {"DRAIN", "DOWN"} & set(self.state(node).replace("*", "").split("+")):
            self.ask("scontrol", "update", f"NodeName={node}", "State=RESUME")
        until(lambda: self.state(node) == "IDLE", lambda: self.state(node))

    def _field(self, node: str, name: str) -> str:
        for line in self.ask("scontrol", "show", "node", node).splitlines():
            found, _, rest = line.strip().partition("=")
            if found == name:
                return rest.split()[0] if name == "State" else rest.strip()
        return ""


def _is_newer() -> bool:
    """Return whether Slurm knows the plug-in `disabled` for cgroups, as from 23.11 on."""
    words = subprocess.run(["slurmctld", "-V"], capture_output=True, text=True, check=True).stdout.split()
    year, month = map(int, words[1].split(".")[:2])
    return (year, month) >= (23, 11)


@contextmanager
def running_slurm(directory: Path, nodes: Sequence[str], settings: str = "") -> Iterator[SlurmCluster]:
    """Run a cluster until the context ends. All its nodes are idle then."""
    cluster = SlurmCluster(directory, nodes, settings)
    with ExitStack() as stack:

        def start(*command: str) -> None:
            name = Path(command[0]).name
            with (directory / f"{name}.out").open("ab") as output:
                process = subprocess.Popen(command, env=cluster.environment, stdout=output, stderr=output)
            stack.callback(process.wait, 30.0)
            stack.callback(process.terminate)

        munge = directory / "munge"
        start(
            *(_path("munged"), "--foreground", "--force", f"--key-file={directory / 'munge.key'}"),
            *(f"--socket={munge / 'socket'}", f"--pid-file={munge / 'pid'}", f"--seed-file={munge / 'seed'}"),
            f"--log-file={munge / 'log'}",
        )
        until((munge / "socket").exists)
        start(_path("slurmctld"), "-D")
        for node in nodes:
            start(_path("slurmd"), "-D", "-N", node)
        until(lambda: all(cluster.run("scontrol", "show", "node", node).returncode == 0 for node in nodes))
        until(
            lambda: all(cluster.state(node) == "IDLE" for node in nodes),
            lambda: cluster.ask("sinfo", "-N", "-l"),
        )
        yield cluster


def _path(program: str) -> str:
    path = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    assert path is not None, f"{program} is missing: run `scripts/environment slurm`"
    return path

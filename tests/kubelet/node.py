"""A node: containerd and a kubelet in namespaces of their own for processes, mounts and host name."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.controlplane.cluster import Cluster
from tests.controlplane.programs import program
from tests.kubelet.settings import SOCKET, NodeSettings
from tests.paths import ROOT
from tests.waiting import until

_INIT = Path(__file__).with_name("node_init.py")
_CGROUPS = Path("/sys/fs/cgroup")


class Node:
    """A machine of the cluster, with its disk (`lib`, `log`) and what a reboot empties (`run`)."""

    def __init__(self, cluster: Cluster, settings: NodeSettings) -> None:
        self._cluster = cluster
        self.settings = settings
        self.name = settings.name
        self.directory = settings.directory
        for name in ("run", "lib", "log"):
            (self.directory / name).mkdir(parents=True)
        settings.write()
        for hierarchy in _hierarchies():
            (hierarchy / settings.cgroup.strip("/")).mkdir()

    @property
    def path(self) -> str:
        return f"/api/v1/nodes/{self.name}"

    def start(self) -> None:
        """Power on: a new boot id, an empty /run, and containerd."""
        shutil.rmtree(self.directory / "run")
        (self.directory / "run").mkdir()
        (self.directory / "boot_id").write_text(f"{uuid.uuid4()}\n")
        (self.directory / "ready").unlink(missing_ok=True)
        python = [sys.executable, "-I", "-S", str(_INIT), str(self.directory), self.name]
        namespaces = ["--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"]
        self._outer = self._cluster.processes.start(self._process("init"), "unshare", *namespaces, *python)
        self._wait("init", (self.directory / "ready").exists)
        self._start("containerd", "containerd", f"--config={self.directory / 'containerd.toml'}")
        self._wait("containerd", lambda: self._can_run("ctr", "--address", SOCKET, "version"))

    def start_kubelet(self, *flags: str) -> None:
        """Start the kubelet. flags: in addition to its settings."""
        kubeconfig = self._cluster.processes.directory / f"node:{self.name}.kubeconfig"
        self._start("kubelet", program("kubelet"), *self.settings.kubelet_flags(kubeconfig), *flags)

    def stop_kubelet(self) -> None:
        self._cluster.processes.stop(self._process("kubelet"))

    def publish_gpus(self, health: Mapping[str, str]) -> None:
        """Start a device plugin of GPUs, or change what it reports. health: of each GPU by its id."""
        file = self.directory / "gpus.json"
        is_started = file.exists()
        replacement = file.with_suffix(".new")
        replacement.write_text(json.dumps(dict(health)))
        replacement.rename(file)
        if not is_started:
            plugin = [sys.executable, "-m", "tests.kubelet.device_plugin", str(file)]
            self._start("device-plugin", "env", "-C", str(ROOT), *plugin)

    def power_off(self) -> None:
        """Kill all processes of the node at once, also those of its pods."""
        self._cluster.processes.stop(self._process("init"))
        for name in ("containerd", "kubelet"):
            self._cluster.processes.stop(self._process(name))

    def run(self, *command: str) -> str:
        """Run a command on the node, and return its output. Fails with its error output."""
        done = subprocess.run(self._inside(command), capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done.stdout

    def root(self) -> Path:
        """Return the root directory of the node as this machine sees it, with the volumes of its pods."""
        return Path(f"/proc/{self._first_process()}/root")

    def import_image(self, archive: Path) -> None:
        """Load images into containerd, as a pull does."""
        self.run("ctr", "--address", SOCKET, "--namespace=k8s.io", "images", "import", str(archive))

    def tag_image(self, image: str, other: str) -> None:
        """Give an image in containerd another name, too. Another image loses this name."""
        self.run("ctr", "--address", SOCKET, "--namespace=k8s.io", "images", "tag", "--force", image, other)

    def log(self, process: str) -> str:
        return self._cluster.processes.tail(self._process(process))

    def _start(self, name: str, *command: str) -> None:
        self._cluster.processes.start(self._process(name), *self._inside(command))

    def _inside(self, command: Sequence[str]) -> list[str]:
        namespaces = ["--mount", "--pid", "--uts", "--ipc", "--root", "--wd=/"]
        return ["nsenter", f"--target={self._first_process()}", *namespaces, *command]

    def _first_process(self) -> str:
        """Return the id of the node's first process."""
        return Path(f"/proc/{self._outer}/task/{self._outer}/children").read_text().split()[0]

    def _process(self, name: str) -> str:
        return f"{self.name}-{name}"

    def _can_run(self, *command: str) -> bool:
        return subprocess.run(self._inside(command), capture_output=True, check=False).returncode == 0

    def _wait(self, process: str, condition: object) -> None:
        assert callable(condition)

        def has_come() -> bool:
            assert self._cluster.processes.ended(self._process(process)) is None, self.log(process)
            return bool(condition())

        until(has_come, lambda: self.log(process), every=0.05)


def _hierarchies() -> list[Path]:
    """Return the directories of the cgroup hierarchies: one for version 2, several for version 1."""
    if (_CGROUPS / "cgroup.controllers").exists():
        return [_CGROUPS]
    return [path for path in _CGROUPS.iterdir() if path.is_dir() and not path.is_symlink()]

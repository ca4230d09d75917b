"""A machine of its own for the steps of a page: the commands run as they are printed, as root, in a fresh clone.

Its namespaces have their own network, processes, /etc, /opt, /run, /var/lib and /usr/local/bin. So the paths and ports
of the pages are free, and nothing of this machine changes. Python packages come from a directory of wheels.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.paths import ROOT
from tests.waiting import PATIENCE, until
from tests.wheels import wheels

# Directories of the machine that a site writes to. /etc begins as a copy, the others are empty.
_OWN = ("etc", "opt", "run", "var/lib", "usr/local/bin")

# Commands of the pages that install the Python package.
_INSTALLATION = re.compile(r"python3 -m venv /opt/nodeguard$|/opt/nodeguard/bin/pip install ")

_SET_UP = """
for path in {own}; do mount --bind "{root}/$path" "/$path"; done
ip link set lo up
touch {root}/ready
exec sleep infinity
"""


class Machine:
    """A machine that exists until `running_machine` ends. clone: the working directory of its commands."""

    def __init__(self, directory: Path) -> None:
        self.clone = directory / "clone"
        self.clone.mkdir()
        self._directory = directory
        self._inside: list[str] = []
        self._services = 0
        self._installations: dict[str, str] = {}
        tools = directory / "tools"
        tools.mkdir()
        interpreter = tools / "python3"
        interpreter.write_text(f'#!/bin/sh\nexec {self._interpreter()} "$@"\n')
        interpreter.chmod(0o755)
        self._environment = {
            "PATH": f"{tools}:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(directory),
            "LANG": "C.UTF-8",
            "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(wheels()),
            # A module is compiled when it is imported first: most of the installed ones never are.
            "PIP_COMPILE": "0",
        }

    def run(self, command: str, accept: Collection[int] = (0,)) -> str:
        """Run a command line in the clone, and return its output, or the error of one that prints nothing else.

        Fails on other exit codes than `accept`. An installation with the same command is not repeated: the pages that
        print it would install the same files over each other, which takes up to 10 s of a processor.
        """
        if command in self._installations:
            return self._installations[command]
        done = subprocess.run(
            self._command(command), env=self._environment, capture_output=True, text=True, timeout=PATIENCE * 2, check=False
        )  # fmt: skip
        assert done.returncode in accept, (
            f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        )
        assert "Traceback" not in done.stderr, done.stderr
        output = done.stdout or done.stderr
        if _INSTALLATION.match(command):
            self._installations[command] = output
        return output

    def get(self, url: str) -> str:
        """Return the response of a service; empty while it is not ready."""
        script = (
            "import urllib.error, urllib.request\n"
            f"try: print(urllib.request.urlopen({url!r}).read().decode())\n"
            "except urllib.error.HTTPError as error:\n"
            "    if error.code != 503: raise\n"
        )
        return self.run(f"python3 -c {shlex.quote(script)}")

    @contextmanager
    def running(self, command: str, ready: str) -> Iterator[Path]:
        """Run a service until the end of the block, and yield its log. ready: text of the log to wait for."""
        self._services += 1
        log = self._directory / f"service-{self._services}.log"
        with (
            log.open("wb") as file,
            subprocess.Popen(
                self._command(f"echo $$ >{log}.pid; exec {command}"),
                env=self._environment,
                stdout=file,
                stderr=file,
            ) as process,
        ):
            try:
                until(lambda: ready in log.read_text(), log.read_text, every=0.1)
                yield log
                assert process.poll() is None, log.read_text()
            finally:
                # A signal to nsenter does not reach the service.
                self.run(f"kill $(cat {log}.pid)", accept=(0, 1))
                process.wait(PATIENCE)
        assert "Traceback" not in log.read_text(), log.read_text()

    def path(self, path: str) -> Path:
        """Return where an absolute path of the machine is on this one."""
        return self._directory / "root" / path.removeprefix("/")

    @contextmanager
    def started(self) -> Iterator[None]:
        """Make the namespaces; all their processes end with the block."""
        root = self._directory / "root"
        for name in _OWN:
            (root / name).mkdir(parents=True)
        shutil.copytree("/etc", root / "etc", symlinks=True, dirs_exist_ok=True)
        for python in Path("/usr/local/bin").glob("python*"):
            shutil.copy2(python, root / "usr/local/bin", follow_symlinks=False)
        script = _SET_UP.format(own=" ".join(_OWN), root=root)
        namespaces = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
        with subprocess.Popen([*namespaces, "sh", "-ec", script]) as process:
            try:
                until((root / "ready").exists, lambda: f"exit code {process.poll()}", every=0.05)
                [first] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
                # It begins at the root of the machine, which this process may not have: in a chroot.
                self._inside = ["nsenter", f"--target={first}", "--mount", "--net", "--pid", "--root", "--wd"]
                yield
            finally:
                process.kill()

    def _command(self, command: str) -> list[str]:
        shell = ["bash", "-o", "pipefail", "-c", f'cd "$0" && {command}', str(self.clone)]
        return [*self._inside, *shell]

    @staticmethod
    def _interpreter() -> str:
        """Return the Python of this virtual environment, which makes others without its packages."""
        base: str = getattr(sys, "_base_executable", sys.executable)
        return base


@contextmanager
def running_machine(directory: Path) -> Iterator[Machine]:
    """Run a machine with a clone of this repository, as it is in the working tree."""
    machine = Machine(directory)
    copy = f"git -C {ROOT} ls-files -z | tar -C {ROOT} -c --null -T - | tar -C {machine.clone} -x"
    subprocess.run(["bash", "-o", "pipefail", "-c", copy], check=True)
    with machine.started():
        yield machine

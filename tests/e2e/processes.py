"""Processes of a test and their HTTP responses. No process outlives the test, however the test ends."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, TypeVar
from urllib.request import urlopen

from fixtures.bundles import bundle_path
from tests import waiting
from tests.ports import free_address
from tests.waiting import PATIENCE, PROMPTLY

Result = TypeVar("Result")


def command_path(command: str, make: str = "make test-environment") -> str:
    """Return the path of a command. Fails the test with the command that installs it, if it is missing."""
    path = shutil.which(command)
    assert path is not None, f"{command} is missing: run `{make}`"
    return path


@contextmanager
def running(log: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that writes to a log. The kernel kills it if this process dies."""
    bound = [command_path("setpriv", "apt-get install util-linux"), "--pdeathsig", "KILL", "--"]
    with log.open("wb") as file, subprocess.Popen([*bound, *command], stdout=file, stderr=file) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(PROMPTLY)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def running_agent(directory: Path, *arguments: str) -> Iterator[str]:
    """Run an agent, and yield its address once it is ready. directory: for its log and its socket."""
    listen, log = free_address(), directory / "agent.log"
    command = ["agent", "--listen", listen, "--socket", str(directory / "socket"), *arguments]
    with running(log, sys.executable, "-m", "nodeguard.cli.main", *command):
        until(lambda: get_page(listen, "/readyz") == "ready\n", log)
        yield listen


def copy_bundle(name: str, directory: Path) -> Path:
    """Copy a bundle, for a test that changes it while an agent reads it. Returns its path."""
    return Path(shutil.copytree(bundle_path(name), directory / name, symlinks=True))


def link_bundle(name: str, directory: Path) -> Path:
    """Copy a bundle as `copy_bundle` does, but link the files in `sys`, which are most of it. A write to one would
    change the bundle for all tests: only for a node of a fleet, in which tests write the kernel log.
    """
    bundle = Path(bundle_path(name))
    shared = bundle / "sys"

    def copy(source: str, target: str) -> None:
        if Path(source).is_relative_to(shared):
            with suppress(OSError):  # on another file system
                os.link(source, target)
                return
        shutil.copy2(source, target)

    return Path(shutil.copytree(bundle, directory / name, symlinks=True, copy_function=copy))


def get_page(address: str, path: str) -> str:
    """Return an HTTP response, empty if there is none yet."""
    try:
        with urlopen(f"http://{address}{path}", timeout=PATIENCE) as response:
            text: str = response.read().decode()
            return text
    except (OSError, HTTPException):
        return ""


def query_socket(path: Path, target: str) -> Any:
    """Return the JSON response of an aggregator's socket, empty if there is none. path: of the socket."""
    connection = _UnixConnection(path)
    try:
        connection.request("GET", target)
        return json.load(connection.getresponse())
    except (OSError, HTTPException):
        return {}
    finally:
        connection.close()


class _UnixConnection(HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=PATIENCE)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))


def query_prometheus(address: str, path: str) -> Any:
    """Return the data of a response of the Prometheus API; None before it answers."""
    text = get_page(address, f"/api/v1/{path}")
    return json.loads(text)["data"] if text else None


def until(ask: Callable[[], Result], log: Path) -> Result:
    """Return the first true value of `ask`. log: shown on a timeout."""
    return waiting.until(ask, lambda: f"{log} contains:\n{log.read_text()}", every=0.1)

"""Real processes of a test, and what they say over HTTP. None outlives the test, however that ends."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, TypeVar
from urllib.request import urlopen

from fixtures.bundles import bundle_path
from tests import waiting
from tests.ports import free_address
from tests.waiting import PATIENCE, PROMPTLY

Said = TypeVar("Said")


def installed(command: str, make: str = "make test-environment") -> str:
    """Path of a command. Where it is missing the test fails, and says what to run."""
    path = shutil.which(command)
    assert path is not None, f"{command} is missing: run `{make}`"
    return path


@contextmanager
def running(log: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process, which writes to a log. Killed with this one, too."""
    bound = [installed("setpriv", "apt-get install util-linux"), "--pdeathsig", "KILL", "--"]
    with log.open("wb") as said, subprocess.Popen([*bound, *command], stdout=said, stderr=said) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(PROMPTLY)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def agent(directory: Path, *arguments: str) -> Iterator[str]:
    """An agent that has read every source once. Gives its address. directory: for what it writes."""
    listen, log = free_address(), directory / "agent.log"
    words = ["agent", "--listen", listen, "--socket", str(directory / "socket"), *arguments]
    with running(log, sys.executable, "-m", "nodeguard.cli.main", *words):
        until(lambda: page(listen, "/readyz") == "ready\n", log)
        yield listen


def live_bundle(name: str, directory: Path) -> Path:
    """A copy of a bundle, to be written into."""
    return Path(shutil.copytree(bundle_path(name), directory / name, symlinks=True))


def page(address: str, path: str) -> str:
    """A page, empty where there is none yet."""
    try:
        with urlopen(f"http://{address}{path}", timeout=PATIENCE) as answer:
            text: str = answer.read().decode()
            return text
    except (OSError, HTTPException):
        return ""


def answer(at: Path, path: str) -> Any:
    """What an aggregator answers to people at its socket; nothing where it does not."""
    connection = _Unix(at)
    try:
        connection.request("GET", path)
        return json.load(connection.getresponse())
    except (OSError, HTTPException):
        return {}
    finally:
        connection.close()


class _Unix(HTTPConnection):
    """HTTP at a socket in the file system."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=PATIENCE)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))


def api(address: str, path: str) -> Any:
    """What Prometheus' API answers; None before it does."""
    said = page(address, f"/api/v1/{path}")
    return json.loads(said)["data"] if said else None


def until(ask: Callable[[], Said], log: Path) -> Said:
    """The first answer that is not empty. log: shown where none comes in time."""
    return waiting.until(ask, lambda: f"{log} contains:\n{log.read_text()}", every=0.1)

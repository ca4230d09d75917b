"""The pictures of terminal output in the documentation: `python -m scripts.pictures [NAME...]`.

Each command runs in a pseudo-terminal. The fleet is that of the tests: it is served by a real API, at a fixed
time. `python -m scripts.status_page_images` takes those of the status page.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from msgspec import Struct

from scripts.terminal_svg import terminal_svg
from tests.aggregator.api.service import RecordingActions, running_api
from tests.aggregator.pages.scenes import faulty_fleet
from tests.ports import free_ports
from tests.waiting import until

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
COLUMNS = 100

_COMMAND = [sys.executable, "-m", "nodeguard.cli.main"]
_TIMEOUT = 120.0


class Picture(Struct, frozen=True):
    """A picture. name: of the file. command: arguments of nodeguard. about: the text alternative. setting:
    what the command needs to run. exit_code: of the command.
    """

    name: str
    command: str
    about: str
    setting: Literal["", "fleet", "agent"] = ""
    exit_code: int = 0

    @property
    def path(self) -> Path:
        """Return the path of the file."""
        return IMAGES / f"{self.name}.svg"

    @property
    def is_stable(self) -> bool:
        """Return whether the output is the same at any time, on any machine."""
        return self.setting != "agent"


PICTURES = (
    Picture("check", "check --from fixtures/gpu-off-bus", "A GPU fell off the bus", exit_code=2),
    Picture("explain", "explain gpu-lost", "A check: its meaning, its rule, and what to do"),
    Picture("doctor", "doctor", "An agent that no aggregator acknowledges", "agent", exit_code=2),
    Picture("simulate", "simulate --nodes 512 --days 7", "A week of 512 nodes in virtual time"),
    Picture("status", "status", "A fleet with a degraded leaf switch and lost GPUs", "fleet"),
    Picture("incidents", "get incidents", "The incidents of this fleet, one for the leaf switch", "fleet"),
    Picture("domain", "describe domain fabric/p0/r2", "The degraded leaf switch and its evidence", "fleet"),
    Picture("node", "describe node gpu-h100-0100", "A quarantined node with its mark and finding", "fleet"),
)


def picture_svg(picture: Picture, options: tuple[str, ...] = ()) -> str:
    """Return the image of a command's output now. options: of its setting, not shown. Raises RuntimeError."""
    output, code = terminal_output([*_COMMAND, *picture.command.split(), *options])
    if code != picture.exit_code:
        raise RuntimeError(f"nodeguard {picture.command}: exit code {code}\n{output}")
    prompt = f"\x1b[2m$\x1b[0m \x1b[1mnodeguard {picture.command}\x1b[0m\n"
    return terminal_svg(picture.about, prompt + output, COLUMNS)


def terminal_output(command: list[str], timeout: float = _TIMEOUT) -> tuple[str, int]:
    """Return what a command writes to a terminal, and its exit code. Its errors go to standard error.

    timeout: seconds until the command is killed. Raises TimeoutError.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, COLUMNS, 0, 0))
    variables = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES")
    environment = {name: value for name, value in os.environ.items() if name not in variables}
    environment |= {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=theirs, cwd=ROOT, env=environment
    ) as process:
        os.close(theirs)
        end = time.monotonic() + timeout
        try:
            output = b"".join(_read(ours, end))
            code = process.wait(max(end - time.monotonic(), 0.0))
        except (TimeoutError, subprocess.TimeoutExpired):
            process.kill()
            raise TimeoutError(f"{' '.join(command)}: not finished after {timeout:g} s") from None
        finally:
            os.close(ours)
    return output.decode(), code


def _read(terminal: int, end: float) -> Iterator[bytes]:
    """Yield output until the other end is closed. end: monotonic time, in seconds. Raises TimeoutError."""
    while select.select([terminal], [], [], max(end - time.monotonic(), 0.0))[0]:
        try:
            content = os.read(terminal, 65_536)
        except OSError:  # EIO: the other end is closed
            return
        if not content:
            return
        yield content
    raise TimeoutError


@contextmanager
def fleet_setting() -> Iterator[tuple[str, ...]]:
    """Serve the API of a fleet with a leaf fault and single faults. Yield the options of its clients."""
    with (
        tempfile.TemporaryDirectory(prefix="nodeguard-pictures-") as directory,
        running_api(Path(directory), faulty_fleet(), RecordingActions()) as socket,
    ):
        yield "--socket", socket


@contextmanager
def agent_setting() -> Iterator[tuple[str, ...]]:
    """Run an agent with an aggregator that does not answer. Yield the options of its clients."""
    with tempfile.TemporaryDirectory(prefix="nodeguard-pictures-") as directory:
        config, socket = Path(directory, "agent.yaml"), Path(directory, "agent.sock")
        [listen] = free_ports(1)
        config.write_text(
            f"node: gpu-7\nlisten: 127.0.0.1:{listen}\nstate: {directory}\n"
            "aggregator: {addresses: ['http://127.0.0.1:8443/v1/messages']}\n"
        )
        options = ("--config", str(config), "--socket", str(socket))
        agent = subprocess.Popen(
            [*_COMMAND, "agent", *options, "--from", "fixtures/gpu-off-bus"],
            cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            until(socket.exists)
            yield options
        finally:
            agent.terminate()
            agent.wait(_TIMEOUT)


def draw(pictures: Iterable[Picture]) -> None:
    """Write pictures."""
    with fleet_setting() as fleet, agent_setting() as agent:
        options = {"": (), "fleet": fleet, "agent": agent}
        for picture in pictures:
            picture.path.write_text(picture_svg(picture, options[picture.setting]))
            print(f"{picture.path}: {picture.path.stat().st_size / 1000:.1f} kB")


if __name__ == "__main__":
    draw(picture for picture in PICTURES if picture.name in sys.argv[1:] or not sys.argv[1:])

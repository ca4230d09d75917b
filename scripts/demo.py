"""A fleet of eight nodes on recorded machines, what befalls it within a minute, and what is done about it.

Every process is the real one: an aggregator without Kubernetes and eight agents. Each agent reads a copy of a
recording, into which this script writes what a kernel or a driver would say. All of it ends with the script.
"""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from fixtures.bundles import bundle_path  # noqa: E402
from nodeguard.cli.render.terminal import StyledLine, StyledText, print_lines  # noqa: E402

# In the directory of the fleet: a socket's path may not be long.
SOCKET = "aggregator.sock"
COMMAND = [sys.executable, "-m", "nodeguard.cli.main"]

NODES = {
    "gpu-1": "healthy-dgx-h100",
    "gpu-2": "healthy-dgx-h100",
    "gpu-3": "healthy-dgx-h100",
    "gpu-4": "healthy-dgx-a100",
    "gpu-5": "healthy-dgx-b200",
    "gpu-6": "healthy-azure-nd-h200-v5",
    "gpu-7": "healthy-gcp-a3-ultra",
    "gpu-8": "healthy-h100-nvl",
}
STORM = ("gpu-1", "gpu-2", "gpu-4", "gpu-5", "gpu-7", "gpu-8")

POLICY = """\
defaultMode: enforce                          # for a minute: begin with observe
budget: {fleet: 50%, pool: 50%, perCheck: {new: 2, within: 10m, active: 4}}
gracePeriod: {quarantine: 1s, suspect: 1s}  # for how long a fault stands before
soak: {initial: 4s}                      # and for how long it is proven over
"""

XID = (
    "NVRM: Xid (PCI:0000:1b:00): 119, pid=4711, name=train, "
    "Timeout after 6s of waiting for RPC response from GPU0 GSP!"
)
CABLE = (
    "mlx5_core 0001:01:00.0: mlx5_port_module_event:1131:(pid 0): "
    "Port module event[error]: module 0, Cable error, High Temperature"
)

# Seconds after which an event will not come any more, on a slow machine.
_PATIENCE = 120.0

_KEPT = {"fatal": "keep all new work off", "suspect": "keep new gang work off"}
_STYLE = {"Advised": "fatal", "Withheld": "suspect", "Recovering": "ok", "Resolved": "ok"}


class Fleet:
    """An aggregator and agents that report to it, with all that they write below one directory."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self.began = time.monotonic()
        self._log = directory / "aggregator.log"
        self._read = 0
        self._stack = stack
        self._lines = 0
        self._advised: set[str] = set()
        self._checks: set[str] = set()

    def begin(self) -> None:
        """Start all of it."""
        (self.directory / "policy.yaml").write_text(POLICY)
        listen, metrics, *others = _free_ports(2 + len(NODES))
        self._start(
            "aggregator", "--standalone", "--insecure", "--listen", f"127.0.0.1:{listen}",
            "--metrics", f"127.0.0.1:{metrics}", "--state", "state", "--socket", SOCKET,
            "--policy", "policy.yaml", log=self._log,
        )  # fmt: skip
        for (node, recording), port in zip(NODES.items(), others, strict=True):
            shutil.copytree(bundle_path(recording), self.directory / node, symlinks=True)
            config = self.directory / f"{node}.yaml"
            config.write_text(
                f"node: {node}\nlisten: 127.0.0.1:{port}\n"
                f"aggregator: {{addresses: ['http://127.0.0.1:{listen}/v1/messages']}}\n"
            )
            self._start(
                "agent", "--config", config.name, "--from", node, log=self.directory / f"{node}.log"
            )  # fmt: skip

    def wait(self) -> None:
        """Wait until every node has been heard."""
        end = time.monotonic() + _PATIENCE
        while self._asked("status").get("agents", {}).get("reported") != len(NODES):
            if time.monotonic() > end:
                raise SystemExit(
                    f"demo: not every agent was heard within {_PATIENCE:g} s:\n{self._last_words()}"
                )
            time.sleep(0.2)
        self.began = time.monotonic()

    def befalls(self, what: str) -> None:
        """Say what is done to the fleet."""
        print_lines([StyledLine(), StyledLine((StyledText("      ** ", "strong"),), what, "strong")])
        sys.stdout.flush()

    def log(self, node: str, line: str) -> None:
        """Have the kernel of a node say something."""
        self._lines += 1
        with (self.directory / node / "kmsg").open("a") as kernel:
            kernel.write(f"3,{9000 + self._lines},1000{self._lines:03}000000,-;{line}\n")

    def remap(self, node: str, *, failed: bool) -> None:
        """Have the driver of a node say whether its first GPU failed to replace a row of its memory."""
        path = self.directory / node / "nvml.json"
        told = json.loads(path.read_text())
        told["devices"][0]["nvmlDeviceGetRemappedRows"] = [0, 0, 0, int(failed)]
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(told))
        fresh.replace(path)

    def watch(self, *states: str, times: int = 1) -> None:
        """Show the incidents that the aggregator logs, until so many have come to one of these states."""
        end = time.monotonic() + _PATIENCE
        while times > 0:
            if time.monotonic() > end:
                raise SystemExit(
                    f"demo: {times} incidents are not {' or '.join(states)} after {_PATIENCE:g} s:\n"
                    f"{self._last_words()}"
                )
            with self._log.open() as log:
                log.seek(self._read)
                for line in iter(log.readline, ""):
                    if not line.endswith("\n"):
                        break
                    self._read = log.tell()
                    said = json.loads(line)
                    if said["event"] == "incident":
                        self._show(said)
                        times -= said["state"] in states
            time.sleep(0.1)

    def incident(self, node: str) -> str:
        """Name of a node's first incident."""
        found: list[dict[str, Any]] = self._asked("get", "incidents")["incidents"]
        return next((one["name"] for one in found if one["node"] == node), "")

    def ask(self, *words: str) -> None:
        """Show a command to the aggregator, and what it says."""
        run(*words, hidden=("--socket", SOCKET), directory=self.directory)

    def _last_words(self) -> str:
        logs = sorted(self.directory.glob("*.log"))
        return "\n".join(f"{log.stem}: {said[-1]}" for log in logs if (said := log.read_text().splitlines()))

    def _show(self, said: dict[str, str]) -> None:
        node, check, state, kept = (
            said["node"],
            said["check"],
            said["state"],
            _KEPT.get(said["health"], "keep work off"),
        )
        told = {
            "Advised": f"advice: {kept} {'it' if said['scope'] == f'node {node}' else said['scope']}",
            "Withheld": f"NO advice: {said['why']}",
            "Recovering": "proven to be over; the advice stays until the soak period ends",
            "Resolved": "over; it may take work again" if node in self._advised else "over",
        }
        done = told.get(state, "reported; nothing is kept away")
        if state == "Advised":
            self._advised.add(node)
        # In whole once: six nodes that say the same need not say it six times.
        what = check if check in self._checks else f"{check}: {said['said']}"
        self._checks.add(check)
        head = StyledText(f"{time.monotonic() - self.began:4.0f} s  "), StyledText(f"{node}  ", "strong")
        print_lines([StyledLine(head, f"{what} -> {done}", _STYLE.get(state, ""))])
        sys.stdout.flush()

    def _asked(self, *command: str) -> Any:
        words = [*COMMAND, *command, "-o", "json", "--socket", SOCKET]
        told = subprocess.run(words, capture_output=True, check=False, cwd=self.directory).stdout
        return json.loads(told) if told else {}

    def _start(self, *words: str, log: Path) -> None:
        said = self._stack.enter_context(log.open("wb"))
        self._stack.enter_context(_running([*COMMAND, *words], said, self.directory))


@contextmanager
def _running(words: list[str], said: IO[bytes], directory: Path) -> Iterator[None]:
    """A process that ends with this one, even where this one is killed."""
    bound = ["setpriv", "--pdeathsig", "TERM", "--"] if shutil.which("setpriv") else []
    process = subprocess.Popen(
        [*bound, *words], stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd=directory
    )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(3)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def run(*words: str, hidden: tuple[str, ...] = (), directory: Path = ROOT) -> None:
    """Show a command without what is hidden of it, and what it says. directory: where it runs."""
    _say("", f"$ nodeguard {shlex.join(words)}")
    subprocess.run([*COMMAND, *words, *hidden], check=False, cwd=directory)


def _say(*lines: str, style: str = "strong") -> None:
    print_lines([StyledLine(text=line, style=style) if line else StyledLine() for line in lines])
    sys.stdout.flush()


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def _story(fleet: Fleet) -> None:
    fleet.befalls("gpu-6: the kernel tells of a hot cable.")
    fleet.log("gpu-6", CABLE)
    fleet.watch("Advised")
    time.sleep(2)
    fleet.befalls("gpu-3: a GPU does not answer any more, Xid 119.")
    fleet.log("gpu-3", XID)
    fleet.watch("Advised")
    time.sleep(2)
    fleet.befalls("A bad driver: six nodes say at once that a GPU is beyond repair.")
    for node in STORM:
        fleet.remap(node, failed=True)
    fleet.watch("Advised", "Withheld", times=len(STORM))
    fleet.befalls("The driver is taken back, and all is in order there.")
    for node in STORM:
        fleet.remap(node, failed=False)
    fleet.watch("Resolved", times=len(STORM))
    fleet.befalls("A person has changed the cable of gpu-6, and clears the finding.")
    fleet.ask("incidents", "clear", fleet.incident("gpu-6"))
    fleet.watch("Resolved")


def main() -> None:
    """Show it."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nodeguard-demo-")))
        fleet = Fleet(directory, stack)
        fleet.begin()
        _say("One node, as recorded when a GPU fell off the bus:")
        run("check", "--from", "fixtures/gpu-off-bus")
        _say("", "A fleet: an aggregator, and agents on eight recorded machines, with this policy:", "")
        for line in POLICY.splitlines():
            _say(f"  {line}", style="")
        fleet.wait()
        _story(fleet)
        for words in (["status"], ["describe", "node", "gpu-3"], ["get", "incidents", "--all"]):
            fleet.ask(*words)
        _say(
            "",
            "Next: nodeguard check checks this machine; nodeguard explain gpu-gsp-failure describes one; "
            "docs/tasks/read-the-fleet.md explains this output, docs/install/kubernetes.md the installation.",
        )


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)

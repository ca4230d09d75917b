"""A demo: a fleet of eight nodes on recorded machines, its faults within a minute, and nodeguard's response.

Every process is the real one: an aggregator without Kubernetes and eight agents. Each agent reads a copy of a
recording, into which this script writes lines of a kernel log and readings of a driver. All processes end
with the script.
"""

from __future__ import annotations

import json
import random
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from fixtures.bundles import bundle_path  # noqa: E402
from nodeguard.cli.render.terminal import StyledLine, StyledText, format_lines  # noqa: E402
from nodeguard.cli.streams import print_output  # noqa: E402

# Relative to the directory of the fleet: the path of a socket is limited to 107 bytes.
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
STORM = ("gpu-1", "gpu-2", "gpu-4", "gpu-5")

POLICY = """\
defaultMode: enforce                          # for a minute: begin with observe
budget: {fleet: 50%, pool: 50%, perCheck: {new: 2, within: 10m, active: 4}}
gracePeriod: {quarantine: 1s, suspect: 1s}  # a fault is active for this long before its mark
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

# Seconds after which a missing event is an error, also on a slow machine.
_TIMEOUT = 120.0

_EFFECTS = {"fatal": "keep all new work off", "suspect": "keep new gang work off"}
_STYLE = {"Advised": "fatal", "Withheld": "suspect", "Recovering": "ok", "Resolved": "ok"}


class Fleet:
    """An aggregator and its agents, with all their files below one directory."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self.began = time.monotonic()
        self._log = directory / "aggregator.log"
        self._read = 0
        self._stack = stack
        self._lines = 0
        self._advised: set[str] = set()
        self._checks: set[str] = set()

    def start(self) -> None:
        """Start the aggregator and the agents."""
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
        """Wait until every agent has reported."""
        end = time.monotonic() + _TIMEOUT
        while self._query("status").get("agents", {}).get("reported") != len(NODES):
            if time.monotonic() > end:
                raise SystemExit(
                    f"demo: not every agent has reported within {_TIMEOUT:g} s:\n{self._last_log_lines()}"
                )
            time.sleep(0.2)
        self.began = time.monotonic()

    def announce(self, event: str) -> None:
        """Print an event of the fleet."""
        mark = StyledText("      ** ", "strong")
        print_output(format_lines([StyledLine(), StyledLine((mark,), event, "strong")]))
        sys.stdout.flush()

    def log(self, node: str, line: str) -> None:
        """Write a line to the kernel log of a node."""
        self._lines += 1
        with (self.directory / node / "kmsg").open("a") as kernel:
            kernel.write(f"3,{9000 + self._lines},1000{self._lines:03}000000,-;{line}\n")

    def remap(self, node: str, *, failed: bool) -> None:
        """Set whether the first GPU of a node has failed to remap a row of its memory."""
        path = self.directory / node / "nvml.json"
        readings = json.loads(path.read_text())
        readings["devices"][0]["nvmlDeviceGetRemappedRows"] = [0, 0, 0, int(failed)]
        replacement = path.with_suffix(".new")
        replacement.write_text(json.dumps(readings))
        replacement.replace(path)

    def watch(self, *states: str, times: int = 1) -> None:
        """Print the incidents in the aggregator's log until this many have reached one of these states."""
        end = time.monotonic() + _TIMEOUT
        while times > 0:
            if time.monotonic() > end:
                raise SystemExit(
                    f"demo: {times} incidents are not {' or '.join(states)} after {_TIMEOUT:g} s:\n"
                    f"{self._last_log_lines()}"
                )
            with self._log.open() as log:
                log.seek(self._read)
                for line in iter(log.readline, ""):
                    if not line.endswith("\n"):
                        break
                    self._read = log.tell()
                    entry = json.loads(line)
                    if entry["msg"] == "incident changed":
                        self._print_incident(entry)
                        times -= entry["state"] in states
            time.sleep(0.1)

    def incident(self, node: str) -> str:
        """Return the name of a node's first incident; empty if it has none."""
        incidents: list[dict[str, Any]] = self._query("get", "incidents")["incidents"]
        return next((incident["name"] for incident in incidents if incident["node"] == node), "")

    def run(self, *arguments: str) -> None:
        """Print a command that queries the aggregator, and its output."""
        run(*arguments, hidden=("--socket", SOCKET), directory=self.directory)

    def _last_log_lines(self) -> str:
        logs = sorted(self.directory.glob("*.log"))
        return "\n".join(
            f"{log.stem}: {lines[-1]}" for log in logs if (lines := log.read_text().splitlines())
        )

    def _print_incident(self, entry: dict[str, str]) -> None:
        node, check, state = entry["node"], entry["check"], entry["state"]
        effect = _EFFECTS.get(entry["health"], "keep work off")
        outcomes = {
            "Advised": f"advice: {effect} {'it' if entry['scope'] == f'node {node}' else entry['scope']}",
            "Withheld": f"NO advice: {entry['reason']}",
            "Recovering": "the check passes; the advice stays until the soak period ends",
            "Resolved": "over; it may take work again" if node in self._advised else "over",
        }
        outcome = outcomes.get(state, "reported; no scheduling change")
        if state == "Advised":
            self._advised.add(node)
        # The message of a check is printed once.
        cause = check if check in self._checks else f"{check}: {entry['summary']}"
        self._checks.add(check)
        head = StyledText(f"{time.monotonic() - self.began:4.0f} s  "), StyledText(f"{node}  ", "strong")
        line = StyledLine(head, f"{cause} -> {outcome}", _STYLE.get(state, ""))
        print_output(format_lines([line]))
        sys.stdout.flush()

    def _query(self, *arguments: str) -> Any:
        command = [*COMMAND, *arguments, "-o", "json", "--socket", SOCKET]
        output = subprocess.run(command, capture_output=True, check=False, cwd=self.directory).stdout
        return json.loads(output) if output else {}

    def _start(self, *arguments: str, log: Path) -> None:
        file = self._stack.enter_context(log.open("wb"))
        self._stack.enter_context(_running([*COMMAND, *arguments], file, self.directory))


@contextmanager
def _running(command: list[str], log: IO[bytes], directory: Path) -> Iterator[None]:
    """Run a process that ends with this one, even if this one is killed."""
    bound = ["setpriv", "--pdeathsig", "TERM", "--"] if shutil.which("setpriv") else []
    process = subprocess.Popen(
        [*bound, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=directory
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


def run(*arguments: str, hidden: tuple[str, ...] = (), directory: Path = ROOT) -> None:
    """Print a command and its output. hidden: arguments that are not printed. directory: where it runs."""
    _print("", f"$ nodeguard {shlex.join(arguments)}")
    subprocess.run([*COMMAND, *arguments, *hidden], check=False, cwd=directory)


def _print(*lines: str, style: str = "strong") -> None:
    styled = [StyledLine(text=line, style=style) if line else StyledLine() for line in lines]
    print_output(format_lines(styled))
    sys.stdout.flush()


def _free_ports(count: int) -> list[int]:
    """Return ports on which nothing listens, below those of connections: one could take a port too early."""
    ports: list[int] = []
    with ExitStack() as stack:
        while len(ports) < count:
            probe = stack.enter_context(socket.socket())
            with suppress(OSError):
                probe.bind(("127.0.0.1", random.randrange(16_000, 32_000)))
                ports.append(probe.getsockname()[1])
    return ports


def _story(fleet: Fleet) -> None:
    fleet.announce("gpu-6: the kernel logs a hot cable.")
    fleet.log("gpu-6", CABLE)
    fleet.watch("Advised")
    time.sleep(2)
    fleet.announce("gpu-3: a GPU stops responding, Xid 119.")
    fleet.log("gpu-3", XID)
    fleet.watch("Advised")
    time.sleep(2)
    fleet.announce("A bad driver: four nodes report a failed row remapping at once.")
    for node in STORM:
        fleet.remap(node, failed=True)
    fleet.watch("Advised", "Withheld", times=len(STORM))
    fleet.announce("The driver is rolled back, and the checks pass again.")
    for node in STORM:
        fleet.remap(node, failed=False)
    fleet.watch("Resolved", times=len(STORM))
    fleet.announce("An operator replaces the cable of gpu-6, and clears the finding.")
    fleet.run("incidents", "clear", fleet.incident("gpu-6"))
    fleet.watch("Resolved")


def main() -> None:
    """Run the demo."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nodeguard-demo-")))
        fleet = Fleet(directory, stack)
        fleet.start()
        _print("One node, recorded after a GPU fell off the bus:")
        run("check", "--from", "fixtures/gpu-off-bus")
        _print("", "A fleet: an aggregator, and agents on eight recorded machines, with this policy:", "")
        for line in POLICY.splitlines():
            _print(f"  {line}", style="")
        fleet.wait()
        _story(fleet)
        for words in (["status"], ["describe", "node", "gpu-3"], ["get", "incidents", "--all"]):
            fleet.run(*words)
        _print(
            "",
            "Next: nodeguard check checks this machine; nodeguard explain gpu-gsp-failure describes one; "
            "docs/tasks/read-the-fleet.md explains this output, docs/install/kubernetes.md the installation.",
        )


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)

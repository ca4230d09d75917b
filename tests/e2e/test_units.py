"""The pages on systemd, followed step by step: the commands, units and files as they are, below another root."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from nodeguard.aggregator.api import requests as asking
from tests.daemonset.units import UNITS, arguments
from tests.docs.pages import commands, text
from tests.e2e.processes import answer, installed, live_bundle, page, running, until
from tests.paths import ROOT
from tests.ports import free_ports
from tests.waiting import PATIENCE

pytestmark = pytest.mark.slow

AGENT, AGGREGATOR = UNITS
MAIN = ("-m", "nodeguard.cli.main")
RESOLVING = str(Path(__file__).with_name("resolving.py"))

# The name of the aggregator's machine in docs/install/standalone.md.
HOST = "nodeguard.example"


class Machine:
    """A root directory in which a site installs nodeguard. here: where its commands run."""

    def __init__(self, directory: Path) -> None:
        self.root, self.here = directory / "root", directory / "here"
        for made in (self.here, self.root / "var/lib", self.root / "run"):
            made.mkdir(parents=True)
        self.reports, self.agent, self.metrics = free_ports(3)
        (self.here / "names").write_text(f"127.0.0.1 {HOST}\n")

    def local(self, text: str) -> str:
        """Return a text with nodeguard's paths below the root, and with free ports."""
        text = re.sub(r"(?<!\S)/(?=(etc|run|var/lib)/nodeguard)", f"{self.root}/", text)
        return text.replace("0.0.0.0:8443", f"127.0.0.1:{self.reports}").replace(":8443", f":{self.reports}")

    def follow(self, page: str, program: str, *only: str) -> None:
        """Run the commands of a page that begin with a program. only: those that end with one of these words."""
        for command in commands():
            name, *words = command.words
            if (command.page, name) != (f"docs/install/{page}", program) or (only and words[-1] not in only):
                continue
            if program == "install":
                source, target = words[-2:]
                shipped = source.startswith("daemonset/")
                words[-2:] = [str(ROOT / source) if shipped else source, f"{self.root}{target}"]
            path = installed(program)
            subprocess.run([path, *words], cwd=self.here, check=True, capture_output=True)

    @contextmanager
    def aggregator(self) -> Iterator[Path]:
        """The aggregator as its unit starts it. Gives its socket."""
        own, log = Path(f"{self.root}{asking.SOCKET_PATH}"), self.here / "aggregator.log"
        own.parent.mkdir()
        words = [self.local(word) for word in arguments(AGGREGATOR, HOST)]
        more = ("--socket", str(own), "--metrics", f"127.0.0.1:{self.metrics}")
        with running(log, sys.executable, *MAIN, *words, *more):
            until(own.is_socket, log)
            yield own

    def agent_command(self, bundle: Path) -> list[str]:
        """The command line of the agent's unit, for a recorded machine."""
        words = [self.local(word) for word in arguments(AGENT)]
        listen = ("--listen", f"127.0.0.1:{self.agent}")
        return [sys.executable, RESOLVING, str(self.here / "names"), *words, *listen, "--from", str(bundle)]


@pytest.fixture
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    # A short name: the path of a socket may have 107 bytes.
    return Machine(tmp_path_factory.mktemp("m"))


def test_the_page_on_a_fleet_without_kubernetes_leads_to_a_fleet(machine: Machine) -> None:
    ca, settings = (
        machine.root / "var/lib/nodeguard-aggregator/ca.crt",
        machine.root / "etc/nodeguard/agent.yaml",
    )
    machine.follow("standalone.md", "openssl")
    machine.follow("standalone.md", "install", "/etc/nodeguard/agents-ca.pem", "/etc/nodeguard/policy.yaml")
    machine.follow("agent.md", "install")
    with ExitStack() as stack:
        own = stack.enter_context(machine.aggregator())
        shutil.copy(ca, machine.here / "ca.crt")
        machine.follow(
            "standalone.md",
            "install",
            *(f"/etc/nodeguard/{name}" for name in ("ca.crt", "gpu-1.pem", "gpu-1.key")),
        )
        [block] = re.findall(r"```yaml\n(node: .*?)```", text("docs/install/standalone.md"), re.DOTALL)
        settings.write_text(settings.read_text() + machine.local(block))
        bundle = live_bundle("healthy-dgx-h100", machine.here)
        log = machine.here / "agent.log"
        stack.enter_context(running(log, *machine.agent_command(bundle)))
        until(lambda: answer(own, "/v1/status").get("agents", {}).get("reported") == 1, log)
        assert "nodeguard_aggregator_up 1" in page(f"127.0.0.1:{machine.metrics}", "/metrics")


def test_the_agent_starts_with_the_shipped_settings_and_systemd_knows_when(machine: Machine) -> None:
    machine.follow("agent.md", "install")
    bundle = live_bundle("healthy-dgx-h100", machine.here)
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as systemd:
        systemd.bind(str(machine.here / "notify"))
        systemd.settimeout(PATIENCE)
        environment = ["env", f"NOTIFY_SOCKET={machine.here}/notify", "WATCHDOG_USEC=2000000"]
        log = machine.here / "agent.log"
        with running(log, *environment, *machine.agent_command(bundle)):
            assert systemd.recv(100) == b"READY=1", log.read_text()
            assert systemd.recv(100) == b"WATCHDOG=1", log.read_text()
        messages = iter(lambda: systemd.recv(100), b"STOPPING=1")
        assert set(messages) <= {b"WATCHDOG=1"}


def test_without_its_settings_the_agent_ends_and_names_the_file(machine: Machine) -> None:
    bundle = live_bundle("healthy-dgx-h100", machine.here)
    done = subprocess.run(machine.agent_command(bundle), capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr == (
        f"nodeguard agent: {machine.root}/etc/nodeguard/agent.yaml: cannot be read: No such file or directory: "
        "check that it is there and may be read\n"
    )

"""The pages on systemd, followed step by step below another root: commands, units and files as shipped."""

from __future__ import annotations

import re
import shlex
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
from tests.docs.ran import record_command
from tests.e2e.processes import command_path, copy_bundle, get_page, query_socket, running, until
from tests.paths import ROOT
from tests.ports import free_ports
from tests.waiting import PATIENCE

pytestmark = pytest.mark.slow

AGENT, AGGREGATOR = UNITS
MAIN = ("-m", "nodeguard.cli.main")
RESOLVE_HOSTS = str(Path(__file__).with_name("resolve_hosts.py"))

# The name of the aggregator's machine in docs/install/standalone.md.
HOST = "nodeguard.example"


class Machine:
    """A root directory in which a site installs nodeguard. here: the working directory of its commands."""

    def __init__(self, directory: Path) -> None:
        self.root, self.here = directory / "root", directory / "here"
        for folder in (self.here, self.root / "var/lib", self.root / "run"):
            folder.mkdir(parents=True)
        self.reports, self.agent, self.metrics = free_ports(3)
        (self.here / "names").write_text(f"127.0.0.1 {HOST}\n")

    def local(self, text: str) -> str:
        """Return a text with nodeguard's paths below the root, and with free ports."""
        text = re.sub(r"(?<!\S)/(?=(etc|run|var/lib)/nodeguard)", f"{self.root}/", text)
        return text.replace("0.0.0.0:8443", f"127.0.0.1:{self.reports}").replace(":8443", f":{self.reports}")

    def follow(self, page: str, program: str, *only: str) -> None:
        """Run the commands of a page that start a program. only: of these, the ones with this last argument."""
        for command in commands():
            name, *arguments = command.words
            if (command.page, name) != (f"docs/install/{page}", program) or (
                only and arguments[-1] not in only
            ):
                continue
            record_command(shlex.join(command.words))
            if program == "install":
                source, target = arguments[-2:]
                shipped = source.startswith("daemonset/")
                arguments[-2:] = [str(ROOT / source) if shipped else source, f"{self.root}{target}"]
            path = command_path(program)
            subprocess.run([path, *arguments], cwd=self.here, check=True, capture_output=True)

    @contextmanager
    def aggregator(self) -> Iterator[Path]:
        """Run the aggregator with the command of its unit, and yield its socket."""
        own, log = Path(f"{self.root}{asking.SOCKET_PATH}"), self.here / "aggregator.log"
        own.parent.mkdir()
        options = [self.local(argument) for argument in arguments(AGGREGATOR, HOST)]
        local = ("--socket", str(own), "--metrics", f"127.0.0.1:{self.metrics}")
        with running(log, sys.executable, *MAIN, *options, *local):
            until(own.is_socket, log)
            yield own

    def agent_command(self, bundle: Path) -> list[str]:
        """Return the command line of the agent's unit, for a recorded machine."""
        options = [self.local(argument) for argument in arguments(AGENT)]
        listen = ("--listen", f"127.0.0.1:{self.agent}")
        hosts = str(self.here / "names")
        return [sys.executable, RESOLVE_HOSTS, hosts, *options, *listen, "--from", str(bundle)]


@pytest.fixture
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    # A short name: the path of a socket may have 107 bytes.
    return Machine(tmp_path_factory.mktemp("m"))


def test_following_the_standalone_page_starts_a_fleet(machine: Machine) -> None:
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
        bundle = copy_bundle("healthy-dgx-h100", machine.here)
        log = machine.here / "agent.log"
        stack.enter_context(running(log, *machine.agent_command(bundle)))
        until(lambda: query_socket(own, "/v1/status").get("agents", {}).get("reported") == 1, log)
        assert "nodeguard_aggregator_up 1" in get_page(f"127.0.0.1:{machine.metrics}", "/metrics")


def test_the_agent_notifies_systemd_when_it_is_ready(machine: Machine) -> None:
    machine.follow("agent.md", "install")
    bundle = copy_bundle("healthy-dgx-h100", machine.here)
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


def test_an_agent_without_its_settings_file_names_it(machine: Machine) -> None:
    bundle = copy_bundle("healthy-dgx-h100", machine.here)
    done = subprocess.run(machine.agent_command(bundle), capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr == (
        f"nodeguard agent: {machine.root}/etc/nodeguard/agent.yaml: cannot be read: No such file or directory: "
        "check that it is there and may be read\n"
    )

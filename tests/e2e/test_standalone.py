"""A standalone aggregator, without Kubernetes, and agents on recorded machines: real processes."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from nodeguard.agent.control import get_status
from nodeguard.delivery.attempt import signed_headers
from tests.controlplane.certificates import Authority
from tests.e2e.processes import copy_bundle, get_page, query_socket, running, running_agent, until
from tests.executors.receiver import MarkReceiver
from tests.ports import free_address
from tests.waiting import PATIENCE, PROMPTLY

pytestmark = pytest.mark.slow

COMMAND = (sys.executable, "-m", "nodeguard.cli.main")
BUNDLE = "healthy-dgx-h100"
XID = "3,9001,1000010000000,-;NVRM: Xid (PCI:0000:1b:00): 119, pid=1, name=train, Timeout after 6s of waiting for RPC response\n"
POLICY = "defaultMode: enforce\ngracePeriod: {quarantine: 1s}\nsoak: {initial: 1s}\n"


class Site:
    """A directory with the files of a site without Kubernetes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.listen, self.metrics = free_address(), free_address()
        self.socket, self.log = directory / "a.sock", directory / "aggregator.log"
        (directory / "policy.yaml").write_text(POLICY)

    def command(self, *options: str) -> list[str]:
        return [
            *COMMAND, "aggregator", "--standalone", "--listen", self.listen, "--metrics", self.metrics,
            "--state", f"{self.directory}/state", "--socket", f"{self.socket}",
            "--policy", f"{self.directory}/policy.yaml", *options,
        ]  # fmt: skip

    @contextmanager
    def aggregator(self, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        with running(self.log, *self.command(*options)) as process:
            until(lambda: "listens for agents" in self.log.read_text(), self.log)
            yield process

    @contextmanager
    def node(self, name: str, settings: str, recording: str = BUNDLE) -> Iterator[Path]:
        """Run an agent, and yield the bundle that it reads."""
        own = self.directory / name
        own.mkdir()
        bundle = copy_bundle(recording, own)
        (own / "agent.yaml").write_text(f"node: {name}\nstate: {own}/state\naggregator:\n{settings}")
        with running_agent(own, "--config", f"{own}/agent.yaml", "--from", f"{bundle}"):
            yield bundle

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*COMMAND, *arguments, "--socket", f"{self.socket}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr
        return done

    def query(self, *arguments: str) -> Any:
        done = self.run(*arguments, "-o", "json")
        return json.loads(done.stdout) if done.stdout else {}

    def wait_for_reports(self, count: int) -> None:
        until(
            lambda: query_socket(self.socket, "/v1/status").get("agents", {}).get("reported") == count,
            self.log,
        )

    def states(self) -> dict[str, str]:
        """Return the states of incidents, by node."""
        incidents = query_socket(self.socket, "/v1/incidents").get("incidents", ())
        return {incident["node"]: incident["state"] for incident in incidents}

    def logged_incidents(self) -> list[dict[str, str]]:
        """Return the changes of incidents in the log. A thread writes it: a line may follow the API's response."""
        whole, _, _ = self.log.read_text().rpartition("\n")
        lines = [json.loads(line) for line in whole.splitlines()]
        return [line for line in lines if line["msg"] == "incident changed"]


def insecure_settings(site: Site) -> str:
    return f"  addresses: ['http://{site.listen}/v1/messages']\n"


def certificate_settings(site: Site, authority: Authority, name: str) -> str:
    pair, port = authority.issue(name), site.listen.rpartition(":")[2]
    return (
        f"  addresses: ['https://localhost:{port}/v1/messages']\n  ca_file: {site.directory}/state/ca.crt\n"
        f"  certificate_file: {pair.certificate}\n  key_file: {pair.key}\n"
    )


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_marks_and_decisions_survive_a_kill(site: Site) -> None:
    authority = Authority(site.directory)
    options = ("--client-ca", str(authority.certificate), "--cert-host", "localhost")
    with ExitStack() as stack:
        process = stack.enter_context(site.aggregator(*options))
        names = ("gpu-1", "gpu-2")
        bundles = [
            stack.enter_context(site.node(name, certificate_settings(site, authority, name)))
            for name in names
        ]
        site.wait_for_reports(2)
        with (bundles[0] / "kmsg").open("a") as kernel:
            kernel.write(XID)
        until(lambda: site.states() == {"gpu-1": "Advised"}, site.log)
        assert "row 4" in site.run("pause", "--reason", "row 4 is rewired").stdout + site.run("status").stdout
        other = subprocess.run(site.command(*options), capture_output=True, text=True, check=False)
        assert (other.returncode, other.stderr.splitlines()[-1]) == (
            3,
            (
                f"nodeguard aggregator: --state {site.directory}/state: another aggregator on this machine uses this "
                "directory: name another"
            ),
        )
        process.send_signal(signal.SIGKILL)
        process.wait(PROMPTLY)
        stack.enter_context(site.aggregator(*options))
        site.wait_for_reports(2)
        status = site.query("status")
        assert status["paused"].startswith("paused by ")
        assert status["marked"]["quarantine"]["nodes"] == 1
        with (bundles[1] / "kmsg").open("a") as kernel:
            kernel.write(XID)
        until(lambda: site.states() == {"gpu-1": "Advised", "gpu-2": "Withheld"}, site.log)
        [incident] = [item["name"] for item in site.query("get", "incidents", "--node", "gpu-1")["incidents"]]
        cleared = site.run("incidents", "clear", incident)
        assert cleared.returncode == 0
        assert "gpu-gsp-failure on GPU 0000:1b:00 is cleared" in cleared.stdout
        until(lambda: site.states() == {"gpu-2": "Withheld"}, site.log)
        assert "nodeguard_aggregator_up 1" in get_page(site.metrics, "/metrics")
    assert "Traceback" not in site.log.read_text()


def test_sighup_reloads_the_policy(site: Site) -> None:
    with site.aggregator("--insecure") as process:
        (site.directory / "policy.yaml").write_text("defaultMode: enfore\n")
        process.send_signal(signal.SIGHUP)
        until(lambda: "'enfore' is not valid: use one of observe, enforce" in site.log.read_text(), site.log)
        assert "nodeguard_aggregator_policy_last_reload_successful 0" in get_page(site.metrics, "/metrics")
        (site.directory / "policy.yaml").write_text(POLICY)
        process.send_signal(signal.SIGHUP)
        until(
            lambda: (
                "nodeguard_aggregator_policy_last_reload_successful 1" in get_page(site.metrics, "/metrics")
            ),
            site.log,
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(PROMPTLY) == 0


def test_a_scheduler_gets_the_marks_over_a_kill_and_a_failure_of_its_own(site: Site) -> None:
    receiver = MarkReceiver()
    (site.directory / "key").write_text("a-secret-of-both")
    file = site.directory / "notifications.yaml"
    file.write_text(f"markWebhooks:\n- {{name: scheduler, url: '{receiver.url}', secretFile: key}}\n")
    options = ("--insecure", "--notifications", str(file))
    with ExitStack() as stack:
        stack.enter_context(receiver.serving())
        process = stack.enter_context(site.aggregator(*options))
        bundle = stack.enter_context(site.node("gpu-1", insecure_settings(site)))
        site.wait_for_reports(1)
        receiver.status = 503
        with (bundle / "kmsg").open("a") as kernel:
            kernel.write(XID)
        until(lambda: "webhook scheduler: HTTP status 503" in site.run("status").stdout, site.log)
        receiver.status = 200
        until(lambda: receiver.drained == {"gpu-1": {"quarantine"}}, site.log)
        [node] = receiver.bodies[-1]["nodes"]
        [cause] = node["marks"][0]["causes"]
        assert (cause["check"], cause["target"]) == ("gpu-gsp-failure", "gpu/0000:1b:00")
        assert 'webhook="scheduler"' in get_page(site.metrics, "/metrics")
        process.send_signal(signal.SIGKILL)
        process.wait(PROMPTLY)
        stack.enter_context(site.aggregator(*options))
        site.wait_for_reports(1)
        [incident] = [item["name"] for item in site.query("get", "incidents", "--node", "gpu-1")["incidents"]]
        assert site.run("incidents", "clear", incident).returncode == 0
        until(lambda: "gpu-1" not in receiver.drained, site.log)
    headers, content = receiver.headers[-1], receiver.contents[-1]
    sent = float(headers["webhook-timestamp"])
    signed = signed_headers(b"a-secret-of-both", headers["webhook-id"], content, sent)
    assert headers["webhook-signature"] == signed["webhook-signature"]
    assert "Traceback" not in site.log.read_text()
    assert "a-secret-of-both" not in site.log.read_text()


def test_connections_leave_open_files_for_other_uses(site: Site) -> None:
    authority = Authority(site.directory)
    options = ("--client-ca", str(authority.certificate), "--cert-host", "localhost")
    with ExitStack() as stack:
        limited = ("prlimit", "--nofile=128:300", "--", *site.command(*options))
        stack.enter_context(running(site.log, *limited))
        until(lambda: "listens for agents" in site.log.read_text(), site.log)
        assert '"max_agent_connections": 150, "open_files_limit": 300' in site.log.read_text()
        assert "nodeguard_aggregator_agent_connections_limit 150.0" in get_page(site.metrics, "/metrics")
        host, _, port = site.listen.rpartition(":")
        for address in (f"127.0.0.{number}" for number in range(2, 7)):
            for _ in range(60):
                stack.enter_context(socket.create_connection((host, int(port)), source_address=(address, 0)))
        stack.enter_context(site.node("gpu-2", certificate_settings(site, authority, "gpu-2")))
        site.wait_for_reports(1)
        assert "Too many open files" not in site.log.read_text()


def test_an_aggregator_that_no_agent_can_reach_is_not_ready(site: Site) -> None:
    host, _, port = site.listen.rpartition(":")
    problem = f"cannot listen for agents at {site.listen}: Address already in use"
    with socket.socket() as other:
        other.bind((host, int(port)))
        other.listen()
        with running(site.log, *site.command("--insecure")):
            until(lambda: "cannot listen for agents" in site.log.read_text(), site.log)
            with pytest.raises(HTTPError, match="503") as not_ready:
                urlopen(f"http://{site.metrics}/readyz", timeout=PATIENCE)
            assert not_ready.value.read().decode().startswith(f"not ready: {problem}: stop the process")
            assert problem in " ".join(site.run("status").stdout.split())
            other.close()
            until(lambda: "listens for agents" in site.log.read_text(), site.log)
            assert get_page(site.metrics, "/readyz").startswith("ready")


def test_removed_sockets_of_a_running_aggregator_and_agent_are_created_again(site: Site) -> None:
    agent = site.directory / "gpu-1" / "socket"
    with site.aggregator("--insecure"), site.node("gpu-1", insecure_settings(site)):
        site.wait_for_reports(1)
        for path in (site.socket, agent):
            path.unlink()
        until(lambda: site.socket.exists() and agent.exists(), site.log)
        assert site.query("status")["agents"]["reported"] == 1
        assert get_status(str(agent), PATIENCE).node == "gpu-1"
        for path, log in ((site.socket, site.log), (agent, agent.with_name("agent.log"))):
            assert path.stat().st_mode & 0o777 == 0o600
            assert "the socket was removed: a new one is created" in log.read_text()
    assert not site.socket.exists()


def test_a_node_cannot_report_for_another_node(site: Site) -> None:
    authority = Authority(site.directory)
    options = ("--client-ca", str(authority.certificate), "--cert-host", "localhost")
    with ExitStack() as stack:
        stack.enter_context(site.aggregator(*options))
        stack.enter_context(site.node("gpu-2", certificate_settings(site, authority, "gpu-1")))
        log = site.directory / "gpu-2" / "agent.log"
        until(lambda: "the message is of another node than the sender's credential" in log.read_text(), log)
        assert site.query("status")["agents"]["reported"] == 0


def test_loopback_agents_need_no_credentials_with_insecure(site: Site) -> None:
    with site.aggregator("--insecure"), site.node("gpu-1", insecure_settings(site)) as bundle:
        site.wait_for_reports(1)
        with (bundle / "kmsg").open("a") as kernel:
            kernel.write(XID)
        until(lambda: site.states() == {"gpu-1": "Advised"}, site.log)
        until(lambda: "Advised" in [line["state"] for line in site.logged_incidents()], site.log)
        incidents = site.logged_incidents()
        assert {(line["node"], line["check"]) for line in incidents} == {("gpu-1", "gpu-gsp-failure")}
        assert (incidents[-1]["state"], incidents[-1]["scope"]) == ("Advised", "node gpu-1")


def test_a_clear_that_the_agent_refuses_fails(site: Site) -> None:
    with site.aggregator("--insecure"), site.node("gpu-1", insecure_settings(site), "gpu-no-handle"):
        until(lambda: site.states() == {"gpu-1": "Advised"}, site.log)
        [incident] = [item["name"] for item in site.query("get", "incidents")["incidents"]]
        done = site.run("incidents", "clear", incident, "--by", "ada")
        assert done.returncode == 3
        refusal = "gpu-lost-any on node is not cleared: its condition holds now"
        assert f"{incident} is not cleared: {refusal}" in done.stderr
        view = site.query("describe", "incident", incident)
        assert (view["state"], view["clear_result"]) == ("Advised", "refused")
        text = site.run("describe", "incident", incident).stdout
        assert f" refused: {refusal}" in " ".join(text.split())


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--insecure", "--listen", "0.0.0.0:0"], "127.0.0.1 and ::1 only:"),
        (["--insecure", "--state", "{here}/no/state"], "the directory {here}/no does not exist: create it"),
        (["--client-ca", "{here}/gone", "--cert-host", "a"], "{here}/gone: No such file or directory: create it"),
        (["--client-ca", "{here}/junk", "--cert-host", "a"], "{here}/junk: the client CA is not valid PEM"),
        (["--client-ca", "{here}/junk", "--cert-host", "a b"], "'a b' is no host's name or address: correct it"),
        (["--client-ca", "{here}/junk", "--certificate", "{here}/junk", "--key", "{here}/junk"],
         "{here}/junk has no certificate: write it in PEM"),
        (["--insecure", "--policy", "{here}/junk"], "junk:1:"),
    ],
)  # fmt: skip
def test_a_start_error_names_its_remedy(site: Site, options: list[str], problem: str) -> None:
    (site.directory / "junk").write_text("junk\n")
    options = [option.format(here=site.directory) for option in options]
    done = subprocess.run(
        site.command(*options), capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == 3
    assert problem.format(here=site.directory) in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_the_status_page_of_a_running_aggregator(site: Site) -> None:
    page, history = free_address(), f"{site.directory}/history"
    with site.aggregator("--insecure", "--page", page, "--history", history), ExitStack() as stack:
        bundle = stack.enter_context(site.node("gpu-1", insecure_settings(site)))
        site.wait_for_reports(1)
        assert "1 node: all checks passed" in get_page(page, "/")
        with (bundle / "kmsg").open("a") as kernel:
            kernel.write(XID)
        until(lambda: "advice: keep all new work off it" in get_page(page, "/nodes/gpu-1"), site.log)
        # The remedy of the check, and the finding in the history.
        until(lambda: "gpu-gsp-failure: " in get_page(page, "/nodes/gpu-1"), site.log)
        assert "Stop the work on the GPU, then reset the GPU." in get_page(page, "/nodes/gpu-1")
        assert f"http://{page}/" in site.log.read_text()
    assert "Traceback" not in site.log.read_text()


def test_an_aggregator_runs_without_its_page_where_it_cannot_listen(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        page = f"127.0.0.1:{other.getsockname()[1]}"
        with site.aggregator("--insecure", "--page", page):
            assert "cannot serve the status page" in site.log.read_text()
            assert "name another --page" in site.log.read_text()

"""Checks of the installation on a node: a token, a running agent, and real connections."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nodeguard.agent.control import AgentStatus
from nodeguard.agent.options import ReportingOptions
from nodeguard.doctor.diagnostics import Diagnostic, DiagnosticStatus
from nodeguard.doctor.node import check_agent, check_aggregators, check_sources, check_token, check_user
from nodeguard.model.finding import DataStatus, Health, ReadFailure, Verdict
from tests.controlplane.certificates import Authority

NOW = 1_700_000_000.0
CATALOGUE = "0123456789abcdef"


def statuses(results: Iterable[Diagnostic]) -> dict[str, str]:
    return {result.name: result.status.value for result in results}


def options(**settings: Any) -> ReportingOptions:
    return ReportingOptions(
        addresses=settings.pop("addresses", ("https://127.0.0.1:1/v1/messages",)), **settings
    )


def test_only_root_can_read_everything() -> None:
    assert check_user(0).status == DiagnosticStatus.PASSED
    result = check_user(1000)
    assert (result.status, "run it as root" in result.remedy) == (DiagnosticStatus.FAILED, True)


def test_each_unreadable_source_is_named_with_its_reason() -> None:
    failures = (
        ReadFailure("kmsg", ("node",), "kernel log", "permission denied"),
        ReadFailure("nvml", ("gpu/0000:3b:00",), "temperature", "no answer"),
        ReadFailure("nvml", ("gpu/0000:4b:00",), "clocks", "no answer"),
    )
    verdict = Verdict(Health.OK, DataStatus.UNKNOWN, read_failures=failures)
    results = list(check_sources(verdict, ("kmsg", "nvml", "pci")))
    assert statuses(results) == {"sources": "passed", "source kmsg": "failed", "source nvml": "failed"}
    assert results[2].message == "temperature: no answer, and 1 more"
    assert "dmesg_restrict" in results[1].remedy


def status(**fields: Any) -> AgentStatus:
    values: dict[str, Any] = {
        "version": "0.1.0", "node": "gpu-1", "at": NOW, "boot_id": "b", "verdict": None, "ages": {}, "unread": (),
        "detached": {}, "acknowledged_at": {}, "spooled": 0,
    }  # fmt: skip
    return AgentStatus(**{**values, **fields})


def test_an_agent_that_does_not_answer() -> None:
    (result,) = check_agent(None, "no agent answers", "0.1.0", CATALOGUE)
    assert (result.status, result.message) == (DiagnosticStatus.FAILED, "no agent answers")


def test_acknowledgements_of_a_running_agent() -> None:
    acknowledged = {"a": NOW - 5.0, "b": NOW - 300.0, "c": None}
    results = list(
        check_agent(status(acknowledged_at=acknowledged, state_error="disk full"), "", "0.1.0", CATALOGUE)
    )
    assert statuses(results) == {
        "agent": "passed",
        "agent's state": "warning",
        "reports to a": "passed",
        "reports to b": "failed",
        "reports to c": "failed",
    }
    assert statuses(check_agent(status(version="0.0.9"), "", "0.1.0", CATALOGUE)) == {
        "agent": "warning",
        "reports": "skipped",
    }


def test_an_agent_with_checks_of_other_files() -> None:
    assert statuses(check_agent(status(catalogue=CATALOGUE), "", "0.1.0", CATALOGUE)) == {
        "agent": "passed",
        "reports": "skipped",
    }
    results = list(check_agent(status(catalogue="other"), "", "0.1.0", CATALOGUE))
    assert statuses(results)["agent's checks"] == "warning"
    assert "systemctl reload nodeguard-agent" in results[1].remedy


def token(**claims: Any) -> str:
    payload = {"aud": ["nodeguard"], "exp": NOW + 600, "kubernetes.io": {"node": {"name": "gpu-1"}}, **claims}
    parts = (json.dumps(part).encode() for part in ({"alg": "RS256"}, payload))
    return ".".join([*(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts), "c2ln"])


@pytest.mark.parametrize(
    ("content", "passes", "message"),
    [
        (token(), True, "names node gpu-1"),
        (token(aud="nodeguard"), True, "names node gpu-1"),
        (token(aud=["other"]), False, "its audience is other, not nodeguard"),
        (token(exp=NOW - 1), False, "it expired at 2023-11-14T22:13:19Z"),
        (token(**{"kubernetes.io": {}}), False, "it names no node"),
        (
            token(**{"kubernetes.io": {"node": {"name": "gpu-2"}}}),
            False,
            "it is of node gpu-2, and the agent reports for gpu-1",
        ),
        ("abc", False, "is not a service account token"),
        ("a.b.c", False, "is not a service account token"),
        ("a.!!.c", False, "holds no token"),
    ],
)
def test_claims_of_the_token(content: str, passes: bool, message: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(content)
    result = check_token(options(token_file=str(tmp_path / "token")), "gpu-1", NOW)
    assert (result.status == DiagnosticStatus.PASSED, message in result.message) == (passes, True), result
    assert len(content) < 20 or content not in result.message
    assert passes or result.remedy


def test_a_missing_token_and_none() -> None:
    assert check_token(options(token_file="/nowhere/token"), "gpu-1", NOW).status == DiagnosticStatus.FAILED
    assert check_token(options(), "gpu-1", NOW).status == DiagnosticStatus.SKIPPED


@contextmanager
def tls_server(authority: Authority, name: str) -> Iterator[int]:
    """A TLS server with a certificate for a name. Yields its port."""
    pair = authority.issue(name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                try:
                    context.wrap_socket(connection, server_side=True).close()
                except OSError:
                    connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize(("name", "expected"), [("localhost", "passed"), ("other.example", "failed")])
def test_the_certificate_of_an_aggregator(name: str, expected: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with tls_server(authority, name) as port:
        address = f"https://localhost:{port}/v1/messages"
        results = list(check_aggregators(options(addresses=(address,), ca_file=str(authority.certificate))))
    assert [result.status.value for result in results] == [expected]
    if expected == "failed":
        assert "its certificate is refused: " in results[0].message
        assert "aggregator.ca_file" in results[0].remedy


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("https://127.0.0.1:1/v1/messages", "Connection refused"),
        ("https://no-such-host.invalid/v1/messages", "cannot be resolved"),
    ],
)
def test_an_aggregator_that_cannot_be_reached(address: str, message: str) -> None:
    (result,) = check_aggregators(options(addresses=(address,)))
    assert (result.status, message in result.message) == (DiagnosticStatus.FAILED, True), result
    assert result.remedy

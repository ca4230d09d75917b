"""Limits on the connections of the ingest server."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from nodeguard.aggregator.ingest.limits import IngestLimits
from tests.aggregator.ingest.scene import agent, connected, exchange, head, heartbeat, serving, tokens
from tests.aggregator.issuer import Issuer
from tests.logs import LogLines
from tests.waiting import until


def test_the_oldest_unauthenticated_connection_is_closed_for_an_agent(issuer: Issuer, tmp_path: Path) -> None:
    limits = IngestLimits(unauthenticated=3, connections=5)
    with serving(lambda: tokens(issuer), limits=limits) as served:
        good = agent(served, tmp_path / "token", issuer.token())
        assert good.post(heartbeat()).status == 200
        with connected(served) as first, connected(served), connected(served), connected(served):
            assert exchange(first) == b""
            late = agent(served, tmp_path / "late", issuer.token("node-b"))
            assert late.post(heartbeat("node-b")).status == 200
            assert good.post(heartbeat()).status == 200
        good.close()
        late.close()


def test_the_connections_of_one_credential_are_limited(issuer: Issuer, tmp_path: Path) -> None:
    with serving(lambda: tokens(issuer)) as served, ExitStack() as stack:
        other = agent(served, tmp_path / "other", issuer.token("node-b"))
        assert other.post(heartbeat("node-b")).status == 200
        agents = [agent(served, tmp_path / "token", issuer.token()) for _ in range(50)]
        assert {transport.post(heartbeat()).status for transport in agents} == {200}
        until(lambda: served.ingest.connections == IngestLimits().connections_per_node + 1)
        assert agents[0].post(heartbeat()).status == 200
        assert other.post(heartbeat("node-b")).status == 200
        for transport in (*agents, other):
            transport.close()
        until(lambda: served.ingest.connections == 0)

        request = head(1000, f"Authorization: Bearer {issuer.token()}\r\n")
        for _ in range(IngestLimits().connections_per_node):
            stack.enter_context(connected(served)).sendall(request)
        until(lambda: served.ingest.connections == IngestLimits().connections_per_node)
        until(lambda: b"429" in exchange(stack.enter_context(connected(served)), request))
        assert served.refused[-1] == ("node-a", "too-many-connections")


def test_a_rejected_connection_is_counted_and_logged(issuer: Issuer, tmp_path: Path, log: LogLines) -> None:
    with serving(lambda: tokens(issuer), limits=IngestLimits(connections=1)) as served:
        transport = agent(served, tmp_path / "token", issuer.token())
        assert transport.post(heartbeat()).status == 200
        with connected(served) as sock:
            assert exchange(sock) == b""
        transport.close()
        until(lambda: served.ingest.endpoint.connection_errors["limit-reached"] == 1)
        until(log.text)
        assert log.text()[0].startswith(
            "WARNING connection rejected address=127.0.0.1 "
            "reason=the limit on connections of this aggregator is reached: "
        )

"""How many connections the server keeps, and whose."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from nodeguard.aggregator.ingest.limits import IngestLimits
from tests.aggregator.ingest.scene import agent, connected, head, heartbeat, said, serving, tokens
from tests.aggregator.issuer import Issuer
from tests.waiting import until


def test_the_oldest_stranger_gives_way_to_an_agent(issuer: Issuer, tmp_path: Path) -> None:
    limits = IngestLimits(unauthenticated=3, connections=5)
    with serving(lambda: tokens(issuer), limits=limits) as served:
        good = agent(served, tmp_path / "token", issuer.token())
        assert good.post(heartbeat()).status == 200
        with connected(served) as first, connected(served), connected(served), connected(served):
            assert said(first) == b""
            late = agent(served, tmp_path / "late", issuer.token("node-b"))
            assert late.post(heartbeat("node-b")).status == 200
            assert good.post(heartbeat()).status == 200
        good.close()
        late.close()


def test_one_credential_holds_few_connections_and_takes_none_from_others(
    issuer: Issuer, tmp_path: Path
) -> None:
    with serving(lambda: tokens(issuer)) as served, ExitStack() as stack:
        other = agent(served, tmp_path / "other", issuer.token("node-b"))
        assert other.post(heartbeat("node-b")).status == 200
        ways = [agent(served, tmp_path / "token", issuer.token()) for _ in range(50)]
        assert {way.post(heartbeat()).status for way in ways} == {200}
        until(lambda: served.ingest.connections == IngestLimits().connections_per_node + 1)
        assert ways[0].post(heartbeat()).status == 200
        assert other.post(heartbeat("node-b")).status == 200
        for way in (*ways, other):
            way.close()
        until(lambda: served.ingest.connections == 0)

        request = head(1000, f"Authorization: Bearer {issuer.token()}\r\n")
        for _ in range(IngestLimits().connections_per_node):
            stack.enter_context(connected(served)).sendall(request)
        until(lambda: served.ingest.connections == IngestLimits().connections_per_node)
        until(lambda: b"429" in said(stack.enter_context(connected(served)), request))
        assert served.refused[-1] == ("node-a", "too-many-connections")


def test_a_connection_that_is_not_accepted_is_counted_and_logged(issuer: Issuer, tmp_path: Path) -> None:
    with serving(lambda: tokens(issuer), limits=IngestLimits(connections=1)) as served:
        way = agent(served, tmp_path / "token", issuer.token())
        assert way.post(heartbeat()).status == 200
        with connected(served) as sock:
            assert said(sock) == b""
        way.close()
        until(lambda: served.ingest.endpoint.connection_errors["limit-reached"] == 1)
        assert served.told[0].startswith(
            "127.0.0.1: the limit on connections of this aggregator is reached: "
        )

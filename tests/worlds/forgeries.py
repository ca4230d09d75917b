"""Forged messages: refused ones change nothing, and a node's own credential only changes that node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from nodeguard.model.finding import Health
from nodeguard.wire.encoding import EncodingError, decode_message, encode
from nodeguard.wire.report import Report, ReportedEvidence
from tests.worlds.agents import FAULTS, WorldAgent

if TYPE_CHECKING:
    from tests.worlds.world import World

_MANY, _LONG = 60, 1_500


def forge(world: World, number: int, agent: WorldAgent, kind: str) -> None:
    """Send a forged message with the credential of an agent."""
    sequence = agent.sequence
    report = agent.report(world.mono)
    findings = (replace(FAULTS["gpu-lost"], age=600.0),)
    # Its digest is not of the agent: the next heartbeat asks for the true report.
    report = replace(report, health=Health.FATAL, findings=findings, digest="forged")
    agent.sequence = sequence
    node, uid = agent.name, agent.uid
    before = dict(world.planner.reports)
    if kind == "another node":
        report = replace(report, node=f"node-{(number + 1) % len(world.agents)}")
        uid = world.cluster.uid((number + 1) % len(world.agents)) or uid
        refused = world.aggregator.receive(report, node, uid) is None
        assert refused
        assert world.planner.reports == before
        world.counts["refused"] += 1
    elif kind == "an old uid":
        reply = world.aggregator.receive(report, node, f"uid of a deleted Node {number}")
        assert (reply is None) == bool(world.cluster.uid(number))
    elif kind == "another boot":
        forged = replace(report, boot_id="forged", sequence=10_000)
        reply = world.aggregator.receive(forged, node, uid)
        # The agent sends every 10 s at least: while it does, no other boot replaces its own.
        since = world.mono - world.aggregator.messages.get(uid, float("-inf"))
        assert reply is None or since > 0.0 or agent.down is not None
    elif kind == "a used sequence":
        # Without a message of the node, a new aggregator does not have its number.
        if uid in world.aggregator.messages:
            world.aggregator.receive(replace(report, sequence=0), node, uid)
    elif kind == "no message":
        for data in (b"{", b"[]", encode(report)[:-40], b'{"version":1,"kind":"report","node":"x"}'):
            with pytest.raises(EncodingError):
                decode_message(data)
    else:
        agent.sequence += 1
        _send_own(world, agent, replace(report, sequence=agent.sequence), kind)


def _send_own(world: World, agent: WorldAgent, report: Report, kind: str) -> None:
    """Send a report of the agent's own boot that no agent would send."""
    finding = report.findings[0]
    if kind == "unfamiliar checks":
        topologies = ("fabric", "rack", "driver", "no topology")
        findings = tuple(
            replace(finding, check=f"forged-{at}", target=f"gpu/{at}", topologies=topologies)
            for at in range(_MANY)
        )
    elif kind == "huge evidence":
        text = tuple(ReportedEvidence("nvml", "x" * _LONG) for _ in range(_MANY))
        findings = (
            replace(finding, evidence=text),
            *(replace(finding, target=f"gpu/{at}") for at in range(9)),
        )
        with pytest.raises(EncodingError):
            encode(replace(report, findings=findings * 30))
    else:
        findings = (replace(finding, age=1e308),)
    message = decode_message(encode(replace(report, findings=findings)))
    others = {uid: latest for uid, latest in world.planner.reports.items() if uid != agent.uid}
    world.aggregator.receive(message, agent.name, agent.uid)
    assert others == {uid: latest for uid, latest in world.planner.reports.items() if uid != agent.uid}

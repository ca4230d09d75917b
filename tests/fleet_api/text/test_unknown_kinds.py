"""Responses of a newer aggregator, with a kind of mark that this version does not know."""

from __future__ import annotations

import msgspec

from nodeguard.cli.render.resources import INCIDENT_TABLE, NODE_TABLE, resource_lines
from nodeguard.fleet_api.incident import describe_incident, list_incidents
from nodeguard.fleet_api.node import describe_node, list_nodes
from nodeguard.fleet_api.schema.incident import IncidentList, IncidentView
from nodeguard.fleet_api.schema.node import NodeList, NodeView
from nodeguard.fleet_api.text.incident import incident_view
from nodeguard.fleet_api.text.node import node_view
from tests.cli.fleet_output import LEADER, look
from tests.fleet.scene import AT_ONCE, Fleet, finding


def of_newer_version(response: msgspec.Struct) -> bytes:
    return msgspec.json.encode(response).replace(b'"quarantine"', b'"preflight"')


def marked() -> Fleet:
    fleet = Fleet(3, AT_ONCE)
    fleet.report(0, finding())
    fleet.carry_out()
    return fleet


def test_a_node_with_an_unknown_kind_of_mark() -> None:
    fleet = marked()
    view = describe_node(fleet.planner, LEADER, "node-0", fleet.now)
    assert view is not None
    text = look(node_view(msgspec.json.decode(of_newer_version(view), type=NodeView)), 120)
    assert text.splitlines()[0] == "FATAL  node-0: marked preflight, no new work: gpu-lost."
    assert "\n  mark        preflight, set " in text


def test_a_list_of_nodes_shows_an_unknown_kind() -> None:
    fleet = marked()
    response = of_newer_version(list_nodes(fleet.planner, fleet.now))
    nodes = msgspec.json.decode(response, type=NodeList).nodes
    assert " preflight " in look(resource_lines(NODE_TABLE, nodes, 120, wide=False), 120)


def test_incidents_with_an_unknown_kind() -> None:
    fleet = marked()
    response = of_newer_version(list_incidents(fleet.planner, LEADER, fleet.now))
    incidents = msgspec.json.decode(response, type=IncidentList).incidents
    assert "gpu-lost" in look(resource_lines(INCIDENT_TABLE, incidents, 120, wide=False), 120)
    view = describe_incident(fleet.planner, LEADER, incidents[0].name, fleet.now)
    assert view is not None
    text = look(incident_view(msgspec.json.decode(of_newer_version(view), type=IncidentView)), 120)
    assert "  state       marked, new work is kept away" in text

"""How pages of a fleet look, for the tests of these pages."""

from __future__ import annotations

from textwrap import dedent

from nodeguard.cli.render.terminal import FLEET, StyledLine, view_lines, wrap_lines
from nodeguard.fleet_api.node import describe_node
from nodeguard.fleet_api.service_state import ServiceState
from nodeguard.fleet_api.text.node import node_view
from nodeguard.fleet_api.view import Field, View
from tests.fleet.scene import Fleet

LEADER = ServiceState(
    "nodeguard-aggregator-6f7c9d-x2vbn", is_leader=True, started=-90_000.0, plan_age=0.4,
    policy_file="/etc/nodeguard/policy.yaml", version="0.1.0",
)  # fmt: skip


def look(shown: View | list[StyledLine], columns: int = 80) -> str:
    lines = view_lines(shown, FLEET) if isinstance(shown, View) else shown
    return "\n".join("".join(words.text for words in row).rstrip() for row in wrap_lines(lines, columns))


def facts(shown: View) -> dict[str, str]:
    """Return the fields below the headline of a view, by name."""
    return {row.name: row.value for row in shown.sections[0].rows if isinstance(row, Field)}


def page(text: str) -> str:
    return dedent(text).strip("\n")


def explained(fleet: Fleet, number: int, columns: int = 80) -> str:
    view = describe_node(fleet.planner, LEADER, f"node-{number}", fleet.now)
    assert view is not None
    return look(node_view(view), columns)

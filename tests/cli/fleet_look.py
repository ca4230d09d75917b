"""How pages of a fleet look, for the tests of these pages."""

from __future__ import annotations

from textwrap import dedent

from nodeguard.cli.render.node import node_page
from nodeguard.cli.render.page import Line, wrapped
from nodeguard.fleet_api.node import node
from nodeguard.fleet_api.service import Service
from tests.fleet.scene import Fleet

LEADER = Service(
    "nodeguard-aggregator-6f7c9d-x2vbn", leads=True, started=-90_000.0, plan_age=0.4,
    policy_file="/etc/nodeguard/policy.yaml", version="0.1.0",
)  # fmt: skip


def look(lines: list[Line], columns: int = 80) -> str:
    return "\n".join("".join(words.text for words in row).rstrip() for row in wrapped(lines, columns))


def page(text: str) -> str:
    return dedent(text).strip("\n")


def explained(fleet: Fleet, number: int, columns: int = 80) -> str:
    told = node(fleet.planner, LEADER, f"node-{number}", fleet.now)
    assert told is not None
    return look(node_page(told), columns)

"""Tests for nodeguard.cli.commands.describe, with an aggregator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.aggregator.api.service import running_api
from tests.cli.fleet_commands import ACTIONS, name, printed, refused
from tests.fleet.leaves import FIRST, fails, wait
from tests.fleet.leaves import fleet as leaves

pytestmark = pytest.mark.usefixtures("fleet_commands")


def test_a_node_and_an_incident_are_described(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "describe", "node", "node-1")
    assert text.startswith("FATAL  node-1: quarantined, no new work: gpu-lost.\n")
    assert "  waiting for " in text
    assert printed(capsys, "describe", "incident", name()).startswith(
        "FATAL  gpu-lost - GPU 0000:3b:00 of node-1\n"
    )
    view = json.loads(printed(capsys, "describe", "node", "-o", "json", "node-1"))
    assert [mark["wait"]["on"] for mark in view["marks"]] == ["finding"]
    for words in (["-o", "json", name()], [name(), "-o", "json"]):
        assert json.loads(printed(capsys, "describe", "incident", *words))["node"] == "node-1"
    assert "node: node-1\n" in printed(capsys, "describe", "node", "node-1", "-o", "yaml")
    assert printed(capsys, "explain", "gpu-lost").startswith("gpu-lost - ")


@pytest.mark.parametrize("words", [["node/node-1"], ["node-1"]])
def test_a_node_is_described_by_what_get_prints_and_by_its_name(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "node/node-1" in printed(capsys, "get", "nodes", "-o", "name").split()
    expected = printed(capsys, "describe", "node", "node-1")
    assert printed(capsys, "describe", *words) == expected
    assert json.loads(printed(capsys, "describe", *words, "-o", "json"))["node"] == "node-1"


def test_an_incident_is_described_without_its_kind(capsys: pytest.CaptureFixture[str]) -> None:
    for written in (f"incident/{name()}", name()):
        assert printed(capsys, "describe", written) == printed(capsys, "describe", "incident", name())


@pytest.mark.parametrize("text", ["node-1", "node-1/gpu-lost", "node-1-gpu"])
def test_an_incident_is_found_by_its_node_and_check(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    view = json.loads(printed(capsys, "describe", "incident", text, "-o", "json"))
    assert view["name"] == name()


@pytest.fixture
def degraded_leaf(fleet_commands: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let commands query an aggregator with a degraded leaf."""
    fleet = leaves()
    fails(fleet)
    wait(fleet, 20.0)
    with running_api(tmp_path, fleet, ACTIONS) as address:
        monkeypatch.setenv("NODEGUARD_AGGREGATOR_SOCKET", address)
        yield


@pytest.mark.usefixtures("degraded_leaf")
def test_a_domain_is_described_and_listed(capsys: pytest.CaptureFixture[str]) -> None:
    whole = printed(capsys, "describe", "domain", FIRST)
    assert whole.startswith(
        f"SUSPECT  {FIRST}: 8 of 8 nodes lost a link at once; the other 4 domains of fabric/p0 did not.\n"
    )
    assert printed(capsys, "describe", "domain", "r0") == whole
    for written in (f"domain/{FIRST}", FIRST, "r0"):
        assert printed(capsys, "describe", written) == whole
    view = json.loads(printed(capsys, "describe", "domain", "r0", "-o", "json"))
    assert (view["domain"], view["state"], len(view["votes"])) == (FIRST, "Marked", 8)
    text = printed(capsys, "get", "domains")
    assert text.startswith("SUSPECT  1 domain degraded, 1 more shows a fault.\n")
    header, first, *_ = map(str.split, text.split("\n\n")[1].splitlines())
    assert header == ["DOMAIN", "NODES", "FAULTY", "STATE", "FAULTS", "REASON"]
    assert first[:5] == [FIRST, "8", "8", "degraded,", "marked"]
    assert json.loads(printed(capsys, "get", "domains", "-o", "json"))["domains"][0]["domain"] == FIRST
    assert len(printed(capsys, "get", "domains", "-A", "--topology", "fabric", "-o", "name").split()) > 2
    incident = view["incident"]
    assert f"nodeguard describe domain {FIRST}\n" in printed(capsys, "describe", "incident", incident)
    for text, error in (
        ("r22", "domain 'r22' not found: did you mean r2"),
        ("fabric/p0/r33", "domain 'fabric/p0/r33' not found: did you mean fabric/p0/r3"),
        ("xyz", "domain 'xyz' not found: see nodeguard get domains --all"),
    ):
        assert error in refused(capsys, "describe", "domain", text)

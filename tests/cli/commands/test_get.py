"""Tests for nodeguard.cli.commands.get and nodeguard.cli.resource_lists, with an aggregator."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodeguard.cli.main import main
from nodeguard.fleet.act.drain_report import DrainReport, DrainState
from nodeguard.model.action import ActionKind, ActionState, NodeAction
from nodeguard.model.node import Node
from nodeguard.model.pod import PodKey
from nodeguard.wire.report import Inventory
from tests.aggregator.api.service import RecordingActions, running_api
from tests.cli.fleet_commands import ACTIONS, name, printed, refused
from tests.fleet.leaves import fails, wait, well
from tests.fleet.leaves import fleet as leaves
from tests.fleet.scene import Fleet

pytestmark = pytest.mark.usefixtures("fleet_commands")


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_incidents_are_listed_and_filtered(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "get", "incidents")
    header, row = rows(text)
    assert header == ["SEVERITY", "NODE", "DEVICE", "CHECK", "STATE", "AGE", "ACK", "MESSAGE"]
    assert row[:6] == ["fatal", "node-1", "GPU", "0000:3b:00", "gpu-lost", "marked"]
    assert printed(capsys, "get", "incidents", "-n", "node-1", "--state", "Marked", "--all") == text
    assert printed(capsys, "get", "inc", "--health", "fatal", "--check", "gpu-*") == text
    none = "no incidents: none matches\n"
    assert printed(capsys, "get", "incidents", "--state", "withheld", "--state", "open") == none
    assert printed(capsys, "get", "incidents", "--node", "node-2") == "no incidents\n"
    assert printed(capsys, "get", "incidents", "--health", "warning") == "no incidents: none of 1 matches\n"
    # The topologies are above it.
    assert printed(capsys, "get", "domains").endswith("\nno domains with faults\n")
    for selector in ([], ["--field-selector", "state=Marked,node=node-1,mark!=suspect"]):
        assert printed(capsys, "get", "incidents", *selector, "-o", "name") == f"incident/{name()}\n"
    assert name() in printed(capsys, "get", "incidents", "-o", "wide")
    assert json.loads(printed(capsys, "get", "incidents", "-o", "json"))["omitted"] == 0
    assert f"name: {name()}" in printed(capsys, "get", "incidents", "-o", "yaml")


def test_nodes_are_listed_and_filtered(capsys: pytest.CaptureFixture[str]) -> None:
    header, *nodes = rows(printed(capsys, "get", "nodes"))
    assert header == ["NODE", "HEALTH", "MARKS", "FINDINGS", "WORST", "REPORT", "NOTES"]
    assert len(nodes) == 12
    [row] = rows(printed(capsys, "get", "nodes", "--unhealthy"))[1:]
    assert row[:5] == ["node-1", "fatal", "quarantine", "1", "gpu-lost"]
    assert printed(capsys, "get", "nodes", "--marked", "-o", "name") == "node/node-1\n"
    assert printed(capsys, "get", "nodes", "--work", "marked", "-o", "name") == "node/node-1\n"
    assert rows(printed(capsys, "get", "nodes", "node-1*", "-o", "wide"))[0][-2:] == ["PLATFORM", "NOTES"]
    names = [row[0] for row in rows(printed(capsys, "get", "nodes", "--sort-by", "health", "--reverse"))[1:]]
    assert names[0] == "node-1"
    assert [
        node["node"] for node in json.loads(printed(capsys, "get", "nodes", "node-1", "-o", "json"))["nodes"]
    ] == ["node-1"]


def test_gpus_and_ports_are_listed_and_found_by_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "get", "gpus")
    header, row = rows(text)
    assert header == ["NODE", "GPU", "ADDRESS", "MODEL", "SERIAL", "HEALTH", "WORST", "NOTES"]
    assert row[:7] == ["node-1", "-", "0000:3b:00", "-", "-", "fatal", "gpu-lost"]
    assert "not in the inventory" in text
    for words in (
        ["GPU-1"],
        ["node-1/*"],
        ["0000:3b:00"],
        ["-n", "node-1"],
        ["--unhealthy"],
        ["--health", "fatal"],
    ):
        assert printed(capsys, "get", "gpus", *words, "-o", "name") == "gpu/node-1/0000:3b:00\n"
    assert printed(capsys, "get", "gpu", "GPU-2*", "-o", "name") == ""
    assert printed(capsys, "get", "ports") == "no ports\n"
    [gpu] = json.loads(printed(capsys, "get", "gpus", "-o", "json"))["components"]
    assert (gpu["node"], gpu["id"], gpu["in_inventory"]) == ("node-1", "GPU-1", False)
    assert "node 'node-x' not found" in refused(capsys, "get", "gpus", "-n", "node-x")
    assert "--node is empty: name a node, or leave out --node" in refused(capsys, "get", "gpus", "-n", "")


def test_a_list_of_gpus_names_the_nodes_that_may_have_more(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fleet = Fleet(1)
    fleet.report(0, inventory=Inventory(omitted=9))
    fleet.see(Node("node-1", "uid-1", gpus=8))
    with running_api(tmp_path, fleet, ACTIONS) as address:
        assert printed(capsys, "get", "gpus", "--socket", address) == (
            "no GPUs\n"
            "some may be missing: full reports left out 9 components of node-0\n"
            "missing: those of 1 node without a report\n"
        )


@pytest.mark.parametrize(("kind", "values"), [("gpus", "temperatures"), ("ports", "the state, rate")])
def test_a_list_of_components_names_the_command_for_their_values(
    kind: str, values: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "--values" not in printed(capsys, "get", kind)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    shown = printed(capsys, "get", kind)
    assert f"\non the node, nodeguard status --agent --values shows {values}" in shown
    assert "--values" not in printed(capsys, "get", kind, "-o", "name")


def test_nodes_and_gpus_are_selected_by_labels(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    nodes = printed(capsys, "get", "nodes", "-l", "pool=a, rack in (r1,r2)", "-o", "name")
    assert nodes.split() == ["node/node-11", "node/node-9"]
    assert printed(capsys, "get", "gpus", "--selector=rack=r0", "-o", "name") == "gpu/node-1/0000:3b:00\n"
    assert printed(capsys, "get", "gpus", "-l", "!rack") == "no GPUs: none matches\n"
    assert refused(capsys, "get", "nodes", "-l", "pool=a b") == (
        "nodeguard get: label selector 'pool=a b': character 8: expected ',', found 'b'\n"
    )
    fleet = Fleet(0)
    fleet.add(0, labels={})
    with running_api(tmp_path, fleet, ACTIONS) as address:
        error = refused(capsys, "get", "ports", "-l", "pool=a", "--socket", address)
        assert error.endswith(
            "no node has labels here, as without Kubernetes: select nodes by name, such as 'gpu-*'\n"
        )
        assert "node-0" in printed(capsys, "get", "nodes", "--socket", address)


@pytest.mark.parametrize(
    ("kind", "selector", "names"),
    [
        ("nodes", "health=fatal", ["node/node-1"]),
        ("nodes", "health==fatal, marks=quarantine", ["node/node-1"]),
        ("nodes", "health!=ok,marks!=quarantine", []),
        ("nodes", "stale=false,findings=1,hold=", ["node/node-1"]),
        ("checks", "id=gpu-lost", ["check/gpu-lost"]),
        ("checks", "targets=node,id=gpu-lost", []),
    ],
)
def test_items_are_selected_by_their_fields(
    kind: str, selector: str, names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(capsys, "get", kind, "--field-selector", selector, "-o", "name").split() == names


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (
            "helth=ok",
            "field 'helth' is unknown: did you mean health? Or expected one of node, health, stale, ",
        ),
        ("health>ok", "'health>ok' is no condition: write it like health=fatal or health!=ok"),
        ("health=ok,", "'' is no condition: "),
    ],
)
def test_an_invalid_field_selector_is_refused(
    selector: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="3"):
        main(["get", "nodes", "--field-selector", selector])
    assert expected in capsys.readouterr().err


def test_budgets_and_checks_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    header, fleet, *_ = rows(printed(capsys, "get", "budgets"))
    assert (header[:4], fleet[:4]) == (["BUDGET", "USED", "LIMIT", "USE"], ["fleet", "1", "12", "8%"])
    text = printed(capsys, "get", "checks", "gpu-lost*", "--health", "fatal")
    assert [row[0] for row in rows(text)[1:]] == ["gpu-lost", "gpu-lost-any"]
    assert json.loads(printed(capsys, "get", "checks", "gpu-lost", "-o", "json"))[0]["id"] == "gpu-lost"


def test_actions_are_listed_and_filtered(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    fleet, actions = Fleet(3), RecordingActions()
    at = int(fleet.now.wall)
    pods = (PodKey("team-a", "train-0", "uid-7"), PodKey("team-a", "train-1", "uid-8"))
    left = "1 of 2 pods gone after 30min; team-a/train-1 is still ending: decide whether to delete the rest"
    failed = NodeAction(
        ActionKind.DRAIN, "node-0", "uid-0", "quarantine of the node since 22:01", at - 3000, pods=pods,
        state=ActionState.FAILED, carried_out=1, message=left,
    )  # fmt: skip
    running = replace(
        failed, node="node-1", uid="uid-1", state=ActionState.RUNNING, carried_out=0, message=""
    )
    detach = NodeAction(ActionKind.DETACH_GPUS, "node-1", "uid-1", "bob at 22:12", at - 60, seconds=60)
    actions.reserved = [failed, detach, running]
    report = DrainReport("node-1", "uid-1", "node", ("gpu-lost",), at, DrainState.RUNNING, "it ends", pods)
    waits = replace(report, node="node-2", uid="uid-2", state=DrainState.WAITS, reason="a budget", pods=())
    actions.drains = (report, waits)
    waiting = "no drain of node-2 yet: the work of the node stays for now: a budget\n"
    with running_api(tmp_path, fleet, actions) as address:

        def listed(*words: str) -> str:
            return printed(capsys, "get", "actions", "--socket", address, *words)

        header, *lines, note = listed().splitlines()
        assert header.split() == ["KIND", "NODE", "STATE", "AGE", "DONE", "REASON"]
        assert [line.split() for line in lines] == [
            ["detach-gpus", "node-1", "reserved", "1", "min", "-", "bob", "at", "22:12"],
            [
                "drain",
                "node-1",
                "running",
                "50",
                "min",
                "0",
                "of",
                "2",
                "pods",
                "it",
                "ends;",
                "quarantine",
                "of",
                "the",
                "node",
                "since",
                "22:01",
            ],
            f"drain node-0 failed 50 min 1 of 2 pods {left}; quarantine of the node since 22:01".split(),
        ]
        assert f"{note}\n" == waiting
        assert listed("--kind", "drain", "--node", "node-2") == f"no actions\n{waiting}"
        assert listed("--kind", "drain", "--state", "failed", "-o", "name") == f"action/{failed.key}\n"
        assert listed("--kind", "clear") == "no actions: none of 3 matches\n"
        assert listed("-n", "node-0", "-o", "name") == f"action/{failed.key}\n"
        assert "evict pod team-a/train-0 and 1 more pod" in listed(running.key, "-o", "wide")
        document = json.loads(listed("-o", "json"))
        assert [action["name"] for action in document["actions"]] == [detach.key, running.key, failed.key]
        assert [drain["node"] for drain in document["unrecorded_drains"]] == ["node-2"]
        error = refused(capsys, "get", "actions", "-n", "node-9", "--socket", address)
        assert "node 'node-9' not found" in error


def test_a_wide_message_is_cut_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = printed(capsys, "get", "incidents")
    monkeypatch.setenv("COLUMNS", "90")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    cut = printed(capsys, "get", "incidents")
    assert max(map(len, cut.splitlines())) <= 90
    assert max(map(len, whole.splitlines())) >= max(map(len, cut.splitlines()))


def test_names_that_exist_are_listed_before_the_error_for_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["get", "nodes", "node-1", "node-98", "node-99", "other-*", "-o", "name"]
    assert main(words) == 3
    output = capsys.readouterr()
    assert output.out == "node/node-1\n"
    assert [line.partition(":")[0] for line in output.err.splitlines()] == ["nodeguard get", "nodeguard get"]
    assert printed(capsys, "get", "nodes", "other-*") == "no nodes: none of 12 matches\n"
    assert printed(capsys, "get", "nodes", "node-2", "--unhealthy") == "no nodes: none of 12 matches\n"


def test_a_resolved_incident_is_listed_by_its_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fleet = leaves()
    fails(fleet)
    wait(fleet, 20.0)
    well(fleet)
    wait(fleet, 3600.0)
    with running_api(tmp_path, fleet, ACTIONS) as address:
        assert printed(capsys, "get", "incidents", "--socket", address, "-o", "name") == ""
        listed = printed(capsys, "get", "incidents", "--all", "--socket", address, "-o", "name")
        resolved = listed.strip().removeprefix("incident/")
        assert printed(capsys, "get", "incidents", resolved, "--socket", address, "-o", "name") == listed

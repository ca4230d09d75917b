"""The commands that query an aggregator: status, get and describe; and their errors."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeguard.cli.main import main
from nodeguard.model.node import Node
from nodeguard.wire.report import Inventory
from tests.aggregator.api.service import running_api
from tests.cli.fleet_commands import ACTIONS, name, printed, refused
from tests.fleet.leaves import FIRST, fails, wait, well
from tests.fleet.leaves import fleet as leaves
from tests.fleet.scene import Fleet

pytestmark = pytest.mark.usefixtures("fleet_commands")


def test_the_status_is_text_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "status")
    assert text.startswith("FATAL  12 nodes: 1 fatal.\n  agents      12 of 12 reporting\n")
    assert f"nodeguard describe incident {name()}" in text
    assert json.loads(printed(capsys, "status", "-o", "json"))["nodes"]["fatal"] == 1


def test_a_node_and_an_incident_are_described(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "describe", "node", "node-1")
    assert text.startswith("FATAL  node-1: quarantined: gpu-lost.\n")
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


def test_an_incident_is_described_without_its_kind(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for written in (f"incident/{name()}", name()):
        assert printed(capsys, "describe", written) == printed(capsys, "describe", "incident", name())


@pytest.mark.parametrize("text", ["node-1", "node-1/gpu-lost", "node-1-gpu"])
def test_an_incident_is_found_by_its_node_and_check(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    view = json.loads(printed(capsys, "describe", "incident", text, "-o", "json"))
    assert view["name"] == name()


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_incidents_are_listed_and_filtered(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "get", "incidents")
    header, row = rows(text)
    assert header == ["SEVERITY", "NODE", "DEVICE", "CHECK", "STATE", "AGE", "ACK", "MESSAGE"]
    assert row[:6] == ["fatal", "node-1", "GPU", "0000:3b:00", "gpu-lost", "marked"]
    assert printed(capsys, "get", "incidents", "-n", "node-1", "--state", "Marked", "--all") == text
    assert printed(capsys, "get", "inc", "--health", "fatal", "--check", "gpu-*") == text
    assert printed(capsys, "get", "incidents", "--state", "withheld", "--state", "open") == "no incidents\n"
    assert printed(capsys, "get", "incidents", "--node", "node-2") == "no incidents\n"
    assert printed(capsys, "get", "incidents", "--health", "warning") == "no incidents\n"
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
    assert printed(capsys, "get", "gpus", "-l", "!rack") == "no GPUs\n"
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


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["get", "nodes", "-o", "jsonpath={.nodes[1].node}"], "node-1\n"),
        (["get", "nodes", "node-2*", "-o=jsonpath={range .nodes[*]}{.node}{'\\t'}{.health}{'\\n'}{end}"],
            "node-2\tok\n"),
        (["get", "incidents", "--health", "warning", "-o", "jsonpath={.incidents[*].name}"], ""),
        (["get", "checks", "gpu-lost", "-o", "jsonpath={[0].health}"], "fatal\n"),
        (["status", "--output", "jsonpath={.nodes.fatal}"], "1\n"),
        (["describe", "node", "node-1", "-o", "jsonpath={.findings[?(@.health=='fatal')].check}"], "gpu-lost\n"),
    ],
)  # fmt: skip
def test_a_template_prints_fields(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(capsys, *words) == expected


def test_a_template_that_does_not_fit_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, "get", "nodes", "-o", "jsonpath={.items[*].node}") == (
        "nodeguard get: the output has no field 'items': its fields are version, at, nodes\n"
    )
    with pytest.raises(SystemExit, match="3"):
        main(["get", "nodes", "-o", "jsonpath={.nodes[*.node}"])
    assert "argument -o/--output: jsonpath: template, character 8: expected " in capsys.readouterr().err


@pytest.mark.parametrize("template", ["jsonpath-file=x", "custom-columns=NAME:.node", "go-template"])
def test_a_template_of_another_kind_is_refused_with_the_remedy(
    template: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["get", "nodes", "-o", template])
    remedy = "is not supported: write -o jsonpath='{.nodes[*].node}', or pipe -o json to jq"
    assert f"'{template.partition('=')[0]}' {remedy}; see " in capsys.readouterr().err


def test_budgets_and_checks_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    header, fleet, *_ = rows(printed(capsys, "get", "budgets"))
    assert (header[:4], fleet[:4]) == (["BUDGET", "USED", "LIMIT", "USE"], ["fleet", "1", "12", "8%"])
    text = printed(capsys, "get", "checks", "gpu-lost*", "--health", "fatal")
    assert [row[0] for row in rows(text)[1:]] == ["gpu-lost", "gpu-lost-any"]
    assert json.loads(printed(capsys, "get", "checks", "gpu-lost", "-o", "json"))[0]["id"] == "gpu-lost"


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


def test_watch_refreshes_until_it_is_interrupted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("nodeguard.cli.progress.time.sleep", sleep)
    assert main(["status", "-w", "--interval", "5s"]) == 130
    assert capsys.readouterr().out.count("FATAL  12 nodes: 1 fatal.") == 2
    assert pauses == [5.0, 5.0]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["describe", "node", "node-111"], "node 'node-111' not found: did you mean node-11 or node-1"),
        (["describe", "node", "a/../b?c#d"], "node 'a/../b?c#d' not found: see nodeguard get nodes"),
        (["describe", "node", "\udcff"], "not found: see nodeguard get nodes"),
        (["describe", "incident", "node-1-gpu-0000-3c-00"], "not found: did you mean node-1-gpu-0000-3b-00-"),
        (["describe", "node-111"], "'node-111' is no node, domain or incident: did you mean node-11 or node-1"),
        (["describe"], "the following arguments are required: node | incident | domain"),
        (["describe", "node/"], "'node/' is invalid: did you mean node? Or expected node, incident, domain"),
        (["describe", "node"], "the following arguments are required: NAME"),
        (["describe", "nod", "a"], "'nod' is invalid: did you mean node? Or expected node, incident, domain"),
        (["describe", "node", "a", "b"], "unrecognized arguments: b"),
        (["explain", "node", "node-1"], "write nodeguard describe node NAME"),
        (["get", "incidents", "--node", "node-99"], "node 'node-99' not found: did you mean node-9"),
        (["get", "incidents", "--state", "witheld"], "state 'witheld' is unknown: did you mean withheld? Or "),
        (["get", "nodes", "--sort-by", "helth"], "field 'helth' is unknown: did you mean health? Or "),
        (["get", "nodes", "node-99"], "node 'node-99' not found: did you mean node-9"),
        (["get", "gpus", "GPU-9", "-o", "json"], "gpu 'GPU-9' not found: did you mean GPU-1? Or see nodeguard get gpus"),
        (["get", "ports", "x"], "port 'x' not found: see nodeguard get ports"),
        (["get", "incidents", "x"], "incident 'x' not found: see nodeguard get incidents --all"),
        (["get", "domains", "x/y"], "domain 'x/y' not found: see nodeguard get domains --all"),
        (["get", "checks", "gpu-lots"], "check 'gpu-lots' not found: did you mean gpu-lost"),
        (["get", "budgets", "x"], "budget 'x' not found: see nodeguard get budgets"),
        (["incidents", "clear", "x"], "incident 'x' not found: see nodeguard get incidents --all"),
        (["incidents", "ack", "x"], "'ack' is invalid: "),
        (["pause", "-o", "jsonpath={.nope}"], "the output has no field 'nope': its fields are message"),
        (["incidents", "clear", "node-1", "-o", "jsonpath={.nope}"], "its fields are message, clear_result, "),
        (["pause", "--reason", "x" * 600], "both sides must be of one version"),
        (["pause", "--reason", "\udcff"], "is not UTF-8: correct it"),
    ],
)  # fmt: skip
def test_an_invalid_request_exits_with_3(
    words: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        assert main(words) == 3
    except SystemExit as exit_call:
        assert exit_call.code == 3
    assert error in capsys.readouterr().err
    assert ACTIONS.calls == []


def test_names_that_exist_are_listed_before_the_error_for_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["get", "nodes", "node-1", "node-98", "node-99", "other-*", "-o", "name"]
    assert main(words) == 3
    output = capsys.readouterr()
    assert output.out == "node/node-1\n"
    assert [line.partition(":")[0] for line in output.err.splitlines()] == [
        "nodeguard get",
        "nodeguard get",
    ]
    assert printed(capsys, "get", "nodes", "other-*") == "no nodes\n"
    assert printed(capsys, "get", "nodes", "node-2", "--unhealthy") == "no nodes\n"


def test_without_an_aggregator_the_error_has_the_remedy(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    missing = str(tmp_path / "aggregator.sock")
    for words in (["status"], ["describe", "node", "a b"], ["get", "incidents", "--all"], ["pause"]):
        error = refused(capsys, *words, "--socket", missing)
        assert f"no aggregator answers at {missing} (" in error
        assert "kubectl exec -n nodeguard deploy/nodeguard-aggregator -- nodeguard " in error
    error = refused(capsys, "describe", "node", "a b", "--socket", missing)
    assert error.splitlines() == [
        f"nodeguard describe: no aggregator answers at {missing} (No such file or directory):",
        "  run it on the machine of the aggregator, or name its socket with --socket",
        "  in Kubernetes: kubectl exec -n nodeguard deploy/nodeguard-aggregator -- nodeguard describe node 'a b'",
        "  from a laptop: kubectl nodeguard describe node 'a b'",
        "  the agent of this node only: nodeguard status --agent",
    ]


def test_an_invalid_response_is_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    missing = str(tmp_path / "aggregator.sock")
    for answer, error in (
        (b"", "no aggregator answers at"),
        (b"hello\n", f"no aggregator answers at {missing} (another program answers there):\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "the response is invalid"),
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 1\r\n\r\nx", "the response is invalid"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "no aggregator answers at"),
    ):
        with socket.socket(socket.AF_UNIX) as own:
            Path(missing).unlink(missing_ok=True)
            own.bind(missing)
            own.listen()

            def reply(own: socket.socket = own, answer: bytes = answer) -> None:
                with own.accept()[0] as peer:
                    peer.recv(4096)
                    peer.sendall(answer)

            thread = threading.Thread(target=reply)
            thread.start()
            assert error in refused(capsys, "status", "--socket", missing)
            thread.join()


def test_the_commands_import_no_server(fleet_socket: str) -> None:
    code = (
        "import sys; from nodeguard.cli.main import main; code = main(sys.argv[1:]);"
        "loaded = {'aiohttp', 'kubernetes', 'jwt', 'uvloop', 'asyncio'} & set(sys.modules);"
        "sys.exit(str(loaded) if loaded else code)"
    )
    for words in (["status"], ["describe", "node", "node-1"], ["get", "incidents"], ["pause"]):
        ran = subprocess.run(
            [sys.executable, "-c", code, *words, "--socket", fleet_socket],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (ran.returncode, ran.stderr) == (0, "")


@pytest.fixture(scope="module")
def leaf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The socket of an aggregator with a degraded leaf."""
    fleet = leaves()
    fails(fleet)
    wait(fleet, 20.0)
    with running_api(tmp_path_factory.mktemp("leaf"), fleet, ACTIONS) as address:
        yield address


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


def test_a_domain_is_described_and_listed(
    leaf: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODEGUARD_AGGREGATOR_SOCKET", leaf)
    whole = printed(capsys, "describe", "domain", FIRST)
    assert whole.startswith(f"SUSPECT  {FIRST}: 8 of 8 nodes lost a link at once; its 4 siblings did not.\n")
    assert printed(capsys, "describe", "domain", "r0") == whole
    for written in (f"domain/{FIRST}", FIRST, "r0"):
        assert printed(capsys, "describe", written) == whole
    view = json.loads(printed(capsys, "describe", "domain", "r0", "-o", "json"))
    assert (view["domain"], view["state"], len(view["votes"])) == (FIRST, "Marked", 8)
    text = printed(capsys, "get", "domains")
    assert text.startswith("SUSPECT  1 domain degraded, 1 more shows a fault.\n")
    header, first, *_ = rows(text.split("\n\n")[1])
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

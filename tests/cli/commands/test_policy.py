"""nodeguard policy."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nodeguard.aggregator.policy.schema import json_schema
from nodeguard.cli.main import main
from tests.paths import ROOT

WHOLE = """\
modeRules: [{check: gpu-lost, mode: enforce}]
pools: [{name: training, labels: {pool: training}, share: 8%}, {name: rest}]
budget: {checkOverrides: [{check: nvlink-*, active: 30}]}
holds: [{node: "login-*", labels: {team: alpha}, reason: no GPUs}, {check: port-flap}]
silences: [{check: gpu-lost, node: gpu-7}, {check: gpu-*, until: 2099-01-31T18:00:00Z}]
topologies: {rack: [row, rack]}
nodeLocations: [{node: gpu-1, power: a/r1}, {node: gpu-2, power: a/r1, zone: z}, {node: "gpu-r?-*", power: a/r2}]
pause: true
"""


def printed(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, *options: str) -> tuple[int, str]:
    (tmp_path / "policy.yaml").write_text(text)
    code = main(["policy", "check", str(tmp_path / "policy.yaml"), *options])
    return code, capsys.readouterr().out.replace(f"{tmp_path}/", "")


def test_the_default_is_summed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = printed(tmp_path, capsys, "{}")
    assert code == 0
    lines = text.splitlines()
    assert lines[0] == "policy.yaml - ok"
    for line, mark in zip(lines[1:3], ("quarantine", "suspect"), strict=True):
        assert line.startswith(f"{mark:<14}none of the ")
        assert line.endswith(" checks is enforced. The mark is not set")
    assert [" ".join(line.split()) for line in lines[3:]] == [
        "writes nothing on nodes: every check is a dry run",
        "budget 5% of all nodes may be marked. 20% of these marks are kept for",
        "quarantine. Suspect: at most 5%. Also at most 10% of a pool, 25%",
        "of a domain (50% with confirmed fatal faults), and at least 1 node",
        "each. A limit of 1 node allows 1 quarantined and 1 suspect node",
        "each check 5 new in 10 min, 15 active",
        "domains dry run in every topology: nothing is written for a domain",
        "soak period 10 min after the check passes, longer each time up to 8 h",
        "frozen while more than 10% of the agents have not reported for 45 s",
    ]


def test_one_mark_is_kept_for_quarantine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, text = printed(tmp_path, capsys, "budget: {fleet: 20%}", "--nodes", "10")
    assert "1 of these marks is kept for quarantine" in " ".join(text.split())


def test_every_part_is_summed_up_also_as_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = printed(tmp_path, capsys, WHOLE, "--nodes", "7500")
    assert code == 0
    words = " ".join(text.split())
    for part in (
        "policy.yaml - ok paused no new mark is set quarantine 1 of ",
        " fatal checks is enforced: gpu-lost. The mark is set 5 s after the check fails, or after 1 min 30 s if shared hardware can be the cause suspect none of the ",
        "writes taint, condition on the node; a fault of one GPU on that GPU only, where the cluster supports it",
        "budget 375 of 7500 nodes may be marked (5%). 75 of these marks are kept for quarantine (20%). Suspect: at most 300 ",
        "pools training 8%, rest 10%",
        "each check 5 new in 10 min, 15 active; nvlink-*: 5 new in 10 min, 30 active",
        "domains dry run in every topology: nothing is written for a domain",
        "holds nodes login-* with team=alpha (no GPUs); checks port-flap",
        "silences gpu-lost on gpu-7 permanently; gpu-* on * until 2099-01-31T18:00:00Z",
        "topologies rack by row, rack",
        "locations 2 nodes by name and 1 pattern: power 2 domains, zone 1 domain",
        "frozen while more than 10% (750) of the agents have not reported for 45 s",
    ):
        assert part in words


def test_a_drain_is_summed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """
modeRules: [{checks: [gpu-lost, gpu-lost-any], mode: enforce}]
holds: [{check: gpu-lost-any}]
drain: {mode: %s, rules: [{checks: [gpu-lost*, driver-unresponsive], when: immediately}]}
"""
    _, page = printed(tmp_path, capsys, text % "enforce", "--nodes", "512")
    limits = (
        "At a time at most 1% (5) of all nodes, and 1 of a domain; 5 new in 1 h. Of their work at a time at most "
        "500 pods, 8 gangs and 8 namespaces; in 1 h 1000 pods, 16 gangs and 16 namespaces. "
        "A drain fails after 30 min"
    )
    assert f"drain pods are evicted for 1 check: gpu-lost. {limits}" in " ".join(page.split())
    _, page = printed(tmp_path, capsys, text % "observe")
    assert "drain dry run: pods would be evicted for 1 check: gpu-lost." in " ".join(page.split())
    _, page = printed(tmp_path, capsys, text.replace("immediately", "deadline, after: 90m") % "enforce")
    notice = "for 1 check: gpu-lost. Pods of rules with a deadline have notice for 1 h 30 min. At a time"
    assert notice in " ".join(page.split())
    _, page = printed(tmp_path, capsys, "drain: {mode: enforce}\n")
    assert "drain no pod is evicted for any check" in " ".join(page.split())
    _, output = printed(tmp_path, capsys, text % "enforce", "-o", "json")
    assert json.loads(output)["drained"] == ["gpu-lost"]


def test_one_stale_agent_of_a_small_fleet_is_too_few_to_freeze_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text = printed(tmp_path, capsys, "{}", "--nodes", "3")
    assert "frozen while more than 10% (1) of the agents have not reported" in " ".join(text.split())


def test_many_checks_are_counted_and_a_check_on_hold_sets_no_mark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = 'modeRules: [{checks: ["gpu-*", "nvlink*"], mode: enforce}]\nholds: [{check: gpu-lost}]\n'
    _, page = printed(tmp_path, capsys, text)
    assert " more. The mark is set 5 s after" in " ".join(page.split())
    _, output = printed(tmp_path, capsys, text, "-o", "json")
    enforced = json.loads(output)["enforced"]
    assert "gpu-lost" not in enforced["quarantine"]
    assert "gpu-lost-any" in enforced["quarantine"]


def test_a_warning_is_shown_and_is_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = printed(tmp_path, capsys, "budget: {fleet: 30%}\n")
    assert code == 1
    assert text.startswith("policy.yaml - ok, with 1 warning\n")
    words = " ".join(text.split())
    assert "warning line 1: fleet: a faulty check may take out 30% of the fleet: write at most 20%" in words


def test_a_release_refuses_checks_that_do_not_exist_and_accepts_other_warnings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("defaultMode: enforce\n")
    assert main(["policy", "check", str(path), "--fail-on", "unmatched"]) == 0
    assert "with 1 warning" in capsys.readouterr().out
    path.write_text(
        "modeRules:\n- {check: gpu-lsot, mode: enforce}\n- {checks: [gpu-*, x-*], mode: enforce}\n"
    )
    assert main(["policy", "check", str(path), "--fail-on", "unmatched"]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert [line.partition(": see")[0] for line in captured.err.splitlines()] == [
        f"nodeguard policy: {path}:2: check: 'gpu-lsot' matches no check; did you mean gpu-lost?",
        f"nodeguard policy: {path}:3: checks[1]: 'x-*' matches no check",
    ]


def test_json_has_all_of_the_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = printed(tmp_path, capsys, "budget: {fleet: 30%}\n", "-o", "json", "--nodes", "40")
    output = json.loads(text)
    assert code == 1
    assert (output["version"], output["file"]) == (1, "policy.yaml")
    assert output["policy"]["budget"]["fleet"] == 0.3
    file_keys = json_schema()["$defs"]["PolicySpec"]["properties"].keys() - {"version"}  # of the file
    assert output["policy"].keys() == file_keys
    assert output["policy"]["budget"]["perCheck"] == {"new": 5, "within": 600.0, "active": 15}
    assert output["enforced"] == {"quarantine": [], "suspect": []}
    assert output["nodes"] == {
        "fleet": 12,
        "reserve": 3,
        "suspect": 2,
        "apart": False,
        "degraded": 4,
        "first": 10,
    }
    assert output["warnings"] == [
        {
            "line": 1,
            "field": "fleet",
            "problem": "a faulty check may take out 30% of the fleet",
            "remedy": "write at most 20%",
        }
    ]


def test_a_small_fleet_may_have_one_quarantined_and_one_suspect_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text = printed(tmp_path, capsys, "{}", "-o", "json", "--nodes", "3")
    nodes = json.loads(text)["nodes"]
    assert (nodes["fleet"], nodes["suspect"], nodes["apart"]) == (1, 1, True)
    _, text = printed(tmp_path, capsys, "{}", "--nodes", "3")
    assert "budget 1 of 3 nodes quarantined, and 1 suspect (5%, at least 1). " in " ".join(text.split())


def test_checks_of_the_site_are_valid_in_a_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "checks.d"
    folder.mkdir()
    (folder / "site.yaml").write_text(
        "family: site\nchecks:\n- id: site-hot\n  title: Hot\n  target: gpu\n  health: fatal\n  action: monitor\n"
        '  when: {signal: gpu.temperature, above: 99}\n  message: "hot"\n  remedy: Cool it.\n'
        "  description: It is hot.\n  source: Experience.\n"
    )
    text = "modeRules: [{check: site-*, mode: enforce}]\n"
    assert printed(tmp_path, capsys, text)[0] == 1
    code, page = printed(tmp_path, capsys, text, "--checks", str(folder))
    assert code == 0
    assert "fatal checks is enforced: site-hot. The mark is set 5 s after" in " ".join(page.split())


def test_an_invalid_file_is_one_line_and_exit_code_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "policy.yaml").write_text("defaultMode: enforced\n")
    assert main(["policy", "check", str(tmp_path / "policy.yaml")]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        f"nodeguard policy: {tmp_path}/policy.yaml:1: defaultMode: 'enforced' is not valid: use one of observe, enforce"
        "; did you mean enforce?\n"
    )


def test_all_errors_of_a_file_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("defaultMode: enforced\nbudget: {fleet: x, pool: 200%}\nsoak: {initial: soon}\nmode: 1\n")
    assert main(["policy", "check", str(path)]) == 3
    lines = capsys.readouterr().err.splitlines()
    expected = [["1", "defaultMode"], ["2", "fleet"], ["2", "pool"], ["3", "initial"], ["4", "mode"]]
    assert [line.removeprefix(f"nodeguard policy: {path}:").split(": ")[:2] for line in lines] == expected


@pytest.mark.parametrize("nodes", ["0", "-1", "many", "1000001", "9" * 40])
def test_an_invalid_number_of_nodes_is_refused(nodes: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["policy", "check", "policy.yaml", f"--nodes={nodes}"])
    assert caught.value.code == 3
    assert re.search(
        f"'{nodes}' is (out of range: expected 1 to 1000000|not a whole number)", capsys.readouterr().err
    )


def test_without_a_verb_the_error_lists_the_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["policy"])
    assert caught.value.code == 3
    assert "check | schema | example" in capsys.readouterr().err


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(json_schema()))


def test_the_example_is_ok(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "example"]) == 0
    assert printed(tmp_path, capsys, capsys.readouterr().out)[0] == 0


def test_a_policy_is_checked_without_servers_and_clusters(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("{}")
    code = (
        "import sys; from nodeguard.cli.main import main; code = main(['policy', 'check', sys.argv[1]]);"
        "loaded = {'aiohttp', 'kubernetes', 'jwt', 'uvloop'} & set(sys.modules); sys.exit(str(loaded) if loaded else code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "policy.yaml")], check=False, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_policy_is_read_from_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"defaultMode: enforced\n")))
    assert main(["policy", "check", "-"]) == 3
    assert "standard input:1: defaultMode: 'enforced'" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"defaultMode: observe\n")))
    assert main(["policy", "check", "-"]) == 0
    assert capsys.readouterr().out.startswith("standard input - ok\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    assert main(["policy", "check", "-"]) == 3
    assert (
        "standard input is empty: send the policy to it, in a pod by `kubectl exec -i`"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("file", "key", "command"),
    [
        ("chart/values.yaml", "policy", "yq -r .policy FILE"),
        ("policy.yaml", "kind", """yq -r '.data["policy.yaml"]' FILE"""),
    ],
)
def test_a_file_that_contains_a_policy_is_one_error_with_the_command_that_extracts_it(
    file: str, key: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the chart: its values, and the ConfigMap that it renders."""
    path = ROOT / "daemonset" / file
    assert main(["policy", "check", str(path)]) == 3
    line = next(at for at, text in enumerate(path.read_text().splitlines(), 1) if text.startswith(f"{key}:"))
    (error,) = capsys.readouterr().err.splitlines()
    assert f"{file}:{line}: {key}: is of " in error
    assert error.endswith(f"run `{command} | nodeguard policy check -`")


@pytest.mark.parametrize("text", ["aggregator: {replicas: 2}\n", "apiVersion: v1\nkind: Secret\n"])
def test_a_file_of_the_chart_without_a_policy_names_no_command(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "values.yaml").write_text(text)
    assert main(["policy", "check", str(tmp_path / "values.yaml")]) == 3
    error = capsys.readouterr().err.rstrip()
    assert error.endswith("not of a policy: name the file with the policy: this one has none")


@pytest.mark.parametrize(
    ("grace", "when"),
    [
        ("{quarantine: 0s}", "at once, or after 1 min 30 s if shared hardware can be the cause suspect"),
        ("{quarantine: 2m}", "2 min after the check fails suspect"),
        ("{quarantine: 0s, sharedHardware: 0s}", "at once suspect"),
    ],
)
def test_the_grace_periods_are_summed_up(
    grace: str, when: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"modeRules: [{{check: gpu-lost, mode: enforce}}]\ngracePeriod: {grace}\n"
    _, output = printed(tmp_path, capsys, text)
    assert f"The mark is set {when}" in " ".join(output.split())

"""nodeguard check as its users meet it: exit codes, the table, the formats, the errors."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fixtures.bundles import bundle_names, bundle_path
from nodeguard.cli.main import main
from nodeguard.cli.render import terminal as page
from nodeguard.cli.render.verdict_json import CheckOutput
from nodeguard.model.finding import DataStatus
from tests.paths import ROOT

HEALTHY = str(bundle_path("healthy-dgx-h100"))
LOST = str(bundle_path("gpu-off-bus"))
COMMAND = [sys.executable, "-m", "nodeguard.cli.main", "check"]


def test_a_healthy_machine_is_ok_in_the_first_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--from", HEALTHY]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "OK  healthy-dgx-h100 (dgx-h100): nothing wrong found."
    assert "fine      gpu-memory: 17 checks on 8 GPUs" in rest


def test_a_fault_says_slot_part_what_when_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--from", LOST]) == 2
    said = capsys.readouterr().out
    assert said.splitlines()[0] == "FATAL  gpu-off-bus: GPU lost: GPU 0000:c3:00. Reboot the node."
    for field in ("what", "since", "seen", "do", "more"):
        assert re.search(rf"^  {field} ", said, re.MULTILINE), field
    assert "fine" in said


@pytest.mark.slow
@pytest.mark.parametrize("name", bundle_names())
def test_a_table_fits_eighty_columns(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    main(["check", "--from", str(bundle_path(name))])
    _, *rest = capsys.readouterr().out.splitlines()
    for line in rest:
        assert len(line) <= 80 or " " not in line.strip(), line


def test_json_is_of_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--from", LOST, "--format", "json"]) == 2
    output = msgspec.json.decode(capsys.readouterr().out, type=CheckOutput, strict=True)
    assert (output.version, output.verdict.health.value, output.verdict.node) == (1, "fatal", "gpu-off-bus")
    lost = output.findings[0]
    assert (lost.check, lost.target, lost.since[:4]) == ("gpu-lost", "gpu/0000:c3:00", "2026")
    assert lost.evidence


def test_the_json_of_what_could_not_be_judged_is_not_healthy(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "check",
        "--from",
        str(bundle_path("healthy-cpu-only")),
        "--only",
        "gpu-memory",
        "--format",
        "json",
    ]
    assert main(arguments) == 3
    verdict = msgspec.json.decode(capsys.readouterr().out, type=CheckOutput, strict=True).verdict
    assert (verdict.health.value, verdict.knowledge.value, verdict.judged) == ("unknown", "unknown", 0)
    assert main(["check", "--schema"]) == 0
    schema = msgspec.json.decode(capsys.readouterr().out)
    assert set(schema["$defs"]["HealthOutput"]["enum"]) == {"ok", "warning", "suspect", "fatal", "unknown"}


def test_the_schema_names_what_the_json_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--schema"]) == 0
    schema = msgspec.json.decode(capsys.readouterr().out)
    fields = schema["$defs"]["FindingOutput"]["properties"]
    assert {
        "check",
        "target",
        "part",
        "health",
        "knowledge",
        "action",
        "since",
        "message",
        "evidence",
    } <= set(fields)
    assert {"version", "verdict", "findings", "unread"} <= set(schema["$defs"]["Output"]["properties"])


def test_metrics_are_what_prometheus_reads(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--from", LOST, "--format", "prometheus"]) == 2
    families = {family.name: family for family in text_string_to_metric_families(capsys.readouterr().out)}
    states = {sample.labels["health"]: sample.value for sample in families["nodeguard_node_health"].samples}
    assert states == {"ok": 0, "warning": 0, "suspect": 0, "fatal": 1}
    known = {
        sample.labels["knowledge"]: sample.value for sample in families["nodeguard_node_knowledge"].samples
    }
    assert known == {"fresh": 1, "not-applicable": 0, "stale": 0, "unknown": 0}
    assert {sample.labels["check"] for sample in families["nodeguard_finding"].samples} >= {"gpu-lost"}


def test_quiet_says_nothing_where_nothing_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--from", HEALTHY, "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["check", "--from", LOST, "--quiet"]) == 2
    said = capsys.readouterr().out
    assert "GPU lost" in said
    assert "fine" not in said


@pytest.mark.parametrize("only", [["--only", "clock,kernel"], ["--only", "clock", "--only", "kernel"]])
def test_only_judges_the_families_that_are_named(only: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--from", LOST, *only]) == 0
    families = re.findall(r"^fine +(\S+):", capsys.readouterr().out, re.MULTILINE)
    assert families == ["clock", "kernel"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "clocks"], "--only: 'clocks' is no family: it is one of agent, clock, "),
        (["--only", ","], "--only names no family: write some of agent, clock, "),
        (["--only", ""], "--only names no family: write some of agent, clock, "),
        (["--from", "nowhere"], "nowhere"),
        (["--from", ""], "argument --from: an empty name is no folder: write where it is"),
        (["--checks", ""], "argument --checks: an empty name is no folder: write where it is"),
        (["--from", HEALTHY, "--for", "30s"], "--for is for a live machine"),
        (["--from", HEALTHY, "--platform", "h200"], "platform 'h200' is not known: it is one of aws-p4d, "),
        (["--for", "soon"], "'soon' is no length of time: write it like 30s, 10m or 2h"),
        (["--checks", "/nowhere"], "/nowhere: cannot be read: No such file or directory: name a folder"),
        (["--frob"], "unrecognized arguments: --frob"),
    ],
)
def test_a_wrong_use_ends_with_3_and_says_how_to_mend_it(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["check", *arguments])
    except SystemExit as left:
        code = int(left.code or 0)
    assert code == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert "Traceback" not in err


def copy(name: str, target: Path) -> Path:
    """A bundle to change, its links as they are."""
    subprocess.run(["cp", "-a", str(bundle_path(name)), str(target)], check=True)
    return target / name


def test_what_could_not_be_read_is_named_first_and_counts_only_when_strict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = copy("healthy-cpu-only", tmp_path)
    (bundle / "errors.yaml").write_text("proc/meminfo: EACCES\n")
    assert main(["check", "--from", str(bundle)]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[0] == "OK  healthy-cpu-only: nothing wrong found. Not read: memory."
    assert (
        "not read  memory: memory.available_ratio, memory.total: permission denied: run as root"
        in " ".join(said.split()).replace("not read memory", "not read  memory")
    )
    assert main(["check", "--from", str(bundle), "--strict"]) == 3


def test_nothing_to_judge_ends_with_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bundle.yaml").write_text(
        'format: 1\nhostname: "bare"\nboot_id: "b"\nrecorded_at: 2026-11-01T12:00:00Z\nuptime_s: 1\n'
    )
    assert main(["check", "--from", str(tmp_path), "--format", "json"]) == 3
    told = msgspec.json.decode(capsys.readouterr().out, type=CheckOutput).verdict
    assert (told.judged, told.knowledge) == (0, DataStatus.UNKNOWN)
    assert main(["check", "--from", str(tmp_path), "--format", "prometheus"]) == 3
    metrics = capsys.readouterr().out
    assert 'nodeguard_node_health{health="ok"} 0.0' in metrics
    assert 'nodeguard_node_knowledge{knowledge="unknown"} 1.0' in metrics
    assert main(["check", "--from", str(tmp_path)]) == 3
    assert capsys.readouterr().out.strip() == "UNKNOWN  bare: nothing could be judged."


def test_colour_says_the_same_as_plain(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["check", "--from", LOST])
    plain = capsys.readouterr().out
    monkeypatch.setattr(page, "_in_colour", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    main(["check", "--from", LOST])
    coloured = capsys.readouterr().out
    assert "\x1b[" in coloured
    stripped = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in stripped.splitlines()] == plain.splitlines()


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_no_colour_where_none_is_wanted(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert page._in_colour()
    monkeypatch.setenv(name, value)
    assert not page._in_colour()


def test_a_reader_that_leaves_meets_no_traceback() -> None:
    with subprocess.Popen(
        [*COMMAND, "--from", LOST, "--format", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == b""


@pytest.mark.skipif(os.getuid() != 0, reason="becoming another user takes root")
def test_without_rights_it_judges_what_it_can() -> None:
    become = "import os, sys; os.setgroups([]); os.setgid(65534); os.setuid(65534); sys.argv = ['nodeguard', 'check'];"
    code = f"{become} from nodeguard.cli.main import main; sys.exit(main())"
    probe = f"{become} os.execv(sys.executable, [sys.executable, '-c', 'import msgspec'])"
    if subprocess.run([sys.executable, "-c", probe], capture_output=True).returncode != 0:  # noqa: PLW1510
        pytest.skip("this Python is out of other users' reach")
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)  # noqa: PLW1510
    assert ran.returncode in {0, 1, 2}, ran.stderr
    assert ran.stderr == ""
    assert "fine" in ran.stdout


def test_the_site_file_of_the_readme_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    readme = (ROOT / "README.md").read_text()
    (tmp_path / "site.yaml").write_text(readme.split("```yaml\n")[1].split("```")[0])
    assert main(["checks", "--checks", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "gpu-warm-here" in said
    assert f"disabledby{tmp_path}/site.yaml" in "".join(said.split())


def test_a_site_check_fires_and_a_disabled_one_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "site.yaml").write_text(
        "family: site\ndisable: [gpu-lost]\nchecks:\n- {id: site-hot, title: Hot, target: gpu, health: warning, action: watch, "
        "when: {signal: gpu.temperature, at_least: 60}, message: hot, remedy: Cool it., explain: Hot., basis: Ours.}\n"
    )
    main(["check", "--from", LOST, "--checks", str(tmp_path), "--format", "json"])
    found = msgspec.json.decode(capsys.readouterr().out, type=CheckOutput)
    assert {"site-hot"} <= {one.check for one in found.findings}
    assert "gpu-lost" not in {one.check for one in found.findings}


@pytest.mark.parametrize(
    ("bundle", "check", "seen"),
    [
        ("gpu-off-bus", "gpu-lost", "kmsg: NVRM: Xid (PCI:0000:c3:00): 79"),
        ("nvswitch-fatal", "nvswitch-fatal", "kmsg: nvidia-nvswitch"),
        ("fabric-manager-down", "fabric-manager-down", "derived: fabric_manager.running = no"),
    ],
)
def test_what_fired_a_check_is_shown_first(
    bundle: str, check: str, seen: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["check", "--from", str(bundle_path(bundle))])
    shown = [block for block in capsys.readouterr().out.split("\n\n") if f"explain {check}\n" in f"{block}\n"]
    first = next(line for line in shown[0].splitlines() if line.startswith("  seen "))
    assert first.removeprefix("  seen    ").startswith(seen)


@pytest.mark.parametrize("output", ["json", "prometheus"])
def test_quiet_takes_nothing_from_what_machines_read(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--from", HEALTHY, "--format", output]) == 0
    whole = capsys.readouterr().out
    assert main(["check", "--from", HEALTHY, "--format", output, "--quiet"]) == 0
    assert capsys.readouterr().out == whole != ""


def test_an_instance_type_of_no_platform_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--from", HEALTHY, "--instance-type", "nonsense"]) == 0
    assert "--instance-type: 'nonsense' is of no platform that is known" in capsys.readouterr().err
    assert main(["check", "--from", HEALTHY, "--instance-type", "p5.48xlarge", "--platform", "aws-p5"]) in {
        0,
        1,
        2,
    }
    assert capsys.readouterr().err == ""


def test_families_that_do_not_apply_are_said_not_to(capsys: pytest.CaptureFixture[str]) -> None:
    bare = str(bundle_path("healthy-cpu-only"))
    assert main(["check", "--from", bare, "--only", "gpu-memory"]) == 3
    assert capsys.readouterr().out.strip() == (
        "UNKNOWN  healthy-cpu-only: nothing could be judged: "
        "gpu-memory does not apply, as this machine has no GPUs to judge."
    )


def test_only_what_the_named_families_look_at_counts_as_not_read(capsys: pytest.CaptureFixture[str]) -> None:
    unloaded = str(bundle_path("driver-not-loaded"))
    assert main(["check", "--from", unloaded, "--only", "storage,clock", "--strict"]) == 0
    assert "nvml" not in capsys.readouterr().out
    assert main(["check", "--from", unloaded, "--only", "gpu-memory", "--strict"]) == 3
    assert "Not read: nvml." in capsys.readouterr().out


def test_what_the_readme_shows_is_what_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    readme = (ROOT / "README.md").read_text()
    shown = readme.split("$ nodeguard check --from fixtures/gpu-off-bus\n")[1].split("\n## ")[0]
    main(["check", "--from", LOST])
    assert capsys.readouterr().out.startswith(dedent(shown).rstrip())

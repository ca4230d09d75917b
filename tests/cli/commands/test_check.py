"""nodeguard check as its users meet it: exit codes, the table, the errors."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import msgspec
import pytest

from fixtures.bundles import bundle_path
from nodeguard.cli.commands.check import live_site
from nodeguard.cli.main import main
from nodeguard.cli.render.verdict_json import CheckOutput
from nodeguard.cli.streams import in_color
from nodeguard.model.finding import DataStatus
from nodeguard.model.recovery import Site
from tests.paths import ROOT

HEALTHY = str(bundle_path("healthy-dgx-h100"))
LOST = str(bundle_path("gpu-off-bus"))
COMMAND = [sys.executable, "-m", "nodeguard.cli.main", "check"]


def test_a_healthy_machine_is_ok_in_the_first_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--from", HEALTHY]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "OK  healthy-dgx-h100 is healthy."
    assert rest[0].startswith("  machine   8x NVIDIA H100 80GB HBM3, driver 5")
    assert "platform dgx-h100" in rest[0] + rest[1]
    assert main(["check", "--from", HEALTHY, "--verbose"]) == 0
    assert re.search(r"^passed      gpu-memory: \d+ checks, 8 GPUs$", capsys.readouterr().out, re.MULTILINE)


def test_a_finding_has_message_evidence_and_action(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--from", LOST]) == 2
    printed = capsys.readouterr().out
    assert (
        printed.splitlines()[0] == "FATAL  gpu-off-bus should take no work. GPU lost: "
        "GPU 5 (0000:c3:00, serial 1650522100005, module 6). Reboot the node."
    )
    for field in ("message", "since", "evidence", "action", "see"):
        assert re.search(rf"^  {field} ", printed, re.MULTILINE), field
    assert "checks passed" in printed


def test_a_recording_without_nvml_names_the_checks_that_it_does_not_allow(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    without = tmp_path / "without"
    shutil.copytree(HEALTHY, without, symlinks=True)
    (without / "nvml.json").unlink()
    assert main(["check", "--from", str(without)]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "OK  no fault was found on healthy-dgx-h100, but not all of it was recorded."
    assert re.search(
        r"  missing   the recording has no nvml.json: \d\d checks not made, of driver,$",
        "\n".join(rest),
        re.MULTILINE,
    )
    assert main(["check", "--from", str(without), "gpu-ecc-*"]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert "passed" not in first
    assert "  missing   the recording has no nvml.json: 4 checks not made, of gpu-memory" in rest


def test_a_table_fits_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """tests/test_fixtures.py checks the tables of all bundles."""
    monkeypatch.setenv("COLUMNS", "80")
    main(["check", "--from", LOST])
    _, *rest = capsys.readouterr().out.splitlines()
    assert 70 < max(len(line) for line in rest if " " in line.strip()) <= 80


def test_quiet_prints_nothing_where_all_checks_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--from", HEALTHY, "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["check", "--from", LOST, "--quiet"]) == 2
    printed = capsys.readouterr().out
    assert "GPU lost" in printed
    assert "passed" not in printed


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (
            ["--family", "clocks"],
            "--family: 'clocks' is unknown: did you mean clock? Or expected some of agent, clock, ",
        ),
        (["--family", ","], "--family is empty: expected some of agent, clock, "),
        (["--family", ""], "--family is empty: expected some of agent, clock, "),
        (["--from", "nowhere"], "nowhere"),
        (["--from", ""], "argument --from/--bundle: the name of a directory is empty: write its path"),
        (["--checks", ""], "argument --checks: the name of a directory is empty: write its path"),
        (
            ["--from", HEALTHY, "--duration", "30s"],
            "--duration cannot be used with --from: a recording is checked",
        ),
        (["--from", HEALTHY, "--root", "/host"], "--root excludes --from: a recording has its own root"),
        (
            ["--root", "/nowhere"],
            "/nowhere/proc/sys/kernel/random/boot_id: No such file or directory: --root names",
        ),
        (["--from", HEALTHY, "--platform", "h200"], "platform 'h200' is unknown: "),
        (["--duration", "soon"], "'soon' is not a duration: expected a value like 30s, 10m or 2h"),
        (["--checks", "/nowhere"], "/nowhere: cannot be read: No such file or directory: name a folder"),
        (["--frob"], "unrecognized arguments: --frob"),
    ],
)
def test_invalid_usage_exits_with_3_and_the_remedy(
    arguments: list[str], printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["check", *arguments])
    except SystemExit as left:
        code = int(left.code or 0)
    assert code == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert printed in err
    assert "Traceback" not in err


def copy(name: str, target: Path) -> Path:
    """A bundle to change, its links as they are."""
    subprocess.run(["cp", "-a", str(bundle_path(name)), str(target)], check=True)
    return target / name


def test_unreadable_sources_are_named_first_and_count_only_with_strict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = copy("healthy-cpu-only", tmp_path)
    (bundle / "errors.yaml").write_text("proc/meminfo: EACCES\n")
    assert main(["check", "--from", str(bundle)]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[0] == (
        "OK  no fault was found on healthy-cpu-only, but not all of it could be read. Not read: memory."
    )
    assert (
        "not read  memory: memory.available_ratio, memory.total: permission denied: run as root"
        in " ".join(printed.split()).replace("not read memory", "not read  memory")
    )
    assert main(["check", "--from", str(bundle), "--strict"]) == 3


def test_no_evaluated_check_exits_with_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bundle.yaml").write_text(
        'format: 1\nhostname: "bare"\nboot_id: "b"\nrecorded_at: 2026-11-01T12:00:00Z\nuptime_s: 1\n'
    )
    assert main(["check", "--from", str(tmp_path), "-o", "json"]) == 3
    view = msgspec.json.decode(capsys.readouterr().out, type=CheckOutput).verdict
    assert (view.evaluated, view.data_status) == (0, DataStatus.UNKNOWN)
    assert main(["check", "--from", str(tmp_path), "--format", "prometheus"]) == 3
    metrics = capsys.readouterr().out
    assert 'nodeguard_node_health{health="ok"} 0.0' in metrics
    assert 'nodeguard_node_data_status{data_status="unknown"} 1.0' in metrics
    assert main(["check", "--from", str(tmp_path)]) == 3
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "UNKNOWN  the health of bare is unknown: no check could be evaluated."
    assert rest[0].startswith("  missing   the recording has no nvml.json: ")


def test_a_finding_has_the_commands_of_its_action(capsys: pytest.CaptureFixture[str]) -> None:
    errors = str(bundle_path("ecc-uncorrectable"))
    main(["check", "-v", "--from", errors])
    how = capsys.readouterr().out.partition("  how       ")[2].splitlines()[:3]
    commands = [
        "nodeguard gpus detach --duration 30m --gpu 0",
        "nvidia-smi --gpu-reset -i 0",
        "nodeguard gpus attach",
    ]
    assert [line.strip() for line in how] == commands
    main(["check", "--from", errors, "-o", "json"])
    output = msgspec.json.decode(capsys.readouterr().out, type=CheckOutput, strict=True)
    assert output.findings[0].how == tuple(commands)


def test_the_first_screen_names_what_it_leaves_out(capsys: pytest.CaptureFixture[str]) -> None:
    """tests/test_fixtures.py checks the size of the first screens of all bundles."""
    errors = str(bundle_path("gpu-misconfigured"))
    main(["check", "--from", errors])
    short = capsys.readouterr().out
    assert "\nWARNING  ECC is off: GPU 0. Reset the GPU.\n" in short
    assert re.search(r"^\d+ checks passed; \d+ more findings: add -v to see everything$", short, re.MULTILINE)
    main(["check", "-q", "--from", errors])
    assert re.search(r"^\d+ more findings: add -v to see everything$", capsys.readouterr().out, re.MULTILINE)
    main(["check", "-v", "--from", errors])
    assert re.search(r"^WARNING  ECC is off - GPU 0 ", capsys.readouterr().out, re.MULTILINE)


def test_an_error_of_a_program_on_a_healthy_node_is_attributed_to_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["check", "--from", str(bundle_path("xid-quiet"))])
    assert "The program caused this error. The node is healthy." in capsys.readouterr().out
    main(["check", "--from", str(bundle_path("driver-hung"))])
    assert "No check finds a fault of GPU 0." in capsys.readouterr().out
    main(["check", "--from", str(bundle_path("gpu-programs-die"))])
    output = " ".join(capsys.readouterr().out.split())
    assert "No check finds a fault" not in output
    assert "A check finds a fault of GPU 4: act on it first." in output
    assert "Debug the program" not in output
    assert "1 other error before: see -v." in output


def test_the_same_commands_are_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", "-v", "--from", str(bundle_path("nvlink-troubles"))])
    printed = capsys.readouterr().out
    assert printed.count("NVLink down - ") == 2
    assert len(re.findall(r"nvidia-smi --gpu-reset$", printed, re.MULTILINE)) == 1


@pytest.mark.parametrize(
    ("environ", "paths", "site"),
    [
        ({}, set(), Site("n")),
        ({}, {"/etc/slurm/slurm.conf"}, Site("n", "slurm")),
        ({}, {"/run/slurm/conf/slurm.conf"}, Site("n", "slurm")),
        (
            {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "nodeguard-agent-x7"},
            {"/etc/slurm/slurm.conf"},
            Site("n", "kubernetes", on_node=False, pod="nodeguard-agent-x7"),
        ),
    ],
)
def test_where_the_commands_of_this_machine_run(environ: dict[str, str], paths: set[str], site: Site) -> None:
    assert live_site(Site("n"), environ, paths.__contains__) == site


def test_a_node_of_slurm_has_its_short_name() -> None:
    assert live_site(Site("gpu-3.cluster.local"), {}, lambda _: True).node == "gpu-3"


def test_a_node_of_kubernetes_stays_one() -> None:
    site = Site("n", "kubernetes")
    assert live_site(site, {}, lambda _: True) == site


def test_colored_output_has_the_same_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["check", "--from", LOST])
    plain = capsys.readouterr().out
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    main(["check", "--from", LOST])
    coloured = capsys.readouterr().out
    assert "\x1b[" in coloured
    stripped = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in stripped.splitlines()] == plain.splitlines()


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_no_colour_without_a_terminal_or_with_no_color(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    for other in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert in_color()
    monkeypatch.setenv(name, value)
    assert not in_color()


def test_a_closed_pipe_prints_no_traceback() -> None:
    with subprocess.Popen(
        [*COMMAND, "--from", LOST, "-o", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == b""


@pytest.mark.root
def test_without_privileges_it_checks_what_it_can() -> None:
    become = "import os, sys; os.setgroups([]); os.setgid(65534); os.setuid(65534); sys.argv = ['nodeguard', 'check'];"
    code = f"{become} from nodeguard.cli.main import main; sys.exit(main())"
    probe = f"{become} os.execv(sys.executable, [sys.executable, '-c', 'import msgspec'])"
    if subprocess.run([sys.executable, "-c", probe], capture_output=True).returncode != 0:  # noqa: PLW1510
        pytest.skip("this Python is out of other users' reach")
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)  # noqa: PLW1510
    assert ran.returncode in {0, 1, 2}, ran.stderr
    assert ran.stderr == ""
    assert "checks passed" in ran.stdout


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
    main(["check", "-v", "--from", str(bundle_path(bundle))])
    shown = [block for block in capsys.readouterr().out.split("\n\n") if f"explain {check}\n" in f"{block}\n"]
    first = next(line for line in shown[0].splitlines() if line.startswith("  evidence "))
    assert first.removeprefix("  evidence  ").startswith(seen)


def test_an_unknown_instance_type_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--from", HEALTHY, "--instance-type", "nonsense"]) == 0
    assert "--instance-type: 'nonsense' is unknown and ignored" in capsys.readouterr().err
    assert main(["check", "--from", HEALTHY, "--instance-type", "p5.48xlarge", "--platform", "aws-p5"]) in {
        0,
        1,
        2,
    }
    assert capsys.readouterr().err == ""


def test_families_that_do_not_apply_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    bare = str(bundle_path("healthy-cpu-only"))
    assert main(["check", "--from", bare, "--family", "gpu-memory"]) == 3
    assert capsys.readouterr().out.strip() == (
        "UNKNOWN  the health of healthy-cpu-only is unknown: "
        "gpu-memory does not apply, this machine has no GPUs."
    )


def test_only_sources_of_the_families_count_as_unread(capsys: pytest.CaptureFixture[str]) -> None:
    unloaded = str(bundle_path("driver-not-loaded"))
    assert main(["check", "--from", unloaded, "--family", "storage,clock", "--strict"]) == 0
    assert "nvml" not in capsys.readouterr().out
    assert main(["check", "--from", unloaded, "--family", "gpu-memory", "--strict"]) == 3
    assert "Not read: nvml." in capsys.readouterr().out


def test_the_readme_shows_the_real_output(capsys: pytest.CaptureFixture[str]) -> None:
    readme = (ROOT / "README.md").read_text()
    shown = readme.split("$ nodeguard check --from fixtures/gpu-off-bus\n")[1].split("\n## ")[0]
    main(["check", "--from", LOST])
    assert capsys.readouterr().out.startswith(dedent(shown).rstrip())


def test_the_first_screen_of_a_bad_night_says_what_failed_and_what_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["check", "--from", str(bundle_path("bad-night"))]) == 2
    screen = " ".join(capsys.readouterr().out.split())
    for part in (
        "2 fatal, 1 suspect, 1 warning. Worst: GPU lost: GPU 5 (0000:c3:00, serial 1650522100005, module 6).",
        "FATAL GPU lost - GPU 5 (0000:c3:00) ",
        "how systemctl reboot",
        "FATAL Port down: port mlx5_1/1.",
        "SUSPECT File system full: /scratch.",
        "WARNING Row remap waits for a reset: GPU 3. Reset the GPU.",
        "6 errors of programs within a minute after GPU lost: GPU 5. Repair the node first:",
        "2 other errors of programs: -v shows the programs and what to do",
    ):
        assert part in screen


def test_an_error_long_before_a_fault_is_that_of_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--from", str(bundle_path("bad-night")), "-v"]) == 2
    output = " ".join(capsys.readouterr().out.split())
    assert "GPU 2, 11:00:00 python3 (pid 41000): illegal memory access of the program (Xid 31)" in output
    assert "Xid 45" not in output

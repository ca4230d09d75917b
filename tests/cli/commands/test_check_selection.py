"""nodeguard check with only some of the checks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fixtures.bundles import bundle_path
from fixtures.parts.bundle import UPTIME, Bundle
from fixtures.parts.cards import CARD, DRIVER, nvml, on_bus, server, xid
from fixtures.parts.machines import GPUS
from nodeguard.cli.main import main

LOST = str(bundle_path("gpu-off-bus"))
UNLISTED_XID = f"999, {DRIVER}, Something new"
UUID = "GPU-5c8f0005-0a1b-2c3d-4e5f-607182930405"


@pytest.mark.parametrize("only", [["--family", "clock,kernel"], ["--family", "clock", "--family", "kernel"]])
def test_family_runs_only_these_checks(only: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--from", LOST, "-v", *only]) == 0
    families = re.findall(r"^passed +(\S+):", capsys.readouterr().out, re.MULTILINE)
    assert families == ["clock", "kernel"]


def test_only_named_checks_are_run(capsys: pytest.CaptureFixture[str]) -> None:
    recording = str(bundle_path("gpu-gone"))
    assert main(["check", "gpu-count", "--from", recording]) == 2
    assert "GPUs missing" in capsys.readouterr().out
    assert main(["check", "gpu-ecc-*", "gpu-lost", "--from", recording]) == 0
    assert capsys.readouterr().out.startswith("OK  gpu-gone passed gpu-ecc-*, gpu-lost.\n")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["gpu-lots"], "no check is named 'gpu-lots': did you mean gpu-lost "),
        (["gpu-lost", "--family", "gpu-memory"], "checks and --family cannot be used together"),
        (["nothing-*"], "no check is named 'nothing-*': see nodeguard get checks"),
    ],
)
def test_a_wrong_selection_is_an_error(
    words: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", *words, "--from", str(bundle_path("gpu-gone"))]) == 3
    assert error in capsys.readouterr().err


def test_a_named_check_that_does_not_apply_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "dimm-uncorrected", "--from", str(bundle_path("gpu-gone"))]) == 3
    assert "dimm-uncorrected does not apply, this machine has no DIMMs" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["5", "GPU 5", "1650522100005", "gpu/0000:C3:00", "00000000:C3:00.0", UUID])
def test_a_gpu_has_several_names(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--from", LOST, "--gpu", name]) == 2
    assert "FATAL  GPU 5 of gpu-off-bus should take no work. GPU lost: GPU 5 (" in capsys.readouterr().out


def test_the_exit_code_is_that_of_the_selected_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--from", LOST, "--gpu", "4"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "OK  GPU 4 of gpu-off-bus passed all checks. Elsewhere on the node: 1 fatal finding."
    assert main(["check", "--from", LOST, "--gpu", "4", "--gpu", "5"]) == 2


def test_an_unknown_gpu_is_an_error_that_names_the_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--from", LOST, "--gpu", "8"]) == 3
    error = capsys.readouterr().err
    assert (
        "no GPU is named '8': expected an index, UUID, serial number or PCI address: 0 (0000:1b:00), "
        in error
    )
    assert main(["check", "--from", str(bundle_path("healthy-cpu-only")), "--gpu", "0"]) == 3
    assert "no GPU is named '0': no GPU was found on this machine" in capsys.readouterr().err


def test_only_the_links_and_kernel_lines_of_the_gpu_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    recording = str(bundle_path("nvlink-link-errors"))
    main(["check", "--from", recording, "-o", "json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    gpu = next(target for finding in findings for target in finding["targets"] if "/nvlink/" in target)
    gpu = gpu.partition("/nvlink/")[0]
    main(["check", "--from", recording, "-o", "json", "--gpu", gpu])
    output = json.loads(capsys.readouterr().out)
    selected = [*output["findings"], *output["informational"]]
    assert selected
    assert {target.partition("/nvlink/")[0] for finding in selected for target in finding["targets"]} == {gpu}


def test_the_cause_of_a_gpus_fault_is_shown_wherever_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--from", str(bundle_path("fabric-manager-down")), "--gpu", "1"]) == 2
    assert "GPU 1 of fabric-manager-down should take no work. Fabric manager down:" in capsys.readouterr().out


def test_a_gpu_that_cannot_be_read_does_not_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--from", str(bundle_path("driver-hung")), "--gpu", "0"]) == 2
    assert "GPU 0 of driver-hung should take no work. Driver does not answer" in capsys.readouterr().out
    assert main(["check", "--from", str(bundle_path("gpus-never-listed")), "--gpu", "0000:1b:00"]) == 3
    assert "the health of GPU 0000:1b:00 of gpus-never-listed is unknown" in capsys.readouterr().out


def hung_server(name: str) -> Bundle:
    """Return a server of 5 GPUs where NVML hangs at GPU 3, after it has read GPU 0 to 2."""
    bundle = server(name, 5)
    nvml(bundle, 3, {"nvmlDeviceGetTotalEccErrors(1,0)": {"error": "hang"}})
    return bundle


def test_a_warning_only_from_the_kernel_log_does_not_show_that_the_gpu_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = hung_server("hung")
    xid(bundle, 4, UNLISTED_XID, UPTIME - 600)
    bundle.save(tmp_path)
    assert main(["check", "--from", str(tmp_path / "hung"), "--gpu", "0000:9d:00"]) == 2
    first = " ".join(capsys.readouterr().out.split())
    assert (
        "GPU 0000:9d:00 of hung should take no work. 1 fatal, 1 warning. Worst: Driver does not ans" in first
    )


def test_a_named_check_of_the_kernel_log_needs_no_reading(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = server("warned", 2)
    xid(bundle, 0, UNLISTED_XID, UPTIME - 600)
    bundle.save(tmp_path)
    assert main(["check", "gpu-xid-unlisted", "--from", str(tmp_path / "warned"), "--gpu", "0"]) == 1
    assert "WARNING  GPU 0 of warned can take work." in capsys.readouterr().out


def test_a_gpu_that_was_read_does_not_pass_once_nvml_hangs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hung_server("hung").save(tmp_path)
    assert main(["check", "--from", str(tmp_path / "hung"), "--gpu", "0"]) == 2
    assert "GPU 0 of hung should take no work. Driver does not answer" in capsys.readouterr().out


def test_a_gpu_passes_the_checks_of_its_links(capsys: pytest.CaptureFixture[str]) -> None:
    healthy = str(bundle_path("healthy-dgx-h100"))
    assert main(["check", "nvlink-down", "--from", healthy, "--gpu", "3"]) == 0
    assert capsys.readouterr().out.startswith("OK  GPU 3 of healthy-dgx-h100 passed nvlink-down.\n")


def test_the_text_names_the_gpu_that_was_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = server("passed-on", 3)
    on_bus(bundle, GPUS[3], CARD, driver="vfio-pci")
    xid(bundle, 0, UNLISTED_XID, UPTIME - 600)
    bundle.save(tmp_path)
    command = ["check", "--from", str(tmp_path / "passed-on"), "--gpu", "0", "--gpu", GPUS[3]]
    assert main([*command, "-o", "wide"]) == 3
    assert capsys.readouterr().out.startswith(
        "UNKNOWN  the health of GPU 0, GPU 0000:61:00 of passed-on is unknown: NVML has not read "
        "GPU 0000:61:00. Xid that no table lists: GPU 0 ("
    )
    assert main([*command, "-o", "json"]) == 3
    assert json.loads(capsys.readouterr().out)["verdict"]["health"] == "unknown"
    assert main([*command, "gpu-row-remap-pending"]) == 3
    assert "is unknown: gpu-row-remap-pending could not be evaluated on GPU 0000:61:00." in " ".join(
        capsys.readouterr().out.split()
    )


def test_the_metrics_of_a_gpu_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--from", LOST, "--gpu", "4", "-o", "prometheus"]) == 3
    output = capsys.readouterr()
    assert not output.out
    assert "--gpu: the metrics are of the whole node: leave out --gpu, or use -o json" in output.err


def test_a_fault_elsewhere_on_the_node_may_have_ended_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--from", str(bundle_path("bad-night")), "--gpu", "3"]) == 1
    output = " ".join(capsys.readouterr().out.split())
    assert "1 error of programs within a minute after " in output
    assert "Debug the program" not in output


def test_checks_and_gpus_are_selected_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "gpu-ecc-*", "--from", LOST, "--gpu", "4"]) == 0
    assert "OK  GPU 4 of gpu-off-bus passed gpu-ecc-*." in capsys.readouterr().out
    assert main(["check", "fs-full", "--from", LOST, "--gpu", "4"]) == 3
    assert "--gpu: no check of GPUs is in fs-full: leave out --gpu" in capsys.readouterr().err


def test_a_part_of_the_checks_does_not_make_the_node_healthy(capsys: pytest.CaptureFixture[str]) -> None:
    recording = str(bundle_path("gpu-programs-die-alone"))
    for only in (["--gpu", "1"], ["--family", "gpu-xid"]):
        assert main(["check", "--from", recording, *only]) == 0
        output = " ".join(capsys.readouterr().out.split())
        assert "the node is healthy" not in output
        assert "No check finds a fault of GPU 1." in output

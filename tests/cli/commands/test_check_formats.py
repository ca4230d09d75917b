"""The formats of nodeguard check for programs: JSON with its schema, YAML, names, rows and metrics."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from fixtures.bundles import bundle_path
from fixtures.parts.bundle import UPTIME
from fixtures.parts.cards import DRIVER, nvml, server, xid
from nodeguard.cli.main import main
from nodeguard.cli.render.verdict_json import CheckOutput

HEALTHY = str(bundle_path("healthy-dgx-h100"))
LOST = str(bundle_path("gpu-off-bus"))


def json_of(bundle: str, capsys: pytest.CaptureFixture[str], *options: str, code: int = 2) -> CheckOutput:
    """Return the JSON for a recording. code: the exit code."""
    assert main(["check", "--from", bundle, "-o", "json", *options]) == code
    return msgspec.json.decode(capsys.readouterr().out, type=CheckOutput, strict=True)


def test_json_is_of_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    output = json_of(LOST, capsys)
    assert (output.version, output.verdict.health.value, output.verdict.node) == (1, "fatal", "gpu-off-bus")
    lost = output.findings[0]
    assert (lost.check, lost.target, lost.since[:4]) == ("gpu-lost", "gpu/0000:c3:00", "2026")
    assert lost.evidence


def test_yaml_has_the_fields_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    documents = []
    for output in ("json", "yaml"):
        assert main(["check", "--from", LOST, "-o", output]) == 2
        documents.append(yaml.safe_load(capsys.readouterr().out))
    assert documents[0] == documents[1]


def test_the_targets_that_were_looked_at_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    targets = {}
    for name in ("gpu-off-bus", "driver-hung"):
        output = json_of(str(bundle_path(name)), capsys)
        targets[name] = {item.target: item for item in output.evaluated_targets}
    healthy, lost = (targets["gpu-off-bus"][f"gpu/0000:{bus}:00"] for bus in ("9d", "c3"))
    assert healthy.hardware is not None
    assert (healthy.hardware.index, healthy.passed > 10, lost.passed) == (4, True, 0)
    # The driver hung before this GPU was read again: it is not known to be healthy.
    assert "gpu/0000:1b:00" not in targets["driver-hung"]
    assert targets["driver-hung"]["node"].passed


def test_a_gpu_with_only_a_warning_of_the_kernel_log_was_not_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = server("hung", 5)
    nvml(bundle, 3, {"nvmlDeviceGetTotalEccErrors(1,0)": {"error": "hang"}})
    xid(bundle, 4, f"999, {DRIVER}, Something new", UPTIME - 600)
    bundle.save(tmp_path)
    output = json_of(str(tmp_path / "hung"), capsys)
    assert any(finding.target == "gpu/0000:9d:00" for finding in output.findings)
    targets = {item.target for item in output.evaluated_targets}
    assert "gpu/0000:1b:00" in targets
    assert "gpu/0000:9d:00" not in targets


def test_the_names_of_findings_are_those_that_clear_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--from", LOST, "-o", "name"]) == 2
    assert capsys.readouterr().out == "gpu-lost gpu/0000:c3:00\n"
    assert main(["check", "--from", str(bundle_path("healthy-cpu-only")), "-o", "name"]) == 0
    assert not capsys.readouterr().out


def test_wide_has_a_row_for_each_finding(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--from", str(bundle_path("nvl72-troubles")), "-o", "wide"]) == 2
    first, header, *rows = capsys.readouterr().out.splitlines()
    assert first.startswith("FATAL  nvl72-troubles should take no work. 1 fatal, 6 suspect, 1 warning.")
    assert header.split() == ["HEALTH", "DEVICE", "CHECK", "ACTION", "AGE", "DATA", "MESSAGE"]
    assert len(rows) == 8
    assert "GPU 2 (0018:01:00)" in rows[0]


def test_a_finding_links_to_the_sites_own_page(capsys: pytest.CaptureFixture[str]) -> None:
    runbooks = []
    for base in ([], ["--runbook-url-base", "https://docs.example/checks"]):
        output = json_of(LOST, capsys, *base)
        runbooks.append({finding.check: finding.runbook for finding in output.findings}["gpu-lost"])
    page = "https://github.com/nodeguard/nodeguard/blob/main/docs/reference/checks/gpu-lost.md"
    assert runbooks == [page, "https://docs.example/checks/gpu-lost"]
    with pytest.raises(SystemExit, match="3"):
        main(["check", "--from", LOST, "--runbook-url-base", "ftp://docs.example"])
    assert "'ftp://docs.example' is no http or https address" in capsys.readouterr().err


def test_the_json_without_evaluated_checks_is_not_healthy(capsys: pytest.CaptureFixture[str]) -> None:
    bare = str(bundle_path("healthy-cpu-only"))
    verdict = json_of(bare, capsys, "--family", "gpu-memory", code=3).verdict
    assert (verdict.health.value, verdict.data_status.value, verdict.evaluated) == ("unknown", "unknown", 0)
    assert main(["check", "--schema"]) == 0
    schema = msgspec.json.decode(capsys.readouterr().out)
    assert set(schema["$defs"]["HealthOutput"]["enum"]) == {"ok", "warning", "suspect", "fatal", "unknown"}


def test_the_schema_names_what_the_json_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--schema"]) == 0
    schema = msgspec.json.decode(capsys.readouterr().out)
    fields = schema["$defs"]["FindingOutput"]["properties"]
    names = "check target component health data_status action since message evidence"
    assert set(names.split()) <= set(fields)
    assert {"version", "verdict", "findings", "unreadable", "inventory"} <= set(
        schema["$defs"]["CheckOutput"]["properties"]
    )


def test_metrics_are_valid_for_prometheus(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--from", LOST, "--format", "prometheus"]) == 2
    families = {family.name: family for family in text_string_to_metric_families(capsys.readouterr().out)}
    states = {sample.labels["health"]: sample.value for sample in families["nodeguard_node_health"].samples}
    assert states == {"ok": 0, "warning": 0, "suspect": 0, "fatal": 1}
    available = {
        sample.labels["data_status"]: sample.value
        for sample in families["nodeguard_node_data_status"].samples
    }
    assert available == {"fresh": 1, "not-applicable": 0, "stale": 0, "unknown": 0}
    assert {sample.labels["check"] for sample in families["nodeguard_finding"].samples} >= {"gpu-lost"}
    (lost,) = [
        sample.labels
        for sample in families["nodeguard_finding"].samples
        if sample.labels["check"] == "gpu-lost"
    ]
    assert lost["pci_bus_id"] == f"0000{lost['target'].removeprefix('gpu/').upper()}.0"


@pytest.mark.parametrize("output", ["json", "prometheus"])
def test_quiet_does_not_change_json(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--from", HEALTHY, "--format", output]) == 0
    whole = capsys.readouterr().out
    assert main(["check", "--from", HEALTHY, "--format", output, "--quiet"]) == 0
    assert capsys.readouterr().out == whole != ""

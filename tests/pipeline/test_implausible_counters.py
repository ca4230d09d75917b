"""Counters that jump further than hardware can count: no finding follows, and the reason is reported."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fixtures.bundles import build
from fixtures.parts.bundle import Bundle, Layer
from nodeguard.bundle.recording import Recording
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.derive.derive import PlatformHints
from nodeguard.model.finding import Health, Verdict
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.pipeline.replay import replay_verdicts
from nodeguard.sources.registry import all_sources

pytestmark = pytest.mark.slow

CATALOGUE, SIGNALS = load_catalogue()

# Machines that differ in their adapters and in the generation of their NVLinks.
MACHINES = ("healthy-dgx-h100", "healthy-dgx-b200", "healthy-aws-p5", "healthy-gcp-a3-ultra")

FILES = re.compile(
    r".*/(counters|hw_counters)/\w+|.*/carrier_(down_count|changes)|.*/aer_dev_\w+|.*/edac/.*_(ce|ue)_count"
)
CALLS = re.compile(
    r"nvmlDeviceGet(TotalEccErrors|MemoryErrorCounter|PcieReplayCounter|RemappedRows).*"
    r"|nvmlDeviceGetFieldValues\((95|161|162|163|173|179|180|20[6-9]|21[0-5]|219|221|269|270|271),\d+\)"
)
# Data and time that rise on healthy machines, and the heartbeat.
HARMLESS = re.compile(r".*(_data|_packets|_bytes|_pkts|wait|lifespan|keep_alive_rcvd|submitted_cmds)")


def set_counters(bundle: Bundle, layer: Layer, value: int) -> None:
    """Let all counters of a machine read a value, in a frame of its bundle."""
    for path, text in bundle.files.items():
        if FILES.fullmatch(path) and not HARMLESS.fullmatch(path):
            layer.file(path, f"{text.rstrip().rpartition(' ')[0]} {value}".lstrip())
    if bundle.nvml is not None and isinstance(bundle.nvml.get("devices"), list):
        layer.nvml = {
            "devices": {
                str(index): {
                    call: counted(result, value) for call, result in calls.items() if CALLS.match(call)
                }
                for index, calls in enumerate(bundle.nvml["devices"])
            }
        }


def counted(result: Any, value: int) -> Any:
    """Return the result of a call of NVML with this count; errors and flags are left as they are."""
    if isinstance(result, list):
        return [value, value, *result[2:]]
    if isinstance(result, dict):
        return {**result, "value": value} if "value" in result and not result.get("nvmlReturn") else result
    return value


def verdicts(machine: str, directory: Path, *values: int) -> list[Verdict]:
    """Return the verdicts on a healthy machine, and then with all counters at these values, ten seconds apart."""
    bundle = build(machine)
    for number, value in enumerate(values, 1):
        set_counters(bundle, bundle.frame(10 * number), value)
    bundle.save(directory)
    recording = Recording.open(str(directory / bundle.name))
    hints = PlatformHints(recording.manifest.platform, recording.manifest.instance_type)
    pipeline = Pipeline(CATALOGUE, SIGNALS, hints)
    return [verdict for _, verdict in replay_verdicts(recording, all_sources(CATALOGUE.patterns), pipeline)]


def complaints(results: list[Verdict]) -> set[str]:
    return {
        f"{finding.check} on {finding.target}: {finding.evidence[0].text}"
        for verdict in results
        for finding in verdict.findings
        if finding.health.rank >= Health.SUSPECT.rank
    }


JUMPS = [(1 << bits) - 1 for bits in (16, 31, 32, 63, 64)]


@pytest.mark.parametrize(
    ("machine", "value"),
    [
        *((MACHINES[0], value) for value in (*JUMPS, (1 << 32) - 7, (1 << 63) - 9)),
        *((machine, value) for machine in MACHINES[1:] for value in (0xFFFF, 1 << 62)),
    ],
)
def test_a_jump_is_no_fault(machine: str, value: int, tmp_path: Path) -> None:
    results = verdicts(machine, tmp_path, 0, value, value, 0, 0)
    assert complaints(results) == set()
    during = {failure.reason for failure in results[2].read_failures}
    assert any("not trusted" in reason or "reads" in reason for reason in during), during


@pytest.mark.parametrize("machine", MACHINES[:2])
def test_a_wrap_is_no_fault(machine: str, tmp_path: Path) -> None:
    top = (1 << 32) - 5
    assert complaints(verdicts(machine, tmp_path, top, top + 2, 0, 0)) == set()


@pytest.mark.slow
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_sequence_of_jumps_is_a_fault(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    machine = data.draw(st.sampled_from(MACHINES))
    huge = st.one_of(st.sampled_from(JUMPS), st.integers(1 << 37, (1 << 64) - 1), st.just(0))
    values = data.draw(st.lists(huge, min_size=1, max_size=5))
    assert complaints(verdicts(machine, tmp_path_factory.mktemp("jumps"), *values)) == set()

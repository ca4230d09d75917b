"""Tolerations and names of workloads in a cluster."""

from __future__ import annotations

import pytest

from nodeguard.doctor.cluster_objects import TolerationSpec, Workload
from nodeguard.model.node import Taint


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (TolerationSpec(operator="Exists"), True),
        (TolerationSpec("nodeguard.dev/quarantine", "Exists"), True),
        (TolerationSpec("nodeguard.dev/quarantine", "Equal", "gpu", "NoSchedule"), True),
        (TolerationSpec("nodeguard.dev/quarantine", "Equal", "disk"), False),
        (TolerationSpec("nodeguard.dev/quarantine", "Exists", "", "NoExecute"), False),
        (TolerationSpec("nvidia.com/gpu", "Exists"), False),
    ],
)
def test_tolerations_as_the_scheduler_reads_them(toleration: TolerationSpec, expected: bool) -> None:
    assert toleration.tolerates(Taint("nodeguard.dev/quarantine", "NoSchedule", "gpu")) is expected


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        (Workload("ops", "gpud"), True),
        (Workload("ops", "gpud-agent"), True),
        (Workload("ops", "health", images=("ghcr.io/leptonai/gpud:v1",)), True),
        (Workload("ops", "nccl-tcpx", images=("nvidia/gpudirect:1",)), False),
    ],
)
def test_tools_are_found_by_whole_words(workload: Workload, expected: bool) -> None:
    assert workload.runs("gpud") is expected

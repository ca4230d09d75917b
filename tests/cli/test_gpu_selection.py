"""The verdict on some GPUs of a machine."""

from __future__ import annotations

from nodeguard.cli.gpu_selection import GpuSelection
from nodeguard.model.finding import DataStatus, Evidence, Health, Verdict
from nodeguard.model.target import NODE
from tests.judge.judged_node import finding

GPU, OTHERS = "gpu/0000:1b:00", ("gpu/0000:43:00", "gpu/0000:52:00")


def test_a_finding_that_covers_other_gpus_keeps_no_gpu_from_being_read() -> None:
    evidence = (Evidence("nvml", "gpu.temperature = 90", 0.0),)
    fault = finding("gpu-hot", NODE, health=Health.FATAL, targets=OTHERS, evidence=evidence)
    on_node = Verdict(Health.FATAL, DataStatus.FRESH, (fault,), evaluated=1)
    on_gpus = Verdict(Health.OK, DataStatus.FRESH)
    assert GpuSelection({GPU: "GPU 0"}).restrict(on_node, on_gpus, ()) == on_gpus

"""The hardware of findings: of a GPU that is read, that is lost, and that was lost before a reboot."""

from __future__ import annotations

from typing import Any

from nodeguard.derive.derive import PlatformHints
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.check import Compare
from nodeguard.model.finding import Verdict
from nodeguard.model.hardware import Hardware
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Component, Observation, Reading
from nodeguard.model.signal import Signal, signals_by_name
from nodeguard.pipeline.components import hardware_of, update_components
from nodeguard.pipeline.pipeline import Pipeline
from tests.judge.judged_node import check

FIRST, SECOND, THIRD = (f"gpu/0000:{bus}:00" for bus in ("1b", "3b", "5b"))
SIGNALS = signals_by_name(
    Signal("gpu.answers", "state", "whether it answers"),
    Signal("pci.present", "state", "whether it is there"),
)
CHECKS = Catalogue(
    checks=(
        check(Compare("pci.present", "is", False), "gone", targets=("gpu",)),
        check(Compare("gpu.answers", "is", False), "dumb", targets=("gpu", "nvlink")),
    )
)


def gpu(index: int, serial: str = "", uuid: str = "") -> Component:
    return Component(uuid or f"GPU-{serial}", "H100", Hardware(index, serial, module_id=index + 1))


def reading(**gpus: Component) -> Reading:
    targets = {"first": FIRST, "second": SECOND, "third": THIRD}
    return Reading(
        "nvml", 0.0, tuple(Observation("nvml", targets[name], component=part) for name, part in gpus.items())
    )


def components(*readings: Reading) -> dict[str, Any]:
    """The hardware by target after some rounds."""
    parts: dict[str, Component] = {}
    for read in readings:
        parts = update_components(parts, [read])
    return {target: component.hardware for target, component in parts.items()}


def test_a_gpu_that_is_not_listed_any_more_keeps_its_names() -> None:
    hardware = components(reading(first=gpu(0, "a"), second=gpu(1, "b")), reading(first=gpu(0, "a")))
    assert hardware == {FIRST: Hardware(0, "a", module_id=1), SECOND: Hardware(1, "b", module_id=2)}


def test_an_index_is_that_of_the_gpu_that_nvml_lists() -> None:
    before = reading(first=gpu(0, "a"), second=gpu(1, "b"), third=gpu(2, "c"))
    shifted = Component("GPU-c", "H100", Hardware(1, "c", module_id=3))
    hardware = components(before, reading(first=gpu(0, "a"), third=shifted))
    assert hardware[SECOND] == Hardware(None, "b", module_id=2)
    assert hardware[THIRD] == Hardware(1, "c", module_id=3)


def test_a_partial_reading_of_the_same_gpu_removes_no_name() -> None:
    partial = Component("GPU-a", "", Hardware(0))
    assert components(reading(first=gpu(0, "a")), reading(first=partial))[FIRST].serial == "a"
    other = Component("GPU-b", "", Hardware(0))
    assert components(reading(first=gpu(0, "a")), reading(first=other))[FIRST] == Hardware(0)


def test_an_unchanged_reading_returns_the_same_object() -> None:
    parts = update_components({}, [reading(first=gpu(0, "a"))])
    assert update_components(parts, [reading(first=gpu(0, "a"))]) is parts
    assert update_components(parts, []) is parts


def test_the_number_of_components_is_bounded() -> None:
    many = tuple(Observation("nvml", f"gpu/0000:{n:02x}:00", component=gpu(n, str(n))) for n in range(200))
    parts = update_components({}, [Reading("nvml", 0.0, many)])
    assert (len(parts), f"gpu/0000:{199:02x}:00" in parts) == (64, True)


def test_a_finding_of_several_gpus_or_of_another_component_has_no_hardware() -> None:
    parts = {FIRST: gpu(0, "a"), SECOND: gpu(1, "b")}
    assert hardware_of((FIRST,), "GPU-a", parts) == Hardware(0, "a", module_id=1)
    assert hardware_of((f"{FIRST}/nvlink/1", f"{FIRST}/nvlink/2"), "", parts) == Hardware(0, "a", module_id=1)
    assert hardware_of((FIRST, SECOND), "", parts) is None
    assert hardware_of(("node",), "", parts) is None
    assert hardware_of((FIRST,), "GPU-earlier", parts) is None


def evaluate(pipeline: Pipeline, at: float, boot: str, *observations: Observation) -> Verdict:
    by_source = {
        name: tuple(item for item in observations if item.source == name) for name in ("nvml", "pci")
    }
    readings = [Reading(name, at, items) for name, items in by_source.items()]
    return pipeline.evaluate(readings, Instant(1e9 + at, at, boot))


def test_a_lost_gpu_is_named_also_after_a_reboot() -> None:
    pipeline = Pipeline(CHECKS, SIGNALS, PlatformHints())
    read = Observation("nvml", FIRST, signals={"gpu.answers": True}, component=gpu(5, "165"))
    evaluate(pipeline, 10.0, "one", read, Observation("pci", FIRST, signals={"pci.present": True}))
    gone = Observation("pci", FIRST, signals={"pci.present": False})
    for at, boot in ((20.0, "one"), (5.0, "two")):
        pipeline = Pipeline(CHECKS, SIGNALS, PlatformHints(), state=pipeline.state)
        [finding] = evaluate(pipeline, at, boot, gone).findings
        assert (finding.check, finding.hardware) == ("gone", Hardware(5, "165", module_id=6))


def test_a_finding_of_an_nvlink_has_the_hardware_of_its_gpu() -> None:
    pipeline = Pipeline(CHECKS, SIGNALS, PlatformHints())
    read = Observation("nvml", FIRST, signals={"gpu.answers": True}, component=gpu(5, "165"))
    link = Observation("nvml", f"{FIRST}/nvlink/3", signals={"gpu.answers": False})
    [finding] = evaluate(pipeline, 10.0, "one", read, link).findings
    assert finding.hardware == Hardware(5, "165", module_id=6)

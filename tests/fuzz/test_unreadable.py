"""A path or call that cannot be read adds no finding to a machine.

`bench/unreadable.py` tests every path and call of every recording.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.fuzz.unreadable import (
    ERRNOS,
    NVML_ERRORS,
    SENTINELS,
    WORDS,
    Damage,
    Place,
    Trial,
    healthy,
    without_hangs,
)

pytestmark = pytest.mark.slow

WITH_GPUS = [path for path in healthy() if (path / "nvml.json").exists()]
WITH_PORTS = [path for path in healthy() if (path / "sys/class/infiniband").exists()]
DGX = next(path for path in healthy() if path.name == "healthy-dgx-h100")


@cache
def trial(directory: Path) -> Trial:
    return Trial(directory)


def judge(directory: Path, damage: Damage | None) -> list[str]:
    return [
        f"second {at:g}: {finding.check} on {finding.target}"
        for at, finding in trial(directory).judged(damage)
    ]


@pytest.mark.parametrize("directory", healthy(), ids=lambda path: path.name)
def test_a_healthy_machine_is_healthy_over_time(directory: Path) -> None:
    assert judge(directory, None) == []


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_one_unreadable_path_or_call_adds_no_finding(data: st.DataObject) -> None:
    directory = data.draw(st.sampled_from(healthy()))
    shapes = trial(directory).damages_by_shape
    damage = data.draw(st.sampled_from(shapes[data.draw(st.sampled_from(sorted(shapes)))]))
    assert judge(directory, damage) == [], str(damage)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_value_that_means_none_adds_no_finding(data: st.DataObject) -> None:
    """Of NVML, sysfs and procfs; `is_a_sign` names those that report a fault."""
    directory = data.draw(st.sampled_from(WITH_GPUS))
    shapes = trial(directory).damages_by_shape
    sentinels = sorted(key for key in shapes if key[1] in SENTINELS or key[1] in WORDS)
    damage = data.draw(st.sampled_from(shapes[data.draw(st.sampled_from(sentinels))]))
    assert judge(directory, damage) == [], str(damage)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_value_that_means_none_adds_no_finding_to_a_fault(data: st.DataObject) -> None:
    directory = data.draw(st.sampled_from(without_hangs()))
    assume(shapes := trial(directory).values_by_shape)
    damage = data.draw(st.sampled_from(shapes[data.draw(st.sampled_from(sorted(shapes)))]))
    assert trial(directory).added(damage) == [], f"{directory.name}: {damage}"


@pytest.mark.parametrize("failure", ["ones-6", "ones-8", "zero"])
@pytest.mark.parametrize("field", ["164,0", "190,0", "194,0"])
def test_no_limit_and_no_rate_of_a_link_is_a_value_that_means_none(field: str, failure: str) -> None:
    directory = next(path for path in WITH_GPUS if path.name == "healthy-aws-p5")
    assert judge(directory, Damage(Place("nvml", f"nvmlDeviceGetFieldValues({field})", 2), failure)) == []


@pytest.mark.parametrize("failure", ERRNOS)
@pytest.mark.parametrize(
    "path", ["", "/sys", "/proc", "/sys/bus/pci", "/sys/class/infiniband", "/sys/fs/cgroup", "/etc"]
)
def test_unreadable_directory_tree_adds_no_finding(path: str, failure: str) -> None:
    """A process without descriptors, a file system that fails, a container without /sys."""
    assert judge(DGX, Damage(Place("tree", path), failure)) == []


@pytest.mark.parametrize(
    ("directory", "failure"),
    [
        *((DGX, failure) for failure in (*ERRNOS, "ENOMEM", "EAGAIN", "EPERM")),
        *((directory, "EACCES") for directory in WITH_GPUS),
    ],
    ids=lambda value: value.name if isinstance(value, Path) else value,
)
def test_no_gpu_is_lost_because_the_bus_cannot_be_listed(directory: Path, failure: str) -> None:
    assert judge(directory, Damage(Place("names", "/sys/bus/pci/devices"), failure)) == []


@pytest.mark.parametrize(
    ("directory", "failure"),
    [
        *((DGX, failure) for failure in NVML_ERRORS),
        *((directory, "NVML_ERROR_UNKNOWN") for directory in WITH_GPUS),
    ],
    ids=lambda value: value.name if isinstance(value, Path) else value,
)
def test_no_gpu_is_lost_because_it_does_not_give_its_address(directory: Path, failure: str) -> None:
    assert judge(directory, Damage(Place("nvml", "nvmlDeviceGetPciInfo_v3", 0), failure)) == []


@pytest.mark.parametrize("failure", [*ERRNOS, "empty"])
@pytest.mark.parametrize("name", ["hca_type", "board_id"])
def test_no_port_is_missing_because_its_adapter_does_not_give_its_make(name: str, failure: str) -> None:
    """Of a renamed device too."""
    directory = next(path for path in WITH_PORTS if path.name == "healthy-gb200-tray")
    assert judge(directory, Damage(Place("read", f"/sys/class/infiniband/ibp3s0/{name}"), failure)) == []


def test_no_port_is_down_because_another_of_its_adapter_is_not_listed() -> None:
    directory = next(path for path in WITH_PORTS if path.name == "healthy-roce-port-unused")
    assert judge(directory, Damage(Place("names", "/sys/class/infiniband/mlx5_6/ports"), "ENOENT")) == []


@pytest.mark.parametrize("failure", ERRNOS)
def test_no_port_is_counted_because_its_function_may_be_virtual(failure: str) -> None:
    """The inventory would learn it, and miss it later."""
    directory = next(path for path in WITH_PORTS if path.name == "healthy-b200-guest")
    physfn = Place("link", "/sys/bus/pci/devices/0000:05:00.0/physfn")
    assert judge(directory, Damage(physfn, failure)) == []


@pytest.mark.parametrize("failure", ERRNOS)
@pytest.mark.parametrize("device", ["mlx5_6", "mlx5_7"])
def test_no_port_is_down_because_the_adapter_of_another_is_unknown(device: str, failure: str) -> None:
    """Of an adapter with two Ethernet ports, of which one was never connected."""
    directory = next(path for path in WITH_PORTS if path.name == "healthy-roce-port-unused")
    assert judge(directory, Damage(Place("link", f"/sys/class/infiniband/{device}/device"), failure)) == []


@pytest.mark.parametrize("failure", ERRNOS)
def test_no_link_is_too_narrow_because_the_bridge_above_it_is_unknown(failure: str) -> None:
    """Of two cards of one model, one in a slot of eight lanes."""
    directory = next(path for path in WITH_GPUS if path.name == "healthy-h100-mixed-slots")
    assert judge(directory, Damage(Place("link", "/sys/bus/pci/devices/0000:43:00.0"), failure)) == []


@pytest.mark.parametrize("path", ["/sys/fs/cgroup", "/sys/fs/cgroup/system.slice", "/etc/systemd/system"])
@pytest.mark.parametrize("failure", ERRNOS)
def test_no_service_is_down_because_it_cannot_be_looked_for(path: str, failure: str) -> None:
    assert judge(DGX, Damage(Place("names", path), failure)) == []


@pytest.mark.parametrize(
    ("directory", "failure"),
    [*((DGX, failure) for failure in ERRNOS), *((directory, "EMFILE") for directory in WITH_PORTS)],
    ids=lambda value: value.name if isinstance(value, Path) else value,
)
def test_no_port_is_missing_because_they_cannot_be_listed(directory: Path, failure: str) -> None:
    assert judge(directory, Damage(Place("names", "/sys/class/infiniband"), failure)) == []

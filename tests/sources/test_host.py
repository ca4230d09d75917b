from __future__ import annotations

import errno

import pytest

from nodeguard.model.target import NODE
from nodeguard.sources.host import HostSource, driver_version
from tests.sources.fake_machine import FakeMachine, ThisMachine, by_target

PROPRIETARY = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\n"
    "GCC version:  gcc version 11.4.0 (Ubuntu 11.4.0-1ubuntu1~22.04)\n"
)
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  "
    "(dvs-builder@U22-I3-AF01-01-1)  Tue Sep 23 09:55:41 UTC 2025\nGCC version:  gcc version 12.3.0\n"
)
FILES = {
    "/sys/class/dmi/id/product_name": "DGXH100\n",
    "/sys/class/dmi/id/sys_vendor": "NVIDIA\n",
    "/sys/class/dmi/id/chassis_asset_tag": "\n",
    "/proc/sys/kernel/osrelease": "6.8.0-1013-nvidia\n",
    "/proc/uptime": "123456.78 9876543.21\n",
    "/proc/driver/nvidia/version": OPEN,
    "/sys/module/nvidia/initstate": "live\n",
}


def test_a_healthy_host() -> None:
    observation = by_target(HostSource(), FakeMachine(FILES))[NODE]
    assert observation.signals == {
        "host.product_name": "DGXH100",
        "host.sys_vendor": "NVIDIA",
        "host.kernel": "6.8.0-1013-nvidia",
        "host.uptime": 123456.78,
        "driver.loaded": True,
        "driver.version": "580.95.05",
        "driver.module_state": "live",
    }
    assert observation.unreadable == {}


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (PROPRIETARY, "535.129.03"),
        (OPEN, "580.95.05"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  570.86  Release Build\n", "570.86"),
    ],
)
def test_driver_version_of_both_kernel_modules(text: str, version: str) -> None:
    assert driver_version(text) == version


def test_machine_without_driver_files_has_no_driver_version() -> None:
    files = {path: text for path, text in FILES.items() if "nvidia" not in path}
    observation = by_target(HostSource(), FakeMachine(files))[NODE]
    assert observation.signals["driver.loaded"] is False
    assert "driver.version" not in observation.signals.keys() | observation.unreadable.keys()


def test_module_that_is_being_loaded_counts_as_loaded() -> None:
    observation = by_target(HostSource(), FakeMachine({"/sys/module/nvidia/initstate": "coming\n"}))[NODE]
    assert observation.signals == {"driver.loaded": True, "driver.module_state": "coming"}


def test_unreadable_driver_state_is_unread() -> None:
    errors = {"/proc/driver/nvidia/version": errno.EACCES}
    observation = by_target(HostSource(), FakeMachine(errors=errors))[NODE]
    assert observation.signals == {}
    assert observation.unreadable.keys() == {"driver.loaded", "driver.version"}
    beside = FakeMachine({"/sys/module/nvidia/initstate": "live"}, errors=errors)
    assert by_target(HostSource(), beside)[NODE].signals["driver.loaded"] is True


def test_invalid_value_affects_only_its_own_signal() -> None:
    garbage = {
        "/proc/uptime": "soon\n",
        "/sys/module/nvidia/initstate": "odd\n",
        "/proc/driver/nvidia/version": "TempVersion\n",
    }
    observation = by_target(HostSource(), FakeMachine({**FILES, **garbage}))[NODE]
    assert observation.unreadable.keys() == {"host.uptime", "driver.module_state", "driver.version"}
    assert observation.unreadable["host.uptime"] == "/proc/uptime reads 'soon'"
    assert observation.signals["driver.loaded"] is True


def test_this_machine() -> None:
    observation = by_target(HostSource(), ThisMachine())[NODE]
    assert observation.signals["host.kernel"]
    assert float(observation.signals["host.uptime"]) > 0

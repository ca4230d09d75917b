from __future__ import annotations

import errno

import pytest

from nodeguard.model.target import NODE
from nodeguard.sources.readings import ObservationDraft
from nodeguard.sources.transceiver import read_transceiver
from tests.sources.fake_machine import FakeMachine

DEVICE = "/sys/class/infiniband/mlx5_0/device"
SENSORS = f"{DEVICE}/hwmon/hwmon5"


def read(machine: FakeMachine, refused: dict[str, str] | None = None) -> ObservationDraft:
    draft = ObservationDraft(machine, "infiniband", NODE)
    read_transceiver(draft, DEVICE, {} if refused is None else refused)
    return draft


def machine(label: str, temperature: str = "54125", limit: str = "80000") -> FakeMachine:
    """An adapter with a sensor of its chip and one with this label."""
    files = {"temp1_label": "asic", "temp1_input": "61000", "temp1_crit": "105000"}
    files |= {"temp2_label": label, "temp2_input": temperature, "temp2_crit": limit, "name": "mlx5"}
    return FakeMachine({f"{SENSORS}/{name}": f"{text}\n" for name, text in files.items()})


@pytest.mark.parametrize("label", ["Module0", "sensor64"])
def test_a_transceiver_has_a_temperature_and_a_limit(label: str) -> None:
    expected = {"port.module.temperature": 54.125, "port.module.temperature_limit": 80.0}
    assert read(machine(label)).signals == expected


@pytest.mark.parametrize("label", ["sensor2", "platform"])
def test_another_sensor_is_no_transceiver(label: str) -> None:
    assert read(machine(label)).build().signals == {}


def test_an_adapter_without_sensors_has_no_signal() -> None:
    assert (read(FakeMachine({})).signals, read(FakeMachine({})).unread) == ({}, {})


def test_a_limit_of_zero_is_none_and_an_implausible_temperature_is_unread() -> None:
    draft = read(machine("Module0", "4294967295", "0"))
    assert draft.signals == {}
    assert list(draft.unread) == ["port.module.temperature"]


def test_an_implausible_limit_is_unread() -> None:
    draft = read(machine("Module0", limit="255"))
    assert (list(draft.signals), list(draft.unread)) == (
        ["port.module.temperature"],
        ["port.module.temperature_limit"],
    )


def test_a_sensor_that_failed_is_not_read_again() -> None:
    fake, refused = machine("Module0"), dict[str, str]()
    fake.errors[f"{SENSORS}/temp2_input"] = errno.EIO
    assert read(fake, refused).unread["port.module.temperature"] == "Input/output error (EIO)"
    fake.errors.clear()
    assert read(fake, refused).unread["port.module.temperature"] == "refused once (EIO): not read again"

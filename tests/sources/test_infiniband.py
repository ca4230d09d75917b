from __future__ import annotations

import errno
from typing import Any

import pytest

from nodeguard.model.target import NODE
from nodeguard.sources.infiniband import InfinibandSource, is_up, parse_rate
from nodeguard.sources.rdma_counters import EFA, MLX5, PMA
from tests.sources.fake_machine import FakeMachine, ThisMachine, by_target

CLASS = "/sys/class/infiniband"
PCI = {"mlx5_0": "0000:9c:00.0", "mlx5_1": "0000:9d:00.0", "rdmap16s0": "0000:10:00.0"}


def files_below(prefix: str, texts: dict[str, str]) -> dict[str, str]:
    return {f"{prefix}/{name}": f"{text}\n" for name, text in texts.items()}


def device(name: str, port: dict[str, str], **own: str) -> dict[str, str]:
    """Files of a device with one port, as mlx5 on Linux 6.8 writes them."""
    adapter = {
        "node_guid": "a088:c203:0041:5a5e",
        "sys_image_guid": "a088:c203:0041:5a5e",
        "hca_type": "MT4129",
        "board_id": "MT_0000000838",
        "fw_ver": "28.39.1002",
        "device/vendor": "0x15b3",
        **own,
    }
    return files_below(f"{CLASS}/{name}", adapter) | files_below(f"{CLASS}/{name}/ports/1", port)


INFINIBAND = {
    "link_layer": "InfiniBand",
    "state": "4: ACTIVE",
    "phys_state": "5: LinkUp",
    "rate": "400 Gb/sec (4X NDR)",
    "lid": "0x1a",
    "sm_lid": "0x1",
    "counters/symbol_error": "0",
    "counters/link_downed": "255",
    "counters/VL15_dropped": "3",
    "counters/port_xmit_data": "18446744073709551614",
    "counters/unheard_of": "7",
    "hw_counters/local_ack_timeout_err": "12",
    "hw_counters/lifespan": "10",
}
ETHERNET = {
    **{name: text for name, text in INFINIBAND.items() if not name.endswith("lid")},
    "link_layer": "Ethernet",
    "rate": "100 Gb/sec (4X EDR)",
}


def _machine(files: dict[str, str], **more: Any) -> FakeMachine:
    there = {path.split("/")[4] for path in files if path.startswith(f"{CLASS}/")}
    links = {f"{CLASS}/{name}/device": f"../../../{PCI[name]}" for name in there}
    return FakeMachine(files, links=links, **more)


def _infiniband(**changed: str) -> FakeMachine:
    return _machine(device("mlx5_0", {**INFINIBAND, **changed}))


def test_an_infiniband_port() -> None:
    observations = by_target(
        InfinibandSource(), _machine(device("mlx5_0", INFINIBAND, **{"device/net/ib0/mtu": "4092"}))
    )
    port = observations["port/mlx5_0/1"]
    assert port.signals == {
        "port.link_layer": "InfiniBand",
        "port.state": "ACTIVE",
        "port.phys_state": "LinkUp",
        "port.up": True,
        "port.rate": 400.0,
        "port.lid": 26,
        "port.sm_lid": 1,
        "port.device_type": "MT4129",
        "port.board": "MT_0000000838",
        "port.firmware": "28.39.1002",
        "port.pci": "0000:9c:00.0",
        "port.netdev": "ib0",
        "port.symbol_error": 0,
        "port.link_downed": 255,
        "port.vl15_dropped": 3,
        "port.port_xmit_data": 2**64 - 2,
        "port.local_ack_timeout_err": 12,
    }
    assert port.unreadable == {}
    assert port.component is not None
    assert (port.component.id, port.component.model) == ("a088:c203:0041:5a5e", "MT4129")


def test_counters_declare_their_maximum() -> None:
    bits = {name: signal.bits for name, signal in InfinibandSource.signals.items() if signal.bits}
    assert (len(PMA), len(MLX5), len(EFA)) == (21, 30, 28)
    assert bits["port.symbol_error"] == bits["port.vl15_dropped"] == 16
    assert bits["port.link_downed"] == bits["port.link_error_recovery"] == 8
    assert bits["port.local_link_integrity_errors"] == 4
    assert bits["port.port_xmit_wait"] == 32
    assert "port.port_xmit_data" not in bits


def test_a_roce_port_counts_lost_carriers() -> None:
    files = device("mlx5_1", ETHERNET, **{"device/net/eth2/mtu": "9000"})
    files |= {"/sys/class/net/eth2/carrier_down_count": "3\n", "/sys/class/net/eth2/carrier_changes": "7\n"}
    port = by_target(InfinibandSource(), _machine(files))["port/mlx5_1/1"]
    assert port.signals["port.link_layer"] == "Ethernet"
    assert port.signals["port.carrier_losses"] == 3
    assert "port.mtu" not in port.signals
    files["/sys/class/net/eth2/mtu"] = "4200\n"
    assert by_target(InfinibandSource(), _machine(files))["port/mlx5_1/1"].signals["port.mtu"] == 4200
    assert port.signals["port.netdev"] == "eth2"
    assert "port.lid" not in port.signals


@pytest.mark.parametrize("version", ["Unknown", "N/A"])
def test_a_word_for_none_is_no_version_of_the_firmware(version: str) -> None:
    files = device("mlx5_1", INFINIBAND, fw_ver=version)
    port = by_target(InfinibandSource(), _machine(files))["port/mlx5_1/1"]
    assert "port.firmware" in port.unreadable


@pytest.mark.parametrize("mtu", ["0", "63", "65535", str((1 << 63) - 1)])
def test_an_implausible_mtu_is_unread(mtu: str) -> None:
    files = device("mlx5_1", ETHERNET, **{"device/net/eth2/mtu": "9000"})
    files["/sys/class/net/eth2/mtu"] = f"{mtu}\n"
    port = by_target(InfinibandSource(), _machine(files))["port/mlx5_1/1"]
    assert "port.mtu" in port.unreadable


def test_a_roce_port_of_an_old_kernel_counts_changes() -> None:
    files = device("mlx5_1", ETHERNET, **{"device/net/eth2/mtu": "9000"})
    files["/sys/class/net/eth2/carrier_changes"] = "7\n"
    assert by_target(InfinibandSource(), _machine(files))["port/mlx5_1/1"].signals["port.carrier_losses"] == 3


def test_a_refused_carrier_count_is_not_replaced_by_another() -> None:
    machine = _machine(device("mlx5_1", ETHERNET, **{"device/net/eth2/mtu": "9000"}))
    machine.files["/sys/class/net/eth2/carrier_changes"] = "7\n"
    machine.errors["/sys/class/net/eth2/carrier_down_count"] = errno.EIO
    assert "port.carrier_losses" in by_target(InfinibandSource(), machine)["port/mlx5_1/1"].unreadable


def efa(**own: str) -> dict[str, str]:
    port = {
        "link_layer": "Unknown",
        "state": "4: ACTIVE",
        "phys_state": "5: LinkUp",
        "rate": "100 Gb/sec (4X EDR)",
        "hw_counters/rx_drops": "4",
    }
    adapter = {
        "node_guid": "0000:0000:0000:0000",
        "fw_ver": "0.0.0.0",
        "device/vendor": "0x1d0f",
        "hw_counters/keep_alive_rcvd": "900",
    }
    files = device("rdmap16s0", port, **{**adapter, **own})
    return {path: text for path, text in files.items() if not path.endswith(("hca_type", "board_id"))}


def test_hard_coded_values_of_efa_are_ignored() -> None:
    port = by_target(InfinibandSource(), _machine(efa()))["port/rdmap16s0/1"]
    assert port.signals == {
        "port.link_layer": "EFA",
        "port.pci": "0000:10:00.0",
        "efa.rx_drops": 4,
        "efa.keep_alive_rcvd": 900,
    }
    assert port.component is None


def test_efa_is_identified_by_driver_or_name_if_the_vendor_is_unread() -> None:
    files = {path: text for path, text in efa().items() if not path.endswith("vendor")}
    assert (
        by_target(InfinibandSource(), _machine(files))["port/rdmap16s0/1"].signals["port.link_layer"] == "EFA"
    )
    machine = _machine(files)
    machine.links[f"{CLASS}/rdmap16s0/device/driver"] = "../../bus/pci/drivers/mlx5_core"
    assert "efa.rx_drops" not in by_target(InfinibandSource(), machine)["port/rdmap16s0/1"].signals


def test_device_of_another_vendor_with_an_efa_name_is_not_efa() -> None:
    files = {path.replace("mlx5_0", "rdmap16s0"): text for path, text in device("mlx5_0", INFINIBAND).items()}
    assert by_target(InfinibandSource(), _machine(files))["port/rdmap16s0/1"].signals["port.up"] is True


@pytest.mark.parametrize(
    ("state", "phys_state", "up"),
    [
        ("ACTIVE", "LinkUp", True),
        ("DOWN", "Polling", False),
        ("INIT", "LinkUp", False),
        ("ACTIVE", "LinkErrorRecovery", False),
        (None, "Polling", False),
        ("DOWN", None, False),
        (None, "LinkUp", None),
        ("ACTIVE", None, None),
        (None, None, None),
    ],
)
def test_port_is_up_by_state_and_physical_state(
    state: str | None, phys_state: str | None, up: bool | None
) -> None:
    assert is_up(state, phys_state) is up


def test_a_port_that_is_down_has_no_rate() -> None:
    machine = _infiniband(state="1: DOWN", phys_state="2: Polling", rate="2.5 Gb/sec (1X SDR)")
    signals = by_target(InfinibandSource(), machine)["port/mlx5_0/1"].signals
    expected = ("DOWN", "Polling", False)
    assert (signals["port.state"], signals["port.phys_state"], signals["port.up"]) == expected
    assert "port.rate" not in signals


@pytest.mark.parametrize(
    ("text", "gbps"),
    [
        ("400 Gb/sec (4X NDR)", 400.0),
        ("200 Gb/sec (2X NDR)", 200.0),
        ("5 Gb/sec (1X DDR)", 5.0),
        ("56 Gb/sec (4X FDR)", 56.0),
        ("10 Gb/sec (1X QDR)", 10.0),
        ("10 Gb/sec (4X SDR)", None),
        ("10 Gb/sec (4X)", None),
        ("2.5 Gb/sec (1X SDR)", None),
        ("30 Gb/sec (12X SDR)", None),
    ],
)
def test_rate_is_parsed_in_gigabits_per_second(text: str, gbps: float | None) -> None:
    assert parse_rate(text) == gbps


@pytest.mark.parametrize(
    "text", ["", "fast", "400 Gb/sec", "400 Gb/sec (NDR)", "400 Gb/sec (4", "nan Gb/sec (4X NDR)"]
)
def test_invalid_rate_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_rate(text)


def test_default_rate_of_old_kernels_is_unknown() -> None:
    port = by_target(InfinibandSource(), _infiniband(rate="10 Gb/sec (4X SDR)"))["port/mlx5_0/1"]
    assert "port.rate" not in port.signals
    assert "'10 Gb/sec (4X SDR)'" in port.unreadable["port.rate"]
    assert port.signals["port.up"] is True


def test_old_kernels_without_counters() -> None:
    port = by_target(InfinibandSource(), _infiniband(**{"counters/symbol_error": "N/A (no PMA)"}))[
        "port/mlx5_0/1"
    ]
    assert "port.symbol_error" not in port.signals.keys() | port.unreadable.keys()


def test_invalid_value_affects_only_its_own_signal() -> None:
    garbage = {"phys_state": "9: <unknown>", "lid": "0xzz", "counters/link_downed": "many"}
    port = by_target(InfinibandSource(), _infiniband(**garbage))["port/mlx5_0/1"]
    assert port.unreadable.keys() == {"port.phys_state", "port.up", "port.lid", "port.link_downed"}
    assert port.signals["port.rate"] == 400.0


def test_invalid_guid_identifies_no_component() -> None:
    files = device("mlx5_0", INFINIBAND, node_guid="none", hca_type="")
    port = by_target(InfinibandSource(), _machine(files))["port/mlx5_0/1"]
    assert port.component is None
    assert "port.device_type" in port.unreadable


@pytest.mark.parametrize("word", ["Unknown", "N/A", "[N/A]", "none"])
def test_a_word_for_none_is_no_make(word: str) -> None:
    files = device("mlx5_0", INFINIBAND, hca_type=word, board_id=word)
    port = by_target(InfinibandSource(), _machine(files))["port/mlx5_0/1"]
    assert {"port.device_type", "port.board"} <= port.unreadable.keys()


@pytest.mark.parametrize("file", ["hca_type", "board_id", "ports/1/link_layer", "ports/1/state"])
def test_missing_mandatory_attribute_is_unread(file: str) -> None:
    machine = _infiniband()
    machine.remove(f"{CLASS}/mlx5_0/{file}")
    assert any(
        "does not exist" in reason
        for reason in by_target(InfinibandSource(), machine)["port/mlx5_0/1"].unreadable.values()
    )


@pytest.mark.parametrize("place", [CLASS, f"{CLASS}/mlx5_0/ports"])
@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE])
def test_ports_that_could_not_be_listed_are_not_counted(place: str, code: int) -> None:
    machine = _infiniband()
    machine.errors[place] = code
    node = by_target(InfinibandSource(), machine)[NODE]
    assert node.unlisted.keys() == {"port"}


@pytest.mark.parametrize("value", [2**64 - 1, 2**32 - 1])
def test_counter_of_all_ones_is_unread(value: int) -> None:
    port = by_target(InfinibandSource(), _infiniband(**{"hw_counters/rx_icrc_encapsulated": str(value)}))[
        "port/mlx5_0/1"
    ]
    assert "port.rx_icrc_encapsulated" in port.unreadable


@pytest.mark.parametrize("code", ["EINVAL", "EIO", "EACCES", "EPERM", "EOPNOTSUPP"])
def test_refused_counters_of_a_device_are_read_once(code: str) -> None:
    source, machine = InfinibandSource(), _infiniband()
    machine.errors[f"{CLASS}/mlx5_0/ports/1/counters/VL15_dropped"] = getattr(errno, code)
    for _ in range(3):
        port = by_target(source, machine)["port/mlx5_0/1"]
        refused = {
            name
            for name, reason in port.unreadable.items()
            if reason == f"refused once ({code}): not read again"
        }
        assert refused == {
            "port.vl15_dropped",
            "port.link_downed",
            "port.symbol_error",
            "port.port_xmit_data",
        }
        # Virtual functions refuse the port's counters and answer for their queue pairs'.
        assert port.signals["port.local_ack_timeout_err"] == 12
    assert len([path for path in machine.asked if "/counters/" in path]) == 1


def test_refusal_applies_to_all_ports_of_one_device_only() -> None:
    second = files_below(f"{CLASS}/mlx5_0/ports/2", INFINIBAND)
    machine = _machine(device("mlx5_0", INFINIBAND) | second | device("mlx5_1", INFINIBAND))
    machine.errors[f"{CLASS}/mlx5_0/ports/1/counters/symbol_error"] = errno.EINVAL
    observations = by_target(InfinibandSource(), machine)
    assert observations.keys() == {NODE, "port/mlx5_0/1", "port/mlx5_0/2", "port/mlx5_1/1"}
    assert "port.link_downed" in observations["port/mlx5_0/2"].unreadable
    assert observations["port/mlx5_1/1"].unreadable == {}


@pytest.mark.parametrize("change", ["guid", "pci", "gone"])
def test_a_refusal_is_forgotten_with_the_device(change: str) -> None:
    source, machine = InfinibandSource(), _infiniband()
    refused = f"{CLASS}/mlx5_0/ports/1/counters/symbol_error"
    machine.errors[refused] = errno.EINVAL
    by_target(source, machine)
    del machine.errors[refused]
    if change == "guid":
        machine.files[f"{CLASS}/mlx5_0/node_guid"] = "a088:c203:0041:0001\n"
    elif change == "pci":
        machine.links[f"{CLASS}/mlx5_0/device"] = "../../../0000:aa:00.0"
    else:
        files = dict(machine.files)
        machine.remove(CLASS)
        assert by_target(source, machine)[NODE].status == "absent"
        machine.files = files
    assert by_target(source, machine)["port/mlx5_0/1"].unreadable == {}


def test_unused_counters_are_not_read() -> None:
    machine, source = _infiniband(), InfinibandSource()
    every = by_target(source, machine)["port/mlx5_0/1"].signals
    source.select_counters({"port.link_downed", "port.local_ack_timeout_err"})
    spared = by_target(source, machine)["port/mlx5_0/1"].signals
    assert every.keys() - spared.keys() == {"port.symbol_error", "port.vl15_dropped", "port.port_xmit_data"}


def test_counter_with_another_error_is_read_again() -> None:
    source, machine = InfinibandSource(), _infiniband()
    counter = f"{CLASS}/mlx5_0/ports/1/counters/symbol_error"
    machine.errors[counter] = errno.ETIMEDOUT
    port = by_target(source, machine)["port/mlx5_0/1"]
    assert port.unreadable == {"port.symbol_error": "Connection timed out (ETIMEDOUT)"}
    del machine.errors[counter]
    assert by_target(source, machine)["port/mlx5_0/1"].signals["port.symbol_error"] == 0


@pytest.mark.parametrize("directories", [[], [CLASS]])
def test_machine_without_devices_has_no_error(directories: list[str]) -> None:
    observations = by_target(InfinibandSource(), FakeMachine(directories=directories))
    assert observations.keys() == {NODE}
    assert observations[NODE].status == "absent"
    assert CLASS in observations[NODE].detail


def test_device_removed_during_the_read_is_omitted() -> None:
    machine = _infiniband()
    machine.errors = {f"{CLASS}/mlx5_0/{name}": errno.ENODEV for name in ("node_guid", "fw_ver", "ports")}
    assert by_target(InfinibandSource(), machine).keys() == {NODE}


def test_no_file_is_read_twice_in_a_round() -> None:
    for machine in (_infiniband(), _machine(efa())):
        by_target(InfinibandSource(), machine)
        assert len(machine.asked) == len(set(machine.asked))


def test_this_machine() -> None:
    assert by_target(InfinibandSource(), ThisMachine())[NODE].status in {"read", "absent"}

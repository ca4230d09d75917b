from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeguard.derive.derive import DerivedReadings, PlatformHints, derive, match_platform, overdue_readings
from nodeguard.derive.latest_readings import LatestReadings
from nodeguard.derive.state import DeriveState, plan_derivation
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Event, Observation, Reading
from nodeguard.model.platform import Platform, PlatformMatch
from nodeguard.model.signal import Scalar
from nodeguard.model.target import NODE
from nodeguard.pipeline.signal_registry import all_signals
from tests.derive.readings import GPUS, machine, observe, readings, tables, xid

WANTS = plan_derivation(tables(), all_signals(tables().patterns))


class Node:
    """A machine, derived round by round."""

    def __init__(self) -> None:
        self.state = DeriveState()

    def round(
        self, at: float, *observations: Observation, boot: str = "boot", empty: tuple[str, ...] = ()
    ) -> DerivedReadings:
        instant = Instant(1_000_000 + at, at, boot)
        self.state, derived = derive(
            WANTS, self.state, readings(*observations, at=at, empty=empty), instant, PlatformHints()
        )
        return derived

    def signals(
        self, at: float, *observations: Observation, target: str = NODE, boot: str = "boot"
    ) -> dict[str, Scalar]:
        """Return the derived signals of one target."""
        item = next(
            (
                observation
                for observation in self.round(at, *observations, boot=boot).readings[-1].observations
                if observation.target == target
            ),
            None,
        )
        return item.signals if item else {}


def memory(total: int) -> Observation:
    return observe("memory", NODE, {"memory.total": total})


def test_result_has_the_readings_and_one_derived_reading() -> None:
    derived = Node().round(0, memory(64), observe("host", NODE, {"host.uptime": 9000.0}))
    assert [reading.source for reading in derived.readings] == ["memory", "host", "derived"]
    assert derived.readings[0].observations == (memory(64),)


def test_earlier_readings_of_a_source_are_remembered() -> None:
    node = Node()
    node.round(0, observe("host", NODE, {"host.uptime": 90_000.0, "driver.module_state": "coming"}))
    assert node.signals(10, memory(64))["driver.changing"] is True
    assert (
        node.signals(20, observe("host", NODE, {"host.uptime": 90_000.0, "driver.module_state": "live"}))[
            "driver.changing"
        ]
        is False
    )


def test_inventory_value_is_the_best_reading_so_far() -> None:
    node = Node()
    messages = [
        node.signals(at, memory(total))["memory.total~inventory"]
        for at, total in ((0, 64), (10, 48), (20, 96), (30, 64))
    ]
    assert messages == [64, 64, 64, 96]


def test_only_the_inventory_survives_a_reboot() -> None:
    node = Node()
    node.round(
        1000,
        memory(64),
        Observation("kmsg", GPUS[0], events=(xid(48, at=990),)),
        observe("host", NODE, {"host.uptime": 1000.0}),
    )
    assert node.signals(30, memory(48), boot="next")["memory.total~inventory"] == 64
    assert (node.state.lines, node.state.xids, set(node.state.latest)) == ({}, {}, {"memory"})


def test_event_is_reported_in_one_round_only() -> None:
    node = Node()
    first = node.round(0, Observation("kmsg", GPUS[0], events=(xid(79, at=-5),)))
    assert [event.signal for event in first.readings[0].observations[0].events] == ["gpu.xid.lost"]
    assert node.round(10, memory(64)).readings[0].observations[0].events == ()
    assert all(
        not observation.events
        for reading in node.state.latest.values()
        for observation in reading.observations
    )


def test_driver_is_changing_for_ten_minutes_after_its_load() -> None:
    node = Node()
    log = Observation("kmsg", NODE, events=(Event("driver.load", 50_000),))
    assert (
        node.signals(50_001, log, observe("host", NODE, {"host.uptime": 50_001.0}))["driver.changing"] is True
    )
    assert node.signals(50_599, memory(64))["driver.changing"] is True
    assert node.signals(50_600, memory(64))["driver.changing"] is False


def test_log_event_of_an_address_belongs_to_the_device_there() -> None:
    node = Node()
    node.round(0, observe("infiniband", "port/mlx5_0/1", {"port.pci": "0000:9c:00.0", "port.up": True}))
    log = Observation("kmsg", "pci/0000:9c:00.0", events=(Event("nic.firmware_dead", 5),))
    assert [observation.target for observation in node.round(10, log).readings[0].observations] == [
        "port/mlx5_0/1"
    ]


def test_disk_lost_in_the_round_of_its_unmount_is_a_disk_of_the_host() -> None:
    node = Node()
    node.round(0, observe("filesystem", "fs:/raid", {"fs.device": "/dev/nvme1n1"}))
    log = Observation("kmsg", "disk/nvme1", events=(Event("disk.lost", 5, fields={"dev": "nvme1"}),))
    lost = node.round(10, log, empty=("filesystem",))
    later = node.round(20, log)
    assert [
        event.signal
        for derived in (lost, later)
        for reading in derived.readings
        for observation in reading.observations
        for event in observation.events
    ] == ["disk.lost", "volume.lost"]


def test_file_system_has_the_target_of_its_disk() -> None:
    mount = observe("filesystem", "fs:/raid", {"fs.device": "/dev/nvme1n1", "fs.read_only": False})
    assert Node().signals(0, mount, target="fs:/raid") == {
        "fs.writable": True,
        "fs.disk": "disk/nvme1",
        "fs.writable~inventory": 1.0,
    }


def test_recovery_action_none_in_a_reading_is_a_sign() -> None:
    derived = Node().round(
        10,
        observe("nvml", GPUS[0], {"gpu.recovery_action": 0}),
        observe("nvml", GPUS[1], {"gpu.recovery_action": 1}),
    )
    signs = {
        observation.target: [event.signal for event in observation.events]
        for observation in derived.readings[-1].observations
        if observation.events
    }
    assert signs == {GPUS[0]: ["gpu.recovery_none"]}


def test_recovery_sign_is_five_minutes_older_than_its_reading() -> None:
    node, none = Node(), observe("nvml", GPUS[0], {"gpu.recovery_action": 0})
    slow = Reading("nvml", 20.0, (none,), duration=19.0)
    node.state, derived = derive(WANTS, node.state, [slow], Instant(1_000_020, 20.0, "boot"), PlatformHints())
    [[sign]] = [observation.events for observation in derived.readings[-1].observations if observation.events]
    assert sign.at == 1.0 - 300.0
    later = node.round(30, observe("kmsg", GPUS[0]))
    assert not any(observation.events for observation in later.readings[-1].observations)


PRESENT: dict[str, Scalar] = {"pci.present": True}


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        ([observe("nvml", GPUS[0], {"a": 1}), observe("nvml", GPUS[1], {"a": 1})], 2),
        (
            [
                observe("nvml", GPUS[0], {"a": 1}),
                observe("pci", GPUS[0], PRESENT),
                observe("pci", GPUS[1], PRESENT),
            ],
            2,
        ),
        ([observe("pci", GPUS[0], PRESENT), observe("pci", GPUS[1], {**PRESENT, "pci.virtual": True})], 1),
        ([observe("pci", NODE, {"gpu.pci_count": 0}), Observation("nvml", NODE, "failed", detail="x")], 0),
        ([observe("nvml", GPUS[0], {"a": 1}), observe("pci", GPUS[0], {"pci.present": False})], 1),
        ([Observation("nvml", NODE, "failed", detail="x")], None),
        ([memory(64)], None),
    ],
)
def test_gpus_of_all_enumerations_are_counted(rows: list[Observation], count: int | None) -> None:
    assert Node().signals(0, *rows).get("gpu.count") == count


rounds = st.lists(
    st.tuples(
        st.sampled_from(["memory", "nvml", "pci"]),
        st.sampled_from([NODE, GPUS[0], GPUS[1]]),
        st.dictionaries(
            st.sampled_from(["memory.total", "gpu.recovery_action", "pci.driver", "gpu.nvlink.active"]),
            st.integers(0, 9),
        ),
        st.lists(st.sampled_from([45, 48, 63, 79, 154]), max_size=2),
    ),
    max_size=10,
)


@settings(deadline=None)
@given(played=rounds)
def test_same_input_and_state_give_the_same_result(
    played: list[tuple[str, str, dict[str, Scalar], list[int]]],
) -> None:
    remaining = lent = DeriveState()
    for number, (source, target, signals, codes) in enumerate(played):
        at = 100.0 + 10 * number
        events = tuple(xid(code, at=at - 1) for code in codes)
        item = Reading(source, at, (Observation(source, target, signals=signals, events=events),))
        instant = Instant(at, at, f"boot {number // 6}")
        lent = msgspec.msgpack.decode(msgspec.msgpack.encode(lent), type=DeriveState)
        (remaining, derived), (lent, again) = (
            derive(WANTS, state, [item], instant, PlatformHints()) for state in (remaining, lent)
        )
        assert (remaining, derived.readings, derived.platform) == (lent, again.readings, again.platform)


def platform_matching(name: str, *match: PlatformMatch) -> Platform:
    return Platform(name, name, match, {}, "")


PLATFORMS = (
    platform_matching("dgx", PlatformMatch(product_name="DGXH100", sys_vendor="NVIDIA")),
    platform_matching(
        "cloud", PlatformMatch(instance_type="p5.48xlarge"), PlatformMatch(product_name="p5.48xlarge")
    ),
    platform_matching("board", PlatformMatch(gpu="NVIDIA H200", nvswitches=1)),
    platform_matching("nothing", PlatformMatch()),
)


def node(product: str = "", *, names: tuple[str, ...] = (), switches: int | None = None) -> LatestReadings:
    rows = [observe("host", "node", {"host.product_name": product, "host.sys_vendor": "NVIDIA"})]
    rows += [observe("nvml", gpu, {"gpu.name": name}) for gpu, name in zip(GPUS, names, strict=False)]
    if switches is not None:
        rows.append(observe("pci", "node", {"nvswitch.pci_count": switches}))
    return machine(*rows)


@pytest.mark.parametrize(
    ("latest", "instance", "name"),
    [
        (node("DGXH100"), "", "dgx"),
        (node("DGXH100 rev. B"), "", None),
        (node(), "p5.48xlarge", "cloud"),
        (node("p5.48xlarge"), "", "cloud"),
        (node(), "p5", None),
        (node(names=("NVIDIA H200",) * 4, switches=4), "", "board"),
        (node(names=("NVIDIA H200",) * 4, switches=3), "", "board"),
        (node(names=("NVIDIA H200",) * 4, switches=0), "", None),
        (node(names=("NVIDIA H200",) * 4), "", None),
        (node(names=("NVIDIA GH200",) * 4, switches=4), "", None),
        (node(names=("NVIDIA H200", "NVIDIA H100"), switches=4), "", None),
        (node(), "", None),
    ],
)
def test_platform_matches_only_exact_names(latest: LatestReadings, instance: str, name: str | None) -> None:
    result = match_platform(latest, PLATFORMS, "", instance, "")
    assert (result.id if result else None) == name


def test_configured_platform_takes_precedence() -> None:
    result = match_platform(node("DGXH100"), PLATFORMS, "board", "", "")
    assert result is not None
    assert result.id == "board"
    assert match_platform(node("DGXH100"), PLATFORMS, "unheard-of", "", "") is None


def test_fault_does_not_change_the_platform() -> None:
    result = [match_platform(node(product), PLATFORMS, "", "", "board") for product in ("", "DGXH100")]
    assert [item.id if item else None for item in result] == ["board", "dgx"]


def test_platform_stays_while_its_identifying_signals_are_unread() -> None:
    names = [observe("nvml", gpu, {"gpu.name": "NVIDIA H200"}) for gpu in GPUS]
    switches = observe("pci", "node", {"nvswitch.pci_count": 4})
    host = Observation("host", "node", unreadable={"host.product_name": "refused"})
    latest = machine(*names, switches, host)
    result = [match_platform(latest, PLATFORMS, "", "", before) for before in ("dgx", "")]
    assert [item.id if item else None for item in result] == ["dgx", "board"]


def test_built_in_platforms_have_distinct_match_rows() -> None:
    rows = [match for platform in tables().platforms for match in platform.match]
    assert len(rows) == len(set(rows))


@pytest.mark.parametrize(("now", "late"), [(30.0, []), (41.0, ["not read for 41 s"])])
def test_reading_is_valid_for_its_declared_time(now: float, late: list[str]) -> None:
    latest = [Reading("nvml", 0.0, (Observation("nvml", "node"),), valid_for=30.0), Reading("pci", 0.0, ())]
    result = overdue_readings(latest, now)
    assert [observation.detail for reading in result for observation in reading.observations] == late
    assert all(reading.source == "nvml" and not reading.complete and reading.at == now for reading in result)
    assert overdue_readings(result, now + 1000) == []

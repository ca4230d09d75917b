from __future__ import annotations

import pytest

from nodeguard.derive.latest_readings import LatestReadings
from nodeguard.derive.presence import DERIVATIONS
from nodeguard.model.observation import Observation
from nodeguard.model.signal import Scalar
from tests.derive.readings import GPUS, derived, machine, observe, unread

READY = observe("nvml", "node", {"nvml.ready": True, "driver.loaded": True})
BOUND: dict[str, Scalar] = {"pci.present": True, "pci.driver": "nvidia", "pci.procfs": True}


def gpus(latest: LatestReadings) -> dict[str, dict[str, Scalar]]:
    """Return the derived signals of GPUs."""
    return {target: signals for target, signals in derived(latest, *DERIVATIONS).items() if target in GPUS}


def on_bus(gpu: str, **signals: Scalar) -> Observation:
    """A GPU as the bus shows it; `driver` is the signal `pci.driver`."""
    return observe("pci", gpu, {**BOUND, **{f"pci.{name}": value for name, value in signals.items()}})


def bound_and_lost(
    *observations: Observation, cut: tuple[str, ...] = ()
) -> dict[str, tuple[Scalar | None, Scalar | None]]:
    """For each GPU, whether it is bound and whether it is lost."""
    return {
        target: (signals.get("gpu.bound"), signals.get("gpu.lost"))
        for target, signals in gpus(machine(*observations, cut=cut)).items()
    }


def test_gpu_in_all_lists_is_present() -> None:
    assert bound_and_lost(READY, on_bus(GPUS[0]), observe("nvml", GPUS[0], {"a": 1})) == {
        GPUS[0]: (True, False)
    }


def test_a_gpu_that_nvml_no_longer_lists_is_lost() -> None:
    result = bound_and_lost(READY, on_bus(GPUS[0]), on_bus(GPUS[1]), observe("nvml", GPUS[0], {"a": 1}))
    assert result == {GPUS[0]: (True, False), GPUS[1]: (True, True)}


def test_lost_gpu_has_the_sources_that_list_it() -> None:
    latest = machine(READY, on_bus(GPUS[0]), on_bus(GPUS[1]), observe("nvml", GPUS[1], {"a": 1}))
    assert gpus(latest)[GPUS[0]]["gpu.seen_by"] == "seen by PCI and procfs, not by NVML"


def test_gpu_absent_from_the_bus_is_lost() -> None:
    assert bound_and_lost(on_bus(GPUS[0], present=False))[GPUS[0]][1] is True


@pytest.mark.parametrize("cut", [(), ("nvml",)])
def test_no_gpu_is_lost_if_nvml_does_not_answer(cut: tuple[str, ...]) -> None:
    silent = observe("nvml", "node", {"nvml.ready": bool(cut), "driver.loaded": True})
    assert bound_and_lost(silent, on_bus(GPUS[0]), cut=cut) == {GPUS[0]: (True, None)}


def nvml_counts(*, hidden: int = 0, refused: int = 0, error: str = "none") -> Observation:
    """NVML that counts GPUs for which it gives no handle."""
    counted: dict[str, Scalar] = {"gpu.handles_hidden": hidden, "gpu.handle_error": error}
    return observe(
        "nvml",
        "node",
        {"nvml.ready": True, **counted, **({"gpu.handles_refused": refused} if refused else {})},
    )


@pytest.mark.parametrize("error", ["GPU_IS_LOST", "GPU_NOT_FOUND"])
def test_gpu_is_lost_when_its_handle_error_means_absence(error: str) -> None:
    assert bound_and_lost(nvml_counts(refused=1, error=error), on_bus(GPUS[0]))[GPUS[0]][1] is True


def test_gpu_hidden_from_this_process_is_neither_lost_nor_refused() -> None:
    assert gpus(machine(nvml_counts(hidden=1), on_bus(GPUS[0]))) == {}


@pytest.mark.parametrize("error", ["INSUFFICIENT_POWER", "UNKNOWN"])
def test_gpu_is_not_lost_after_another_handle_error(error: str) -> None:
    latest = machine(nvml_counts(refused=1, error=error), on_bus(GPUS[0]))
    assert gpus(latest) == {GPUS[0]: {"gpu.refused": error}}


def test_gpus_are_lost_if_more_gpus_are_missing_than_nvml_refuses() -> None:
    listed = [item for gpu in GPUS[2:] for item in (on_bus(gpu), observe("nvml", gpu, {"a": 1}))]
    fifth = observe("nvml", "gpu/0000:0a:00", {"a": 1})
    result = bound_and_lost(nvml_counts(hidden=1), on_bus(GPUS[0]), on_bus(GPUS[1]), *listed, fifth)
    assert [result[gpu][1] for gpu in GPUS] == [True, True, False, False]


@pytest.mark.parametrize(("listed", "is_known"), [(3, True), (2, False), (1, False), (0, False)])
def test_it_is_unknown_whether_gpus_are_lost_that_nvml_omits_at_once(listed: int, is_known: bool) -> None:
    seen = [observe("nvml", gpu, {"a": 1}) for gpu in GPUS[:listed]]
    latest = machine(READY, *map(on_bus, GPUS), *seen)
    node = derived(latest, *DERIVATIONS)["node"]
    assert node["nvml.gpus_listed"] == listed
    assert node["nvml.gpus_omitted"] == (0 if is_known else 4 - listed)
    assert gpus(latest)[GPUS[3]].get("gpu.lost") == (True if is_known else None)
    reasons = unread(latest, *DERIVATIONS).get(GPUS[3], {})
    assert reasons.get("gpu.lost") == (
        None if is_known else f"NVML lists only {listed} of 4 GPUs, without an error"
    )


def test_only_gpu_of_a_node_is_not_lost_because_nvml_lists_none() -> None:
    latest = machine(READY, on_bus(GPUS[0]))
    assert gpus(latest) == {GPUS[0]: {"gpu.bound": True}}
    assert derived(latest, *DERIVATIONS)["node"]["nvml.gpus_omitted"] == 1


def test_gpus_that_nvml_calls_lost_are_lost_together() -> None:
    latest = machine(nvml_counts(refused=4, error="GPU_IS_LOST"), *map(on_bus, GPUS))
    assert [gpus(latest)[gpu]["gpu.lost"] for gpu in GPUS] == [True] * 4
    assert derived(latest, *DERIVATIONS)["node"]["nvml.gpus_omitted"] == 0


@pytest.mark.parametrize(
    "signals",
    [
        {"driver": "vfio-pci", "procfs": False},
        {"driver": "nvgrace_gpu_vfio_pci", "procfs": False},
        {"driver": "pci-stub"},
        {"driver": "pciback"},
        {"virtual": True},
    ],
)
def test_gpu_passed_to_a_virtual_machine_is_not_evaluated(signals: dict[str, Scalar]) -> None:
    assert bound_and_lost(READY, on_bus(GPUS[0], **signals)) == {}


def test_gpus_hidden_by_a_container_are_not_missing() -> None:
    result = bound_and_lost(
        READY, on_bus(GPUS[0]), on_bus(GPUS[1], procfs=False), observe("nvml", GPUS[0], {"a": 1})
    )
    assert result == {GPUS[0]: (True, False)}


def test_a_gpu_without_its_driver_is_not_bound() -> None:
    nouveau = {**BOUND, "pci.driver": "nouveau", "pci.procfs": False}
    result = bound_and_lost(
        READY, on_bus(GPUS[0]), observe("pci", GPUS[1], nouveau), observe("nvml", GPUS[0], {"a": 1})
    )
    assert result[GPUS[1]] == (False, None)


@pytest.mark.parametrize(
    "driver", [{}, {"driver.loaded": False}, {"driver.loaded": True, "driver.module_state": "coming"}]
)
def test_gpu_is_not_missing_before_the_driver_is_loaded(driver: dict[str, Scalar]) -> None:
    unbound = observe("pci", GPUS[0], {"pci.present": True, "pci.driver": "", "pci.procfs": False})
    assert bound_and_lost(observe("host", "node", driver), unbound).get(GPUS[0]) is None


INFINIBAND: dict[str, Scalar] = {"pci.class": "020700", "pci.vendor": "15b3"}


@pytest.mark.parametrize(
    ("signals", "missing"),
    [
        ({**INFINIBAND, "pci.rdma_devices": 0}, True),
        ({**INFINIBAND, "pci.rdma_devices": 1}, False),
        ({"pci.class": "020000", "pci.vendor": "1d0f", "pci.rdma_devices": 0}, True),
        ({"pci.class": "020000", "pci.vendor": "15b3", "pci.rdma_devices": 0}, None),
        ({**INFINIBAND, "pci.rdma_devices": 0, "pci.driver": "vfio-pci"}, None),
        ({**INFINIBAND, "pci.rdma_devices": 0, "pci.virtual": True}, None),
    ],
)
def test_rdma_only_function_without_an_rdma_device_is_reported(
    signals: dict[str, Scalar], missing: bool | None
) -> None:
    latest = machine(observe("pci", "pci/0000:9c:00.0", signals), empty=("infiniband",))
    assert derived(latest, *DERIVATIONS).get("pci/0000:9c:00.0", {}).get("rdma.missing") is missing


def test_all_rdma_devices_are_missing_if_no_rdma_function_has_one() -> None:
    lacking = [
        observe("pci", f"pci/0000:9{number}:00.0", {**INFINIBAND, "pci.rdma_devices": 0})
        for number in range(2)
    ]
    latest = machine(*lacking, empty=("infiniband",))
    assert derived(latest, *DERIVATIONS)["node"] == {"rdma.all_missing": True, "rdma.missing_count": 2}
    port = observe("pci", "port/mlx5_0/1", INFINIBAND)
    latest = machine(*lacking, port, empty=("infiniband",))
    assert derived(latest, *DERIVATIONS)["node"]["rdma.all_missing"] is False


@pytest.mark.parametrize("cut", [(), ("infiniband",)])
def test_no_device_is_missing_when_nothing_was_read(cut: tuple[str, ...]) -> None:
    function = observe("pci", "pci/0000:9c:00.0", {**INFINIBAND, "pci.rdma_devices": 0})
    assert derived(machine(function, cut=cut), *DERIVATIONS) == {}


REFUSED = {"gpu": "/sys/bus/pci/devices: refused", "pci": "/sys/bus/pci/devices: refused"}


@pytest.mark.parametrize(
    "dark",
    [
        # The bus cannot be listed, and the driver's procfs can.
        (Observation("pci", "node", unlisted=REFUSED), observe("nvml", GPUS[0], {"a": 1})),
        # NVML does not name one of its GPUs, which may be this one.
        (on_bus(GPUS[0]), Observation("nvml", "node", unlisted={"gpu": "GPU 4 has no address"})),
        # Whether the driver has it could not be read.
        (
            Observation("pci", GPUS[0], signals={"pci.present": True}, unreadable={"pci.driver": "refused"}),
            observe("nvml", GPUS[0], {"a": 1}),
        ),
    ],
)
def test_no_gpu_is_lost_if_a_list_cannot_be_read(dark: tuple[Observation, ...]) -> None:
    latest = machine(READY, *dark)
    reasons = unread(latest, *DERIVATIONS)
    assert "gpu.lost" not in latest.derived.get(GPUS[0], {})
    assert "gpu.lost" in reasons[GPUS[0]]


def test_no_rdma_device_is_missing_if_the_bus_cannot_be_listed() -> None:
    dark = Observation("pci", "node", unlisted=REFUSED)
    function = observe("pci", "pci/0000:9c:00.0", {**INFINIBAND, "pci.rdma_devices": 0})
    latest = machine(function, dark, empty=("infiniband",))
    assert unread(latest, *DERIVATIONS)["node"]["rdma.all_missing"] == REFUSED["pci"]

from __future__ import annotations

from nodeguard.derive.derivation import Derivation, Values, run_derivations
from nodeguard.derive.latest_readings import LatestReadings
from nodeguard.model.observation import Observation
from nodeguard.model.target import NODE
from tests.derive.readings import GPUS, machine, observe


def doubled(latest: LatestReadings, gpu: str) -> Values:
    error = latest.get(gpu, "gpu.error")
    if error is not None:
        yield "first", f"{error}{error}"
        yield "second", latest.get(gpu, "gpu.name") == "H100"


DOUBLED = Derivation("gpu", ("first", "second"), doubled)


def test_derivation_runs_for_each_target_of_its_kind() -> None:
    latest = machine(*(observe("nvml", gpu, {"gpu.error": "x", "gpu.name": "H100"}) for gpu in GPUS))
    run_derivations(latest, [DOUBLED])
    assert latest.derived == {gpu: {"first": "xx", "second": True} for gpu in GPUS}
    assert latest.derived_unread == {}


def test_derived_signal_takes_over_the_reason_of_its_unread_input() -> None:
    latest = machine(
        Observation("nvml", GPUS[0], signals={"gpu.error": "x"}, unreadable={"gpu.name": "refused"}),
        Observation("nvml", GPUS[1], unreadable={"gpu.error": "denied"}),
        observe("nvml", GPUS[2], {"gpu.name": "H100"}),
    )
    run_derivations(latest, [DOUBLED])
    assert latest.derived == {GPUS[0]: {"first": "xx"}}
    assert latest.derived_unread == {
        GPUS[0]: {"second": "refused"},
        GPUS[1]: {"first": "denied", "second": "denied"},
    }


def test_derivation_can_use_an_earlier_derived_signal() -> None:
    def again(latest: LatestReadings, gpu: str) -> Values:
        yield "third", latest.get(gpu, "second") is True

    latest = machine(
        observe("nvml", GPUS[0], {"gpu.error": "x", "gpu.name": "H100"}),
        Observation("nvml", GPUS[1], signals={"gpu.error": "x"}, unreadable={"gpu.name": "refused"}),
    )
    run_derivations(latest, [DOUBLED, Derivation("gpu", ("third",), again)])
    assert latest.derived[GPUS[0]]["third"] is True
    assert latest.derived_unread[GPUS[1]]["third"] == "refused"


def test_node_derivation_always_runs() -> None:
    def count(latest: LatestReadings, _node: str) -> Values:
        listed = latest.listed("nvml", "gpu")
        if listed is not None:
            yield "count", len(listed)

    latest = machine(empty=("nvml",))
    run_derivations(latest, [Derivation(NODE, ("count",), count)])
    assert latest.derived == {NODE: {"count": 0}}
    latest = machine(cut=("nvml",))
    run_derivations(latest, [Derivation(NODE, ("count",), count)])
    assert latest.derived_unread[NODE].keys() == {"count"}

"""Where the commands for a machine run, as far as its readings show it."""

from __future__ import annotations

from fixtures.bundles import bundle_path
from nodeguard.bundle.recording import Recording
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.cli.machine_inventory import InventoryJudgement
from nodeguard.derive.derive import PlatformHints
from nodeguard.model.recovery import Site
from nodeguard.pipeline.replay import replay_verdicts
from nodeguard.sources.registry import all_sources


def judgement_of(bundle: str) -> InventoryJudgement:
    recording = Recording.open(str(bundle_path(bundle)))
    catalogue, signals = load_catalogue()
    judgement = InventoryJudgement(catalogue, signals, PlatformHints("", ""))
    for _ in replay_verdicts(recording, all_sources(catalogue.patterns), judgement):
        pass
    return judgement


def site(bundle: str) -> Site:
    return judgement_of(bundle).site("Node-1")


def test_adapters_that_manage_nvswitches_are_neither_nvswitches_nor_ports() -> None:
    blackwell, hopper = (
        judgement_of("healthy-dgx-b200").inventory(),
        judgement_of("healthy-dgx-h100").inventory(),
    )
    assert (blackwell.nvswitches, blackwell.ports) == (0, 8)
    assert hopper.nvswitches == 4


def test_a_machine_with_a_kubelet_is_a_node_of_kubernetes_also_when_it_is_down() -> None:
    assert (site("services-down").scheduler, site("services-down").node) == ("kubernetes", "node-1")
    assert (site("gpu-off-bus").scheduler, site("gpu-off-bus").node) == ("", "Node-1")


def test_gpus_before_hopper_with_nvswitches_are_reset_together() -> None:
    assert site("healthy-dgx-a100").resets_together
    assert not site("healthy-dgx-h100").resets_together
    assert not site("gpu-off-bus").resets_together


def test_gpus_with_mig_are_known() -> None:
    mig = site("healthy-dgx-a100-mig").mig
    assert mig
    assert all(target.startswith("gpu/") for target in mig)
    assert site("healthy-dgx-h100").mig == frozenset()

"""The commands of each action, for each kind of target and scheduler."""

from __future__ import annotations

import shlex
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.model.check import Check
from nodeguard.model.finding import Action, Health
from nodeguard.model.hardware import Hardware
from nodeguard.model.recovery import (
    COMMAND_VALUES,
    Recovery,
    Scheduler,
    Site,
    recovery_commands,
    resets_together,
)
from nodeguard.model.target import TARGET_KINDS

CATALOGUE, _ = load_catalogue()
CHECKS = {check.id: check for check in CATALOGUE.checks}

GPU, OTHER = "gpu/0000:c3:00", "gpu/0000:c4:00"
HOST = Site("gpu-3")
CLUSTER = Site("gpu-3", "kubernetes", on_node=False)
TARGETS = {
    "node": "node",
    "gpu": GPU,
    "nvlink": f"{GPU}/nvlink/3",
    "nvswitch": "nvswitch/0000:c1:00",
    "port": "port/mlx5_0/1",
    "pci": "pci/0000:9c:00.0",
    "fs": "fs:/mnt/data",
    "disk": "disk/nvme0n1",
    "dimm": "dimm/mc0/dimm3",
    "service": "service/kubelet",
    "probe": "probe/burn-in",
}
RESET_ALL = ("nodeguard gpus detach --duration 30m", "nvidia-smi --gpu-reset", "nodeguard gpus attach")
LOOK_UP = (
    "POD=$(kubectl get pods -n nodeguard -l app.kubernetes.io/name=nodeguard-agent "
    "--field-selector spec.nodeName=gpu-3 -o name)"
)
DRAIN = "kubectl drain gpu-3 --ignore-daemonsets --delete-emptydir-data"
DRAIN_ALL = ("# This empties all GPUs of the node:", DRAIN)
EXEC = 'kubectl exec -n nodeguard "$POD" --'


def commands(
    action: Action, target: str, site: Site = HOST, health: Health = Health.FATAL, check: Check | str = "x"
) -> tuple[str, ...]:
    hardware = Hardware(index=5) if target.startswith(GPU) else None
    return recovery_commands(Recovery(check, target, action, health, hardware), site)


def of_check(name: str, target: str, site: Site = HOST) -> tuple[str, ...]:
    check = CHECKS[name]
    return commands(check.action, target, site, check.health, check)


def reset(gpu: str) -> tuple[str, ...]:
    return (
        f"nodeguard gpus detach --duration 30m --gpu {gpu}",
        f"nvidia-smi --gpu-reset -i {gpu}",
        "nodeguard gpus attach",
    )


@pytest.mark.parametrize(
    ("action", "kind", "expected"),
    [
        (Action.RESET_GPU, "gpu", reset("5")),
        (Action.RESET_GPU, "nvlink", reset("5")),
        (Action.RESET_GPU, "nvswitch", RESET_ALL),
        (Action.RESET_GPU, "node", RESET_ALL),
        (Action.REBOOT_NODE, "gpu", ("systemctl reboot",)),
        (Action.REBOOT_NODE, "port", ("systemctl reboot",)),
        (Action.RESTART_SERVICE, "service", ("systemctl restart kubelet",)),
        (Action.RESTART_SERVICE, "node", ()),
        (
            Action.REPLACE_COMPONENT,
            "gpu",
            ("nvidia-smi --query-gpu=index,pci.bus_id,serial,uuid --format=csv -i 5",),
        ),
        (Action.REPLACE_COMPONENT, "port", ("mlxlink -d mlx5_0 -p 1 -m",)),
        (Action.REPLACE_COMPONENT, "disk", ("smartctl -x /dev/nvme0n1",)),
        (Action.REPLACE_COMPONENT, "dimm", ("dmidecode --type memory",)),
        (Action.REPLACE_COMPONENT, "nvswitch", ("lspci -vv -s 0000:c1:00",)),
        (Action.REPLACE_COMPONENT, "pci", ("lspci -vv -s 0000:9c:00.0",)),
        (Action.CONTACT_SUPPORT, "gpu", ("nvidia-bug-report.sh",)),
        (Action.CONTACT_SUPPORT, "port", ("mlxlink -d mlx5_0 -p 1 -m",)),
        (Action.CONTACT_SUPPORT, "node", ()),
        (Action.MONITOR, "gpu", ()),
        (Action.RESTART_WORKLOAD, "gpu", ()),
        (Action.NONE, "gpu", ()),
    ],
)
def test_the_commands_of_an_action_on_the_node(action: Action, kind: str, expected: tuple[str, ...]) -> None:
    assert commands(action, TARGETS[kind]) == expected


def test_a_gpu_without_a_known_index_has_its_address() -> None:
    assert commands(Action.RESET_GPU, OTHER) == reset("0000:c4:00.0")
    assert commands(Action.RESET_GPU, "gpu/index-7") == reset("7")


def test_gpus_that_cannot_be_reset_one_by_one_are_reset_together() -> None:
    assert commands(Action.RESET_GPU, GPU, Site("n", resets_together=True)) == RESET_ALL
    assert resets_together(["NVIDIA A100-SXM4-80GB"], 6)
    assert not resets_together(["NVIDIA A100-SXM4-80GB"], 0)
    assert not resets_together(["NVIDIA H100 80GB HBM3"], 4)


def test_instances_of_mig_are_listed_before_a_reset_ends_them() -> None:
    site = Site("n", mig=frozenset({GPU, OTHER}))
    assert commands(Action.RESET_GPU, GPU, site) == ("nvidia-smi mig -i 5 -lgi", *reset("5"))
    listed = ("nvidia-smi mig -i 0000:c3:00.0 -lgi", "nvidia-smi mig -i 0000:c4:00.0 -lgi")
    assert commands(Action.RESET_GPU, "node", site) == (*listed, *RESET_ALL)


def test_kubernetes_drains_first_and_runs_the_steps_in_the_agents_pod() -> None:
    assert commands(Action.RESET_GPU, GPU, CLUSTER) == (
        *DRAIN_ALL,
        LOOK_UP,
        f"{EXEC} nodeguard gpus detach --duration 30m --gpu 5",
        f"{EXEC} chroot /host nvidia-smi --gpu-reset -i 5",
        f"{EXEC} nodeguard gpus attach",
        "kubectl uncordon gpu-3",
    )


DRAINABLE = Site("gpu-3", "kubernetes", on_node=False, drainable=frozenset({GPU}))
DRAIN_ONE = "nodeguard drain node gpu-3 --wait"


@pytest.mark.parametrize("target", [GPU, f"{GPU}/nvlink/3"])
def test_a_reset_of_one_gpu_leaves_the_work_on_the_others(target: str) -> None:
    assert commands(Action.RESET_GPU, target, DRAINABLE) == (
        DRAIN_ONE,
        LOOK_UP,
        f"{EXEC} nodeguard gpus detach --duration 30m --gpu 5",
        f"{EXEC} chroot /host nvidia-smi --gpu-reset -i 5",
        f"{EXEC} nodeguard gpus attach",
    )


def test_what_ends_the_work_on_all_gpus_empties_them_after_the_faulty_one() -> None:
    together = replace(DRAINABLE, resets_together=True)
    for made in (
        commands(Action.REBOOT_NODE, GPU, DRAINABLE),
        commands(Action.RESET_GPU, GPU, together),
        of_check("nvlink-down", f"{GPU}/nvlink/3", DRAINABLE),
    ):
        assert (made[:3], made[-1]) == ((DRAIN_ONE, *DRAIN_ALL), "kubectl uncordon gpu-3")


def test_only_a_fault_of_a_gpu_that_can_be_drained_leaves_the_others() -> None:
    assert commands(Action.RESET_GPU, OTHER, DRAINABLE)[:2] == DRAIN_ALL
    assert commands(Action.RESET_GPU, "node", DRAINABLE)[0] == DRAIN


def test_a_warning_lets_the_running_work_end() -> None:
    before, *_ = commands(Action.RESET_GPU, GPU, CLUSTER, Health.WARNING)
    assert before == "kubectl cordon gpu-3"


def test_on_a_node_of_kubernetes_only_the_scheduler_is_remote() -> None:
    assert commands(Action.REBOOT_NODE, GPU, Site("gpu-3", "kubernetes")) == (
        *DRAIN_ALL,
        "systemctl reboot",
        "kubectl uncordon gpu-3",
    )


def test_in_the_agents_pod_the_pod_is_known() -> None:
    site = Site("gpu-3", "kubernetes", on_node=False, pod="nodeguard-agent-x7")
    service = commands(Action.RESTART_SERVICE, "service/nvidia-imex", site)
    assert service == (
        "kubectl exec -n nodeguard nodeguard-agent-x7 -- chroot /host systemctl restart nvidia-imex",
    )


@pytest.mark.parametrize("target", ["service/kubelet", "service/containerd"])
def test_what_kubectl_exec_needs_is_restarted_without_it(target: str) -> None:
    name = target.partition("/")[2]
    assert commands(Action.RESTART_SERVICE, target, CLUSTER) == (f"ssh gpu-3 'systemctl restart {name}'",)


def test_a_mount_is_repaired_on_the_node_itself() -> None:
    assert of_check("fs-mount-dead", "fs:/mnt/a b", CLUSTER) == (
        "ssh gpu-3 'fusermount -uz '\"'\"'/mnt/a b'\"'\"''",
        "ssh gpu-3 'mount '\"'\"'/mnt/a b'\"'\"''",
    )


def test_the_tools_of_a_drivers_container_are_in_it() -> None:
    on_node = commands(Action.RESET_GPU, GPU, Site("n", driver_container=True))
    assert on_node[1] == "chroot /run/nvidia/driver nvidia-smi --gpu-reset -i 5"
    in_pod = Site("gpu-3", "kubernetes", on_node=False, driver_container=True)
    assert commands(Action.CONTACT_SUPPORT, GPU, in_pod) == (
        LOOK_UP,
        f"{EXEC} chroot /host/run/nvidia/driver nvidia-bug-report.sh",
    )


def test_slurm_drains_and_resumes() -> None:
    site = Site("gpu-3", "slurm")
    assert commands(Action.RESET_GPU, GPU, site, check="gpu-ecc") == (
        "scontrol update NodeName=gpu-3 State=DRAIN Reason='nodeguard: gpu-ecc'",
        *reset("5"),
        "scontrol update NodeName=gpu-3 State=RESUME",
    )
    assert commands(Action.REBOOT_NODE, GPU, site, check="gpu-lost") == (
        "scontrol reboot ASAP nextstate=RESUME reason='nodeguard: gpu-lost' gpu-3",
    )


def test_a_check_has_commands_of_its_own_for_its_own_action() -> None:
    assert of_check("clock-unsynchronized", "node") == (
        "systemctl restart chronyd  # or systemd-timesyncd, ntpd, ptp4l with phc2sys: what the node has",
    )
    assert of_check("gpu-ecc-off", GPU) == ("nvidia-smi -i 5 -e 1", *reset("5"))
    check = CHECKS["nvlink-down"]
    assert commands(Action.REBOOT_NODE, GPU, check=check) == ("systemctl reboot",)


def test_a_check_that_resets_the_gpu_resets_what_its_board_needs() -> None:
    board = Site("n", resets_together=True)
    assert of_check("gpu-ecc-off", GPU, board) == ("nvidia-smi -i 5 -e 1", *RESET_ALL)
    instances = Site("n", mig=frozenset({GPU}))
    expected = ("nvidia-smi -i 5 -e 1", "nvidia-smi mig -i 5 -lgi", *reset("5"))
    assert of_check("gpu-ecc-off", GPU, instances) == expected


def test_a_check_that_resets_the_board_resets_all_gpus_of_any_target() -> None:
    for target in (f"{GPU}/nvlink/3", "node"):
        assert of_check("nvlink-down", target) == RESET_ALL
    instances = Site("n", mig=frozenset({GPU}))
    assert of_check("nvlink-down", f"{GPU}/nvlink/3", instances)[1:] == RESET_ALL


def test_a_finding_of_several_targets_without_a_common_value_has_no_commands() -> None:
    assert of_check("gpu-ecc-off", "node") == ()
    assert of_check("port-counter-saturated", "node") == ()


# Actions that are commands, or that need a command to find the part.
NEED_COMMANDS = frozenset({
    Action.RESET_GPU, Action.REBOOT_NODE, Action.RESTART_SERVICE, Action.REPLACE_COMPONENT, Action.CONTACT_SUPPORT,
})  # fmt: skip
# Commands that only take work off the node or give it back, and the variable of the others.
AROUND = ("nodeguard drain", "# ", "kubectl drain", "kubectl cordon", "kubectl uncordon", "POD=")


@pytest.mark.parametrize("site", [HOST, CLUSTER, Site("gpu-3", "slurm", on_node=False)])
@pytest.mark.parametrize("check", CATALOGUE.checks, ids=lambda check: check.id)
def test_an_action_that_needs_commands_has_them_for_each_kind_of_target(check: Check, site: Site) -> None:
    if check.action not in NEED_COMMANDS:
        return
    for kind in check.targets:
        made = of_check(check.id, TARGETS[kind], site)
        assert [command for command in made if not command.startswith(AROUND)], kind
        assert not any("{" in command for command in made), made


def test_a_part_that_the_fault_does_not_name_is_found_in_a_list_of_all() -> None:
    assert of_check("dimm-corrected-rate", "node") == ("dmidecode --type memory",)
    expected = ("kubectl cordon gpu-3", LOOK_UP, f"{EXEC} chroot /host dmidecode --type memory")
    assert of_check("dimm-corrected-rate", "node", CLUSTER) == expected
    assert of_check("disk-timeout", "node") == ("lsblk --nodeps --output NAME,MODEL,SERIAL,STATE",)
    replaced = commands(Action.REPLACE_COMPONENT, "node", check=CHECKS["gpu-lost"])
    assert replaced == ("nvidia-smi --query-gpu=index,pci.bus_id,serial,uuid --format=csv",)


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)


@given(
    NAMES,
    NAMES,
    st.sampled_from(Action),
    st.sampled_from(TARGET_KINDS),
    st.sampled_from(get_args(Scheduler)),
)
def test_no_name_breaks_a_command(
    node: str, name: str, action: Action, kind: str, scheduler: Scheduler
) -> None:
    """A name is one word of one command, whatever it is; or there are no commands."""
    head = "fs:/" if kind == "fs" else f"{TARGETS[kind].partition('/')[0]}/"
    parts = ["1" if part.isascii() and part.isdecimal() else part and "x" for part in name.split("/")]
    target, harmless = f"{head}{name}", f"{head}{'/'.join(parts)}"
    for on_node in (True, False):
        made = commands(action, target, Site(node, scheduler, on_node=on_node))
        if not made:
            continue
        like = commands(action, harmless, Site("n", scheduler, on_node=on_node))
        assert all("\n" not in command for command in made)
        assert [len(shlex.split(command)) for command in made] == [
            len(shlex.split(command)) for command in like
        ]


def test_every_kind_with_values_is_a_kind_of_target() -> None:
    assert set(COMMAND_VALUES) <= set(TARGET_KINDS)

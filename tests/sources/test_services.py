from __future__ import annotations

import errno

import pytest

from nodeguard.model.target import NODE
from nodeguard.sources.services import ServicesSource
from tests.sources.fake_machine import FakeMachine, ThisMachine, by_target
from tests.sources.test_processes import stat

WANTS = "/etc/systemd/system/multi-user.target.wants"
V2 = "/sys/fs/cgroup"
BOOTED = "/run/systemd/system"


def systemd(
    files: dict[str, str] | None = None,
    *,
    links: dict[str, str] | None = None,
    errors: dict[str, int | Exception] | None = None,
) -> FakeMachine:
    """A machine that systemd runs."""
    return FakeMachine(files, links=links, errors=errors, directories=[BOOTED])


def enabled(*services: str) -> dict[str, str]:
    return {
        f"{WANTS}/{service}.service": f"/usr/lib/systemd/system/{service}.service" for service in services
    }


def unit(name: str, *pids: int, slice_: str = "system.slice", populated: bool = True) -> dict[str, str]:
    directory = f"{V2}/{slice_}/{name}.service"
    procs = "".join(f"{pid}\n" for pid in pids)
    return {
        f"{directory}/cgroup.events": f"populated {int(populated)}\nfrozen 0\n",
        f"{directory}/cgroup.procs": procs,
    }


def test_a_node_with_control_groups() -> None:
    machine = systemd(
        {
            **unit("kubelet", 800),
            **unit("containerd", 700),
            "/proc/800/stat": stat(800, "kubelet", start=1234),
        },
        links=enabled("kubelet", "nvidia-fabricmanager", "unheard-of"),
    )
    observations = by_target(ServicesSource(), machine)
    assert observations.keys() == {"service/kubelet", "service/containerd", "service/nvidia-fabricmanager"}
    assert observations["service/kubelet"].signals == {
        "service.enabled": True,
        "service.running": True,
        "service.start_ticks": 1234,
    }
    assert observations["service/containerd"].signals == {"service.enabled": False, "service.running": True}
    assert observations["service/nvidia-fabricmanager"].signals == {
        "service.enabled": True,
        "service.running": False,
    }


def test_service_in_the_runtime_slice_of_eks_is_found() -> None:
    machine = systemd(
        {**unit("kubelet", 800, slice_="runtime.slice"), **unit("sshd", 900)}, links=enabled("kubelet")
    )
    assert by_target(ServicesSource(), machine)["service/kubelet"].signals["service.running"] is True


def test_service_in_a_pod_is_not_a_service_of_the_node() -> None:
    machine = systemd({**unit("docker", 800, slice_="kubepods.slice"), **unit("sshd", 900)})
    assert by_target(ServicesSource(), machine) == {}


def test_kubernetes_distributions_that_carry_kubelet_inside() -> None:
    machine = systemd({**unit("k3s-agent", 800), **unit("rke2-agent", 801)}, links=enabled("k3s-agent"))
    assert by_target(ServicesSource(), machine).keys() == {"service/k3s-agent", "service/rke2-agent"}


def test_an_empty_control_group_does_not_run() -> None:
    machine = systemd(unit("docker", populated=False), links=enabled("docker"))
    assert by_target(ServicesSource(), machine)["service/docker"].signals["service.running"] is False


def test_control_groups_of_version_1() -> None:
    root = "/sys/fs/cgroup/systemd/system.slice"
    files = {
        "/sys/fs/cgroup/cpu/cgroup.procs": "1\n",
        f"{root}/kubelet.service/cgroup.procs": "800\n801\n",
        f"{root}/docker.service/cgroup.procs": "",
        "/proc/800/stat": stat(800, "kubelet", start=77),
    }
    observations = by_target(ServicesSource(), systemd(files, links=enabled("docker")))
    assert observations["service/kubelet"].signals["service.start_ticks"] == 77
    assert observations["service/docker"].signals["service.running"] is False


def test_containerd_shims_do_not_count_as_the_running_service() -> None:
    shims = {f"/proc/{pid}/stat": stat(pid, "containerd-shim", start=pid) for pid in (10, 11)}
    files = {**unit("containerd", 10, 11), **shims, "/proc/1/stat": stat(1, "systemd")}
    observations = by_target(ServicesSource(), systemd(files, links=enabled("containerd")))
    assert observations["service/containerd"].signals == {"service.enabled": True, "service.running": False}
    directory = "/sys/fs/cgroup/systemd/system.slice/kubelet.service"
    files = {f"{directory}/cgroup.procs": "10\n", **shims, "/proc/1/stat": stat(1, "systemd")}
    assert by_target(ServicesSource(), systemd(files))["service/kubelet"].signals["service.running"] is False


def test_control_group_is_used_if_processes_are_hidden() -> None:
    machine = systemd(unit("kubelet", 800))
    assert by_target(ServicesSource(), machine)["service/kubelet"].signals["service.running"] is True
    machine = systemd({**unit("kubelet", 0, 0), "/proc/1/stat": stat(1, "sh")})
    assert by_target(ServicesSource(), machine)["service/kubelet"].signals["service.running"] is True
    procs = f"{V2}/system.slice/kubelet.service/cgroup.procs"
    machine = systemd(unit("kubelet", 800), errors={procs: errno.EACCES})
    assert by_target(ServicesSource(), machine)["service/kubelet"].signals["service.running"] is True
    events = f"{V2}/system.slice/kubelet.service/cgroup.events"
    machine = systemd(unit("kubelet", 800), errors={procs: errno.EACCES, events: errno.EACCES})
    assert "service.running" in by_target(ServicesSource(), machine)["service/kubelet"].unreadable


def test_control_groups_of_version_1_that_cannot_be_read_are_unread() -> None:
    procs = "/sys/fs/cgroup/systemd/system.slice/kubelet.service/cgroup.procs"
    for machine in (systemd(errors={procs: errno.EACCES}), systemd({procs: "0\n"})):
        observation = by_target(ServicesSource(), machine)["service/kubelet"]
        assert "run as root" in observation.unreadable["service.running"]
        assert "service.running" not in observation.signals


def test_a_restart_is_not_hidden_by_older_shims() -> None:
    source = ServicesSource()
    shims = {f"/proc/{pid}/stat": stat(pid, "containerd-shim", start=pid) for pid in (10, 11)}
    machine = systemd(
        {**unit("containerd", 10, 11, 700), **shims, "/proc/700/stat": stat(700, "containerd", start=5)}
    )
    assert by_target(source, machine)["service/containerd"].signals["service.start_ticks"] == 5
    machine.asked.clear()
    by_target(source, machine)
    assert [path for path in machine.asked if path.endswith("/stat")] == ["/proc/700/stat"]
    machine.remove("/proc/700")
    machine.files |= {
        **unit("containerd", 10, 11, 900),
        "/proc/900/stat": stat(900, "containerd", start=9000),
    }
    assert by_target(source, machine)["service/containerd"].signals["service.start_ticks"] == 9000


def test_stopped_service_is_reported() -> None:
    source = ServicesSource()
    machine = systemd({**unit("nvidia-imex", 800), **unit("sshd", 900)})
    by_target(source, machine)
    machine.remove(f"{V2}/system.slice/nvidia-imex.service")
    assert by_target(source, machine)["service/nvidia-imex"].signals == {"service.running": False}


def test_masked_service_is_not_expected() -> None:
    links = {**enabled("docker"), "/etc/systemd/system/docker.service": "/dev/null"}
    assert by_target(ServicesSource(), systemd(unit("sshd", 900), links=links)) == {}
    links["/etc/systemd/system/docker.service"] = "/usr/lib/systemd/system/docker.service"
    assert "service/docker" in by_target(ServicesSource(), systemd(unit("sshd", 900), links=links))


def test_without_control_groups_the_names_of_processes_count() -> None:
    files = {
        "/proc/1/comm": "systemd\n",
        "/proc/800/comm": "kubelet\n",
        "/proc/800/stat": stat(800, "kubelet", start=42),
        "/proc/810/comm": "nv-fabricmanage\n",
    }
    observations = by_target(ServicesSource(), systemd(files, links=enabled("containerd")))
    assert observations["service/kubelet"].signals["service.start_ticks"] == 42
    assert observations["service/nvidia-fabricmanager"].signals["service.running"] is True
    assert observations["service/containerd"].signals["service.running"] is False


def test_services_are_unknown_in_a_container_with_its_own_namespace() -> None:
    files = {"/proc/1/comm": "entrypoint\n", "/proc/800/comm": "kubelet\n"}
    observations = by_target(ServicesSource(), systemd(files, links=enabled("containerd")))
    assert observations["service/kubelet"].signals["service.running"] is True
    assert "service.running" in observations["service/containerd"].unreadable


def test_services_do_not_apply_on_a_machine_without_systemd() -> None:
    machine = FakeMachine(unit("kubelet", 800), links=enabled("containerd"))
    assert by_target(ServicesSource(), machine) == {}
    refused = FakeMachine(unit("kubelet", 800), links=enabled("containerd"), errors={BOOTED: errno.EACCES})
    observations = by_target(ServicesSource(), refused)
    assert observations.keys() == {NODE}
    assert observations[NODE].unlisted.keys() == {"service"}


@pytest.mark.parametrize("place", ["/etc/systemd/system", WANTS, V2, f"{V2}/system.slice"])
def test_services_that_could_not_be_listed_are_not_missed(place: str) -> None:
    machine = systemd(unit("kubelet", 800), links=enabled("kubelet"), errors={place: errno.EMFILE})
    observations = by_target(ServicesSource(), machine)
    assert observations[NODE].unlisted.keys() == {"service"}
    assert all(observations[target].signals.get("service.running") is not False for target in observations)


def test_slice_removed_during_the_read_makes_its_services_unread() -> None:
    machine = systemd(
        unit("kubelet", 800), links=enabled("kubelet"), errors={f"{V2}/system.slice": errno.ENOENT}
    )
    assert "service.running" in by_target(ServicesSource(), machine)["service/kubelet"].unreadable


def test_failed_read_of_a_unit_link_makes_enabled_unread() -> None:
    links = {**enabled("docker"), "/etc/systemd/system/docker.service": "/dev/null"}
    errors: dict[str, int | Exception] = {"/etc/systemd/system/docker.service": errno.EIO}
    observations = by_target(ServicesSource(), systemd(unit("sshd", 900), links=links, errors=errors))
    assert "service.enabled" in observations["service/docker"].unreadable


def test_processes_that_end_while_they_are_read_are_no_stopped_service() -> None:
    """The control group lists only processes that are not visible: its populated field counts."""
    machine = systemd({**unit("kubelet", 800), "/proc/1/stat": stat(1, "systemd")})
    assert by_target(ServicesSource(), machine)["service/kubelet"].signals["service.running"] is True
    shims = {"/proc/10/stat": stat(10, "containerd-shim", start=10)}
    machine = systemd({**unit("containerd", 10, 700), **shims})
    assert "service.running" in by_target(ServicesSource(), machine)["service/containerd"].unreadable


def test_with_control_groups_no_process_is_searched() -> None:
    machine = systemd({**unit("kubelet", 800), "/proc/801/comm": "crio\n"})
    assert "service/crio" not in by_target(ServicesSource(), machine)
    assert "/proc/801/comm" not in machine.asked


def test_refusals_are_unread_and_not_false() -> None:
    machine = systemd(links=enabled("kubelet"), errors={V2: errno.EACCES})
    observations = by_target(ServicesSource(), machine)
    assert observations["service/kubelet"].signals == {"service.enabled": True}
    assert observations["service/kubelet"].unreadable == {"service.running": "permission denied: run as root"}
    machine = systemd(unit("kubelet", 800), errors={"/etc/systemd/system": errno.EACCES})
    observations = by_target(ServicesSource(), machine)
    assert observations["service/kubelet"].signals == {"service.running": True}
    assert observations["service/kubelet"].unreadable.keys() == {"service.enabled"}
    assert observations[NODE].unreadable.keys() == {"service.enabled"}


def test_hidden_processes_are_not_reported_as_stopped_services() -> None:
    files = {"/proc/800/comm": "kubelet\n"}
    machine = systemd(files, links=enabled("containerd"), errors={"/proc/900/comm": errno.EPERM})
    observations = by_target(ServicesSource(), machine)
    assert observations["service/kubelet"].signals["service.running"] is True
    assert "service.running" in observations["service/containerd"].unreadable


def test_invalid_value_affects_only_its_own_signal() -> None:
    machine = systemd({**unit("kubelet", 800), f"{V2}/system.slice/kubelet.service/cgroup.events": "xyz\n"})
    observation = by_target(ServicesSource(), machine)["service/kubelet"]
    assert "reads 'xyz'" in observation.unreadable["service.running"]
    machine = systemd({**unit("kubelet", 800), "/proc/800/stat": "800\n"})
    observation = by_target(ServicesSource(), machine)["service/kubelet"]
    assert observation.signals["service.running"] is True
    assert observation.unreadable.keys() == {"service.start_ticks"}


def test_peer_memory_module_is_reported_only_with_the_nvidia_driver() -> None:
    nvidia = {"/sys/module/nvidia/initstate": "live\n"}
    for module, loaded in (("nvidia_peermem", True), ("nv_peer_mem", True), ("other", False)):
        machine = FakeMachine({**nvidia, f"/sys/module/{module}/refcnt": "0\n"})
        assert by_target(ServicesSource(), machine)[NODE].signals == {"module.nvidia_peermem": loaded}
    assert by_target(ServicesSource(), FakeMachine({"/sys/module/nvidia_peermem/refcnt": "0\n"})) == {}


def test_driver_from_a_container_is_detected_by_its_mount() -> None:
    root = "/run/nvidia/driver"
    full, empty = FakeMachine({f"{root}/usr/bin/nvidia-smi": ""}), FakeMachine(directories=[root])
    assert by_target(ServicesSource(), full)[NODE].signals == {"driver.container": True}
    assert by_target(ServicesSource(), empty)[NODE].signals == {"driver.container": False}
    refused = FakeMachine(errors={root: errno.EACCES})
    assert by_target(ServicesSource(), refused)[NODE].unreadable == {
        "driver.container": "permission denied: run as root"
    }


def test_this_machine() -> None:
    assert all(target.startswith(("service/", NODE)) for target in by_target(ServicesSource(), ThisMachine()))

"""Fixtures and marks of all tests: the shared cluster, and checks that a run leaves nothing behind."""

from __future__ import annotations

import gc
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.controlplane.cluster import API, SERVICE_ACCOUNT, WHOLE, Cluster, NewCluster, cluster
from tests.controlplane.commands import Component
from tests.controlplane.objects import clear_cluster
from tests.controlplane.shared import SharedClusters
from tests.daemonset.helm import Helm
from tests.daemonset.manifests import apply
from tests.docs.ran import begin_test, check_commands
from tests.images.archives import Archives, build_archives
from tests.images.store import locked_store
from tests.kubelet.disk import ram_disk
from tests.kubelet.machine import missing_for_pods
from tests.kubelet.site import Site, running_site
from tests.leftovers import MARK, checkout_entries, keep_mounts, mounts, processes, system_files
from tests.logs import log
from tests.scheduling import GroupScheduling
from tests.waiting import PATIENCE

__all__ = ["log"]

# The cluster of a test, and how long each component's log was when the test began, in bytes.
_SCENE = pytest.StashKey[tuple[Cluster, dict[Component, int]]]()

# The clusters that tests of this process share.
_CLUSTERS = SharedClusters()

# Seconds in which processes that were killed are gone.
_ENDING = 30.0

# The speed of examples depends on the machine, so it is not tested.
settings.register_profile("nodeguard", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("nodeguard")


# The tool that a fixture needs, as a mark of the tests that request it.
_TOOLS = {
    "new_cluster": "cluster",
    "helm": "cluster",
    "promtool": "promtool",
    "tab": "browser",
    "images": "kubelet",
    "pause": "kubelet",
}

# Fixtures that all tests of a run share, by the group of tests that run in the same process.
_SHARED = {
    "shared_cluster": "cluster",
    "shared_api_server": "api server",
    "shared_older_api_server": "api server",
    "shared_manifests": "manifests",
    "images": "images",
    "pause": "nodes",
}

# The groups of tests with a kubelet. Those without the images of nodeguard have nodes of their own, and run beside the
# others: both together take most of the time of a run.
_WITH_PODS = {"images", "nodes"}

# Tests of whole fleets wait long for agents and aggregators.
_FLEETS = "tests/e2e/"


def pytest_configure() -> None:
    keep_mounts()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> GroupScheduling:
    return GroupScheduling(config, log)


def pytest_collectstart() -> None:
    gc.disable()  # not when pytest starts: the process that only distributes the tests collects none


def pytest_collection_finish() -> None:
    """Leave the collected tests out of garbage collection: to look at 14,000 of them takes a third of a second."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests with the tools that their fixtures need, and with the group that runs in the same process.

    The tests of a file with a cluster are a group: they often share theirs, and each process has one shared cluster for
    its groups. So are all tests with the images, since these and their nodes take half a minute, and the other tests of
    a kubelet. The other tests on the shared cluster are short: one group, so that few processes start a cluster for
    them. So are those on a shared API server, and those of rights and admission policies. All others run in any process:
    some files take minutes.

    Tests that wait begin first, so that those that compute fill the time of the processors beside them.
    """
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        tools = {_TOOLS[name] for name in _TOOLS.keys() & fixtures}
        for tool in tools:
            item.add_marker(tool)
        groups = {_SHARED[name] for name in _SHARED.keys() & fixtures}
        own = not groups or (groups.isdisjoint(_WITH_PODS) and item.nodeid.startswith(_FLEETS))
        if own and "new_cluster" in fixtures:
            groups = {item.nodeid.partition("::")[0]}
        for group in groups:
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=_waits)


# The last place in the order of tests that share a cluster.
_LAST_OF_CLUSTERS = 2


def _waits(item: pytest.Item) -> int:
    """Return the place of a test in the order: a small number for one that waits much and computes little."""
    if item.get_closest_marker("kubelet"):
        return 0
    if item.nodeid.startswith(_FLEETS):
        return 1
    if item.get_closest_marker("xdist_group"):
        return _LAST_OF_CLUSTERS
    return 3 if item.get_closest_marker("slow") else 4


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """End the shared clusters before the tests that use none: an idle cluster takes 3% of a processor."""
    begin_test()
    result = yield
    if nextitem is not None and _waits(nextitem) > _LAST_OF_CLUSTERS:
        _CLUSTERS.close()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a test that no longer runs the printed commands that it is listed with."""
    yield
    check_commands(item.nodeid)


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give this run its own directory for temporary files. Fail where files, processes or mounts are left at the end.

    Files in the checkout: only those that stay, since an editor or another process of this run may have some meanwhile.
    """
    # A short name: sockets lie deep below it, and their paths may have 107 bytes.
    temporary = tmp_path_factory.getbasetemp() / "t"
    temporary.mkdir()
    os.environ[MARK] = os.environ["TMPDIR"] = str(temporary)
    tempfile.tempdir = None
    before = checkout_entries()
    yield
    end = time.monotonic() + _ENDING
    while left := [*processes(str(temporary)), *sorted(checkout_entries() - before)]:
        assert time.monotonic() < end, f"processes, or files in the checkout, are left: {left}"
        time.sleep(0.05)
    assert os.listdir(temporary) == [], f"files are left in {temporary}"
    assert mounts([tmp_path_factory.getbasetemp()]) == []


@pytest.fixture(autouse=True)
def _no_file_of_the_system_is_touched() -> Iterator[None]:
    """Fail a test that leaves or removes files in /etc, /run or /var/lib."""
    before = system_files()
    yield
    assert system_files() == before, "the test writes outside its own directories"


@pytest.fixture(scope="session")
def new_cluster() -> NewCluster:
    """Return the function that starts a cluster. A test that requests it needs the programs of the control plane."""
    return cluster


@pytest.fixture(scope="session")
def _clusters(new_cluster: NewCluster) -> Iterator[SharedClusters]:
    with closing(_CLUSTERS):
        yield _CLUSTERS


# These have the scope of a module: the clusters end before the session does.
@pytest.fixture(scope="module")
def shared_cluster(_clusters: SharedClusters) -> Cluster:
    return _clusters.get("cluster", WHOLE)


@pytest.fixture(scope="module")
def shared_api_server(_clusters: SharedClusters) -> Cluster:
    """An API server without controllers, which tests may kill and start again."""
    return _clusters.get("API server", API)


@pytest.fixture(scope="module")
def shared_older_api_server(_clusters: SharedClusters) -> Cluster:
    """An API server of an earlier version: without taint rules of devices, streamed lists and snapshots of lists."""
    gates = "--feature-gates=WatchList=false,ListFromCacheSnapshot=false"
    return _clusters.get("older API server", API, "--emulated-version=1.36", gates)


@pytest.fixture(scope="module")
def shared_manifests(_clusters: SharedClusters) -> Cluster:
    """A whole control plane with nodeguard's manifests and no more rights, for tests of rights and admission policies."""
    running = _clusters.get("manifests", WHOLE)
    apply(running)
    return running


@pytest.fixture
def helm(tmp_path: Path) -> Helm:
    """Helm without a cluster. A test that requests it needs the programs of the control plane."""
    return Helm(tmp_path)


@pytest.fixture(scope="session")
def images() -> Iterator[Archives]:
    """The images of the Containerfiles, built. A test that requests them needs root, buildah, and cgroups."""
    _require_pods()
    with ram_disk() as directory:
        with locked_store() as store:
            archives = build_archives(store, directory)
        yield archives


@pytest.fixture(scope="session")
def pause(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The name and the archive of an image with busybox, which waits. It needs what `images` needs, and no build."""
    _require_pods()
    with locked_store() as store:
        return store.pause, store.save_pause(tmp_path_factory.mktemp("pause"))


def _require_pods() -> None:
    lacking = missing_for_pods()
    assert not lacking, f"{'; '.join(lacking)}. `make test` leaves these tests out"


@pytest.fixture(scope="session")
def shared_site(images: Archives) -> Iterator[Site]:
    with running_site(images.pause, images.files) as running:
        yield running


@pytest.fixture
def site(shared_site: Site) -> Iterator[Site]:
    """A cluster with real nodes, the same for all tests, which are in its network."""
    with shared_site.network.entered():
        yield shared_site


@pytest.fixture(scope="session")
def promtool() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return the function that runs promtool with some arguments and standard input."""
    path = shutil.which("promtool")
    assert path is not None, "promtool is missing: run `make test-environment`"

    def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = [path, *arguments]
        # It collects garbage less often: a fifth of its CPU time is left out, for 50 MiB more.
        environment = {**os.environ, "GOGC": "400"}
        return subprocess.run(
            command,
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    return run


@pytest.fixture
def controlplane(shared_cluster: Cluster, request: pytest.FixtureRequest) -> Cluster:
    """A whole control plane, the same for all tests, without Nodes and pods. A test that fails shows its logs."""
    clear_cluster(shared_cluster)
    lengths = {name: shared_cluster.processes.log(name).stat().st_size for name in shared_cluster.components}
    request.node.stash[_SCENE] = (shared_cluster, lengths)
    return shared_cluster


@pytest.fixture
def namespace(controlplane: Cluster) -> str:
    """Name of an empty namespace, in which pods can be made."""
    name = f"test-{secrets.token_hex(4)}"
    controlplane.api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    controlplane.until(lambda: controlplane.has(SERVICE_ACCOUNT.format(name)), "kube-controller-manager")
    return name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and (scene := item.stash.get(_SCENE, None)) is not None:
        made, lengths = scene
        report.sections += [
            (f"Log of {name}", made.processes.tail(name, since)) for name, since in lengths.items()
        ]
    return report

"""An upgrade and its rollback: a marked fleet, and aggregators of two versions that take turns."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from nodeguard.model.finding import Action, Health
from nodeguard.model.hardware import Hardware
from nodeguard.wire.report import Report, ReportedEvidence, ReportedFinding, ReportedPassing
from tests.controlplane.cluster import Cluster
from tests.daemonset.manifests import NAMESPACE, is_served
from tests.e2e.bulk_nodes import make_nodes, wait_until_schedulable
from tests.e2e.devices import published_devices
from tests.e2e.earlier_version import EarlierVersion, apply_present
from tests.e2e.fleet import Aggregator, Fleet, deployed_fleet
from tests.e2e.mark_history import MarkHistory, Snapshot
from tests.e2e.scene import INCIDENTS
from tests.e2e.swarm import TARGET, Swarm, healthy_report, swarm
from tests.waiting import until

_LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/nodeguard-aggregator"
_LEAF_LABEL = "network.topology.nvidia.com/leaf"

NODES, LEAF = 112, 8
NAMES = tuple(f"gpu-{number:03}" for number in range(NODES))

# Messages that the agents have sent before: they have run for hours.
_SENT = 1_000

# The nodes of two leaf switches; 20 nodes with faults of their own, five of each check; nodes with a check that fires on
# too many of them; and nodes of which one fails or heals at each turn. Of those with the second check, a DRA driver
# publishes the GPUs. The first two heal before the upgrade: their soak period runs meanwhile.
DEGRADED = NAMES[: 2 * LEAF]
MARKED = NAMES[2 * LEAF :: 3][:20]
SUPPRESSED = NAMES[2 * LEAF + 1 :: 3][:15]
CHANGING = NAMES[2 * LEAF + 2 :: 3][:30]
ON_DEVICES = MARKED[1::4]
SOAKING = MARKED[:2]
REPEATED = MARKED[4:8]

# Nodes that have failed at one time of those that change.
_FAILING = 3

_CHECKS = ("gpu-lost", "gpu-gsp-failure", "gpu-retired-pages-limit", "nvlink-down")
_SUSPECT = "gpu-retired-pages-limit"

# Each of them fails on few nodes only, so that none is suppressed in ten minutes.
_CHANGING_CHECKS = (
    "disk-lost",
    "pcie-fatal",
    "gpu-row-remap-failure",
    "nvswitch-fatal",
    "fs-read-only",
    "gpu-memory",
)
_SUPPRESSED_CHECK = "kubelet-down"
_LINK, _PORT = "port-down", "port/mlx5_0/1"

POLICY = """
defaultMode: enforce
gracePeriod: {{quarantine: 30s, suspect: 30s, sharedHardware: 30s}}
soak: {{initial: {soak}, max: 1h, resetAfter: 1d}}
budget: {{fleet: 60%, pool: 100%, domain: 100%, suspect: 50%, degradedDomains: 100%, firstDegradedDomain: 100%,
  newDegradedDomainsPerHour: 10, perCheck: {{new: 100, within: 10m, active: 100}}}}
topologies: {{fabric: [network.topology.nvidia.com/leaf]}}
diagnosis: {{enforce: [fabric], gracePeriod: 2s, suppression: {{minNodes: 12}}}}
markWith: {{cordon: true}}
"""

_HEALTHY = healthy_report((*_CHECKS, *_CHANGING_CHECKS, _SUPPRESSED_CHECK))
HEALTHY = replace(_HEALTHY, passing=(*_HEALTHY.passing, ReportedPassing((_LINK,), (_PORT,))))


def _fault(check: str, number: int) -> ReportedFinding:
    is_suspect = check == _SUSPECT
    return ReportedFinding(
        check=check,
        target=TARGET,
        health=Health.SUSPECT if is_suspect else Health.FATAL,
        component=f"GPU-{number}",
        action=Action.REPLACE_COMPONENT if is_suspect else Action.RESET_GPU,
        age=600.0 + 60.0 * number,
        message=f"{check} at {TARGET}",
        evidence=tuple(ReportedEvidence("kmsg", f"line {line}") for line in range(7)),
        family="gpu-bus",
        hardware=Hardware(index=0, serial=f"165{number:04}"),
    )


def _faulty(finding: ReportedFinding) -> Report:
    """Return the report of a node with a finding; all other checks pass."""
    passing = tuple(
        replace(item, checks=tuple(check for check in item.checks if check != finding.check))
        for item in HEALTHY.passing
    )
    return replace(
        HEALTHY,
        health=finding.health,
        findings=(finding,),
        passing=tuple(item for item in passing if item.checks),
    )


_LINK_DOWN = ReportedFinding(
    check=_LINK,
    target=_PORT,
    health=Health.FATAL,
    action=Action.CONTACT_SUPPORT,
    age=60.0,
    message=f"{_PORT} is DOWN/Polling but should be up according to its inventory",
    evidence=(ReportedEvidence("ports", "port.phys_state is Polling"),),
    topologies=("fabric",),
    family="port",
)
_SILENT_KUBELET = ReportedFinding(
    check=_SUPPRESSED_CHECK,
    target="node",
    health=Health.FATAL,
    action=Action.RESTART_SERVICE,
    # The earlier version skips the grace period of a finding that begins while it renews its lease.
    age=10.0,
    message="kubelet.service is failed",
    evidence=(ReportedEvidence("services", "service.state is failed"),),
    family="services",
)
_SHARED_FAULTS = {
    **dict.fromkeys(DEGRADED, _faulty(_LINK_DOWN)),
    **dict.fromkeys(SUPPRESSED, _faulty(_SILENT_KUBELET)),
}
_OWN_FAULTS = {name: _faulty(_fault(_CHECKS[at % 4], at)) for at, name in enumerate(MARKED)}


class UpgradeScene:
    """A marked fleet with an active aggregator of the earlier version."""

    def __init__(
        self,
        fleet: Fleet,
        agents: Swarm,
        version: EarlierVersion | None,
        earlier: Aggregator,
        present: Aggregator,
    ) -> None:
        self.cluster = fleet.cluster
        self.earlier, self.present = earlier, present
        # How often each node failed and healed since the latest check, the nodes that fail now, and how often another
        # aggregator became the leader.
        self._failed, self._healed = Counter[str](), Counter[str]()
        self._failing: set[str] = set()
        self._leaders = 0
        self._marked = {*MARKED, *DEGRADED}
        self._fleet, self._agents, self._version = fleet, agents, version
        self._turns = itertools.count()

    def start(self, aggregator: Aggregator) -> None:
        """Start an aggregator, and wait until it has all reports."""
        if aggregator is self.earlier:
            assert self._version is not None
            aggregator.start(self._version.program)
        else:
            aggregator.start()
        aggregator.until(lambda: aggregator.metric("nodeguard_aggregator_agents_reporting") == NODES)

    def other(self, aggregator: Aggregator) -> Aggregator:
        return self.present if aggregator is self.earlier else self.earlier

    def apply(self, aggregator: Aggregator) -> None:
        """Apply the manifests of an aggregator's version."""
        if aggregator is self.earlier:
            assert self._version is not None
            self._version.apply(self.cluster)
        else:
            apply_present(self.cluster, POLICY.format(soak="1s"))
        self.cluster.until(lambda: is_served(self.cluster, INCIDENTS), "kube-apiserver")

    def take_over(self, aggregator: Aggregator) -> None:
        """Terminate the other aggregator, and wait until this one is active."""
        self.other(aggregator).terminate()
        self._wait_until_leader(aggregator)

    def hand_over(self, aggregator: Aggregator) -> None:
        """Give the lease to this aggregator; the other one continues as a standby, with all that it knows."""
        other = self.other(aggregator)
        self._set_holder("no-replica_0")
        other.until(lambda: other.metric("nodeguard_aggregator_leader") == 0)
        other.suspend()
        try:
            self._set_holder("")
            self._wait_until_leader(aggregator)
        finally:
            other.resume()

    def take_turns(self, count: int, pause: float) -> None:
        """Hand the lease over and back, `count` times; a node fails before each, and one heals. Each fourth time the
        leader is terminated, and started again. pause: seconds between two turns.
        """
        for turn in itertools.islice(self._turns, count):
            self._change(CHANGING[turn % len(CHANGING)], fails=True)
            if len(self._failing) > _FAILING:
                self._change(CHANGING[(turn - _FAILING) % len(CHANGING)], fails=False)
            successor = (
                self.earlier if self.present.metric("nodeguard_aggregator_active") == 1 else self.present
            )
            if turn % 4 == 3:
                self.take_over(successor)
                self.start(self.other(successor))
            else:
                self.hand_over(successor)
            time.sleep(pause)

    @contextmanager
    def checked(self) -> Iterator[MarkHistory]:
        """Check all changes of a block. At its end all nodes that failed in it heal, and lose their marks."""
        with MarkHistory(self.cluster) as history:
            yield history
            for name in sorted(self._failing):
                self._change(name, fails=False)
            self._wait_for_marks(self._marked)
            self.settle()
            problems = history.problems(self._failed, self._healed, self._leaders)
            assert not problems, "\n".join(problems)
        self._failed.clear()
        self._healed.clear()
        self._leaders = 0

    def mark(self, soak: str) -> None:
        """Let the earlier version set all marks, some of them for the second time. soak: the soak period."""
        repeated = {name: _OWN_FAULTS[name] for name in REPEATED}
        self._agents.set_reports(repeated)
        self._wait_for_marks(repeated)
        self._agents.set_reports(dict.fromkeys(repeated, HEALTHY))
        self._wait_for_marks(())
        self.set_policy(soak)
        time.sleep(2.0)  # the file is read once a second
        self._agents.set_reports(_OWN_FAULTS)
        self._wait_for_marks(MARKED)
        self._agents.set_reports(_SHARED_FAULTS)
        until(self._is_suppressed, every=0.2)
        self.settle()
        self._wait_for_marks((*MARKED, *DEGRADED))

    def begin_soak(self) -> None:
        """Heal the nodes of which the soak period runs during the upgrade."""
        self.heal(*SOAKING)
        until(lambda: _recovering(self.cluster) == {*SOAKING}, every=0.2)

    def connect(self) -> None:
        """Start the agents, with the reports that they have after `mark` and `begin_soak`."""
        self._agents.set_reports({**_OWN_FAULTS, **_SHARED_FAULTS})
        self.heal(*SOAKING)
        self._agents.start()
        self._wait_until_leader(self.present)

    def heal(self, *names: str) -> None:
        """Heal nodes that failed before the upgrade; each loses its mark after the soak period."""
        self._agents.set_reports(dict.fromkeys(names, HEALTHY))
        self._healed.update(names)
        self._marked -= {*names}

    def set_policy(self, soak: str) -> None:
        """Set the policy. soak: the soak period."""
        self._fleet.policy.write_text(POLICY.format(soak=soak))

    def settle(self, seconds: float = 3.0) -> None:
        """Wait until no mark and no incident has changed for a time."""
        with MarkHistory(self.cluster) as history:
            count, since = 0, time.monotonic()
            while time.monotonic() - since < seconds:
                time.sleep(0.1)
                if (writes := sum(history.writes().values())) != count:
                    count, since = writes, time.monotonic()

    def _change(self, name: str, *, fails: bool) -> None:
        """Let a node fail, and wait for its mark; or let it heal."""
        check = _CHANGING_CHECKS[CHANGING.index(name) % len(_CHANGING_CHECKS)]
        report = _faulty(_fault(check, 0)) if fails else HEALTHY
        self._agents.set_reports({name: report})
        if fails:
            self._failing.add(name)
            self._failed[name] += 1
            until(lambda: name in Snapshot.of(self.cluster).marked(), every=0.2)
        else:
            self._failing.remove(name)
            self._healed[name] += 1

    def _wait_for_marks(self, names: Iterable[str]) -> None:
        expected = set(names)

        def difference() -> set[str]:
            return Snapshot.of(self.cluster).marked() ^ expected

        until(lambda: not difference(), lambda: str(sorted(difference())), every=0.2)

    def _is_suppressed(self) -> bool:
        subjects = Snapshot.of(self.cluster).open_incidents()
        return any(subject[0] == f"check/{_SUPPRESSED_CHECK}" for subject in subjects)

    def _wait_until_leader(self, aggregator: Aggregator) -> None:
        self._leaders += 1
        _wait_until_active(aggregator)

    def _set_holder(self, holder: str) -> None:
        self.cluster.api.patch(_LEASE, {"spec": {"holderIdentity": holder}})


def _wait_until_active(aggregator: Aggregator) -> None:
    aggregator.until(lambda: aggregator.metric("nodeguard_aggregator_active") == 1)


def _recovering(cluster: Cluster) -> set[str]:
    """Return the Nodes with an incident in its soak period."""
    incidents = Snapshot.of(cluster).incidents.values()
    return {incident.subject[0] for incident in incidents if incident.state == "Recovering"}


@contextmanager
def upgrade_scene(cluster: Cluster, directory: Path) -> Iterator[UpgradeScene]:
    """Run a healthy fleet with an active aggregator of the earlier version, and its manifests.

    directory: for the earlier program.
    """
    with _fleet(cluster) as (fleet, uids):
        version = EarlierVersion(directory)
        version.apply(cluster)
        earlier, present = fleet.add_aggregators()
        earlier.start(version.program)
        fleet.distribute_ca()
        with swarm(fleet, uids, HEALTHY, earlier, present, sent=_SENT) as agents:
            agents.start()
            _wait_until_active(earlier)
            yield UpgradeScene(fleet, agents, version, earlier, present)


@contextmanager
def upgraded_scene(
    cluster: Cluster, load: Callable[[Cluster, Mapping[str, str]], None]
) -> Iterator[UpgradeScene]:
    """Run a fleet that the earlier version has marked, with an aggregator of the present version that has no report yet:
    it writes nothing until its agents connect.

    load: creates the objects that the earlier version wrote; it receives the uids of the Nodes by name.
    """
    with _fleet(cluster) as (fleet, uids):
        apply_present(cluster, POLICY.format(soak="1s"))
        load(cluster, uids)
        present, earlier = fleet.add_aggregators()
        present.start()
        fleet.distribute_ca()
        with swarm(fleet, uids, HEALTHY, present, sent=_SENT) as agents:
            yield UpgradeScene(fleet, agents, None, earlier, present)


@contextmanager
def _fleet(cluster: Cluster) -> Iterator[tuple[Fleet, dict[str, str]]]:
    """Deploy the manifests, with all Nodes and no aggregator. Yields it with the uids of the Nodes by name."""
    with published_devices(cluster, *ON_DEVICES), deployed_fleet(cluster) as fleet:
        fleet.policy.write_text(POLICY.format(soak="1s"))
        labels = {name: {_LEAF_LABEL: f"leaf-{at // LEAF:02}"} for at, name in enumerate(NAMES)}
        uids = make_nodes(cluster, NAMES, labels)
        wait_until_schedulable(cluster)
        yield fleet, uids

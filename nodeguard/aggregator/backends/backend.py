"""The backend interface: between the service and Kubernetes, or the service and standalone mode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from nodeguard.aggregator.backends.operator_actions import OperatorActions
from nodeguard.aggregator.identity.caller import Caller
from nodeguard.aggregator.leadership import Candidacy
from nodeguard.executors.executor import MarkExecutor
from nodeguard.fleet.plan import Plan
from nodeguard.model.action_store import ActionStore
from nodeguard.model.eviction import DrainCluster
from nodeguard.model.incident import OperatorDecision
from nodeguard.model.instant import Instant
from nodeguard.model.pod import RejectedPods
from nodeguard.model.refused_request import RefusedRequest
from nodeguard.wire.report import Report


class ApiProblem(Struct, frozen=True):
    """Requests to the API server that fail. since: start of the first one, in seconds of the monotonic clock.
    refusal: the error of the latest one, empty if the server does not answer.
    """

    since: float
    refusal: str = ""


class NodeInventory(Protocol):
    """Which nodes exist. It sends what it observes to FleetInputs."""

    def missing_inputs(self) -> str:
        """Return the names of inputs that were not read yet and that a plan needs; empty for none."""

    def node_reported(self, caller: Caller, report: Report) -> None:
        """Handle a changed report of a node, before it is planned for."""


class Leadership(Protocol):
    """Which aggregator may write: by a lease, or always this one."""

    @property
    def leader(self) -> str:
        """Return the name of the aggregator that may write; empty for none."""

    @property
    def epoch(self) -> int:
        """Return the epoch of the lease: each aggregator that becomes active has a higher one."""

    async def renew_leadership(self, now: float, candidacy: Candidacy) -> bool:
        """Take, renew or release the lease, as the candidacy wants, if that is due. Returns whether this
        aggregator may write. now: seconds of a monotonic clock, from before the plan.
        """

    def vacant_since(self) -> float | None:
        """Return since when the lease has had no holder, in seconds of the monotonic clock; None while it has
        one.
        """

    def lease_problem(self, now: float) -> ApiProblem | None:
        """Return why the lease cannot be read or renewed; None while the API server answers."""


class Operators(Protocol):
    """What operators ask for and decide, and the durable actions that follow."""

    @property
    def actions(self) -> OperatorActions:
        """Return the object that carries out operators' actions."""

    @property
    def action_store(self) -> ActionStore:
        """Return the store of actions."""

    def decisions(self) -> Mapping[str, OperatorDecision]:
        """Return operators' decisions, by name of the incident."""

    def open_decisions(self) -> Mapping[str, OperatorDecision]:
        """Return operators' clears of incidents that are recorded as open. The clear of another one is for an
        occurrence that has ended.
        """

    def marks_removed(self, by: str) -> None:
        """Handle that all marks are removed, as an operator requested. by: the operator."""


class Backend(NodeInventory, Leadership, Operators, MarkExecutor, Protocol):
    """Kubernetes, or standalone mode: all parts of one aggregator. It is the executor that owns the nodes; of
    those that a webhook owns it keeps the record.
    """

    @property
    def job_reads(self) -> Mapping[str, int]:
        """Return the number of readings of a node's jobs, by result: `read` or `failed`."""

    @property
    def rejected_pods(self) -> Mapping[str, RejectedPods]:
        """Return the pods that the kubelets of nodes with a fatal incident rejected, by uid of the Node."""

    @property
    def state_problem(self) -> str:
        """Return why the state file is not written, with the remedy; empty if it is, and with Kubernetes."""

    @property
    def drain_cluster(self) -> DrainCluster | None:
        """Return what a drain reads and does in the cluster; None while this aggregator does not lead, and
        without a cluster.
        """

    def remove_marks(self) -> bool:
        """Start to remove every mark of nodeguard. Returns whether there were any."""

    def marks_accepted(self, node: str) -> None:
        """Handle that the receiver of the webhook that owns a node has accepted its latest marks."""

    def write_problem(self) -> ApiProblem | None:
        """Return why the API server refuses all writes of Nodes; None if it does not."""

    def refused_requests(self) -> tuple[RefusedRequest, ...]:
        """Return the requests that the API server refuses for lack of a right or of the resource."""

    def publish(self, plan: Plan, now: Instant) -> None:
        """Start to record the incidents and Events of a plan."""

    def policy_rejected(self, message: str) -> None:
        """Publish that the policy file is invalid. message: has the reason and the remedy."""

    async def close(self) -> None:
        """Release all resources."""

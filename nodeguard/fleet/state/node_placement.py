"""Node placement: a node's pool, failure domains, and operators' settings. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable

from msgspec import Struct

from nodeguard.fleet.policy_rules import hold_on_node, maintenance_reason, pool_of
from nodeguard.fleet.state.unknown_marks import unknown_taint_keys
from nodeguard.model.mark import NO_SCHEDULE, MarkRecord
from nodeguard.model.node import PREFIX, Node, Taint
from nodeguard.model.policy import Policy

# Names of budgets: of all nodes, and the prefixes of those of pools and of domains.
FLEET, POOL, DOMAIN = "fleet", "pool/", "domain/"

# A whole node in budgets: a number that any usual count of GPUs divides.
WHOLE = 840


class NodePlacement(Struct, frozen=True):
    """The data of a Node that the planner uses.

    budgets: names of the budgets that its marks are charged to: `fleet`, its pool (`pool/` for none), and
    every failure domain by its path. gpus: how many it has. cordoned_by_user: whether an operator keeps all
    work away. hold, maintenance: the reason; empty for none. unknown_taints: taints with nodeguard's keys
    that no record explains. ready: whether its kubelet is ready.
    """

    uid: str
    name: str
    budgets: tuple[str, ...]
    gpus: int
    cordoned_by_user: bool
    hold: str
    maintenance: str
    unknown_taints: tuple[Taint, ...] = ()
    ready: bool = True

    @property
    def pool(self) -> str:
        """Return the name of its pool; empty for none."""
        return self.budgets[1].removeprefix(POOL)

    @property
    def domains(self) -> tuple[str, ...]:
        """Return the budgets that are of failure domains."""
        return self.budgets[2:]


def place_node(
    policy: Policy,
    node: Node,
    record: MarkRecord,
    gpus: int | None = None,
    domains: Iterable[str] = (),
    observed: MarkRecord | None = None,
) -> NodePlacement:
    """Return the placement of a Node. record: its record with writes on their way; observed: the record that
    is on it now, None for the same. gpus: their number, None for the Node's own figure. domains: paths of its
    failure domains.
    """
    pool = pool_of(policy, node)
    records = (record,) if observed is None else (record, observed)
    own_keys = frozenset[str]().union(*map(own_taint_keys, records))
    return NodePlacement(
        uid=node.uid,
        name=node.name,
        budgets=(FLEET, f"{POOL}{pool.name if pool else ''}", *(f"{DOMAIN}{path}" for path in domains)),
        gpus=node.gpus if gpus is None else gpus,
        # Until its removal is seen, a cordon of nodeguard stays one: the node is no free capacity.
        cordoned_by_user=node.unschedulable and not any(own.cordoned for own in records),
        hold=hold_on_node(policy, node) or "",
        maintenance=maintenance_reason(node) or "",
        unknown_taints=tuple(
            taint
            for taint in node.taints
            if taint.key.startswith(PREFIX) and not is_own_taint(taint, own_keys)
        ),
        ready=node.ready,
    )


def own_taint_keys(record: MarkRecord) -> frozenset[str]:
    """Return the keys of the taints that a record explains."""
    return unknown_taint_keys(record).union(mark.key for mark in record.marks)


def is_own_taint(taint: Taint, own_keys: Container[str]) -> bool:
    """Return whether nodeguard set a taint. own_keys: of the records."""
    return taint.key in own_keys and taint.effect == NO_SCHEDULE


def gpu_parts(placement: NodePlacement) -> int:
    """Return the part of WHOLE that one GPU of a node is worth, rounded up."""
    return -(-WHOLE // placement.gpus) if placement.gpus > 0 else WHOLE

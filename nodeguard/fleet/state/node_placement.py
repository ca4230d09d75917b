"""Node placement: a node's pool, failure domains, and operators' settings. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from nodeguard.fleet.policy_rules import hold_on_node, maintenance_reason, pool_of
from nodeguard.model.inventory import InventoryNode, ObservedMarks
from nodeguard.model.policy import Policy

# Names of budgets: of all nodes, and the prefixes of those of pools and of domains.
FLEET, POOL, DOMAIN = "fleet", "pool/", "domain/"

# A whole node in budgets: a number that any usual count of GPUs divides.
WHOLE = 840


class NodePlacement(Struct, frozen=True):
    """The data of a node that the planner uses.

    budgets: names of the budgets that its marks are charged to: `fleet`, its pool (`pool/` for none), and
    every failure domain by its path. gpus: how many it has. cordoned_by_user: whether an operator keeps all
    work away. hold, maintenance, planned_maintenance: the reason; empty for none. ready: whether the
    scheduler considers it to be up.
    """

    uid: str
    name: str
    budgets: tuple[str, ...]
    gpus: int
    cordoned_by_user: bool
    hold: str
    maintenance: str
    planned_maintenance: str = ""
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
    node: InventoryNode,
    observed: ObservedMarks,
    gpus: int | None = None,
    domains: Iterable[str] = (),
) -> NodePlacement:
    """Return the placement of a node. gpus: their number, None for the node's own figure. domains: paths of
    its failure domains.
    """
    pool = pool_of(policy, node)
    return NodePlacement(
        uid=node.key,
        name=node.name,
        budgets=(FLEET, f"{POOL}{pool.name if pool else ''}", *(f"{DOMAIN}{path}" for path in domains)),
        gpus=node.gpus if gpus is None else gpus,
        # A cordon of nodeguard stays one until its removal is seen: the node is no free capacity.
        cordoned_by_user=node.out_by_operator and not observed.is_out,
        hold=hold_on_node(policy, node) or "",
        maintenance=maintenance_reason(node, is_out=observed.is_out) or "",
        planned_maintenance=node.planned_maintenance,
        ready=node.ready,
    )


def gpu_parts(placement: NodePlacement) -> int:
    """Return the part of WHOLE that one GPU of a node is worth, rounded up."""
    return -(-WHOLE // placement.gpus) if placement.gpus > 0 else WHOLE

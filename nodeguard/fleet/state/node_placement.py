"""Where a node sits in the fleet: its pool, its domains, and what people say of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from nodeguard.fleet.policy_rules import hold_on_node, maintenance_reason, pool_of
from nodeguard.model.mark import DEGRADED_TAINT, Mark, MarkRecord
from nodeguard.model.node import Node, Taint
from nodeguard.model.policy import Policy

# Names of ledgers: of all nodes, and what those of pools and of domains begin with.
FLEET, POOL, DOMAIN = "fleet", "pool/", "domain/"

# A whole node, as ledgers count it: a number that any usual count of GPUs divides.
WHOLE = 840

_KEYS = frozenset({DEGRADED_TAINT, *(mark.key for mark in Mark)})


class NodePlacement(Struct, frozen=True):
    """What planning asks of a node.

    ledgers: what its marks are charged to: `fleet`, its pool (`pool/` where none fits), and every domain of
    all views by its path. gpus: how many parts it has. out: whether a person keeps work away from all of it.
    hold, maintenance: why, empty for none. strange: taints with nodeguard's keys of which its record knows
    nothing.
    """

    uid: str
    name: str
    budgets: tuple[str, ...]
    gpus: int
    cordoned_by_user: bool
    hold: str
    maintenance: str
    unknown_taints: tuple[Taint, ...] = ()

    @property
    def pool(self) -> str:
        """The name of its pool; empty where none fits."""
        return self.budgets[1].removeprefix(POOL)

    @property
    def domains(self) -> tuple[str, ...]:
        """Those of its ledgers that are of domains."""
        return self.budgets[2:]


def place_node(
    policy: Policy,
    node: Node,
    record: MarkRecord,
    gpus: int | None = None,
    domains: Iterable[str] = (),
    observed: MarkRecord | None = None,
) -> NodePlacement:
    """Where a node sits. record: what is remembered on it, or about to be; seen: what is by now, None for the
    same. gpus: how many it has; None for what it says. domains: the paths of those that it is in.
    """
    pool = pool_of(policy, node)
    known = {key for one in (record, observed) if one is not None for key in _keys_of(one)}
    return NodePlacement(
        uid=node.uid,
        name=node.name,
        budgets=(FLEET, f"{POOL}{pool.name if pool else ''}", *(f"{DOMAIN}{one}" for one in domains)),
        gpus=node.gpus if gpus is None else gpus,
        cordoned_by_user=node.unschedulable and not record.cordoned,
        hold=hold_on_node(policy, node) or "",
        maintenance=maintenance_reason(node) or "",
        unknown_taints=tuple(one for one in node.taints if one.key in _KEYS - known),
    )


def _keys_of(record: MarkRecord) -> Iterator[str]:
    """Keys of the taints that a record is remembered beside."""
    yield from (cause.mark.key for cause in record.causes)
    if record.degraded:
        yield DEGRADED_TAINT


def gpu_parts(seat: NodePlacement) -> int:
    """What one GPU of a node is worth, in parts of WHOLE, rounded up."""
    return -(-WHOLE // seat.gpus) if seat.gpus > 0 else WHOLE

"""Where a node sits in the fleet: its pool, its domains, and what people say of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from nodeguard.fleet.modes import held_node, in_maintenance, pool_of
from nodeguard.model.mark import DEGRADED, Mark, Record
from nodeguard.model.node import Node, Taint
from nodeguard.model.policy import Policy

# Names of ledgers: of all nodes, and what those of pools and of domains begin with.
FLEET, POOL, DOMAIN = "fleet", "pool/", "domain/"

# A whole node, as ledgers count it: a number that any usual count of GPUs divides.
WHOLE = 840

_KEYS = frozenset({DEGRADED, *(mark.key for mark in Mark)})


class Seat(Struct, frozen=True):
    """What planning asks of a node.

    ledgers: what its marks are charged to: `fleet`, its pool (`pool/` where none fits), and every domain of
    all views by its path. gpus: how many parts it has. out: whether a person keeps work away from all of it.
    hold, maintenance: why, empty for none. strange: taints with nodeguard's keys of which its record knows
    nothing.
    """

    uid: str
    name: str
    ledgers: tuple[str, ...]
    gpus: int
    out: bool
    hold: str
    maintenance: str
    strange: tuple[Taint, ...] = ()

    @property
    def pool(self) -> str:
        """The name of its pool; empty where none fits."""
        return self.ledgers[1].removeprefix(POOL)

    @property
    def domains(self) -> tuple[str, ...]:
        """Those of its ledgers that are of domains."""
        return self.ledgers[2:]


def seat(
    policy: Policy,
    node: Node,
    record: Record,
    gpus: int | None = None,
    domains: Iterable[str] = (),
    seen: Record | None = None,
) -> Seat:
    """Where a node sits. record: what is remembered on it, or about to be; seen: what is by now, None for the
    same. gpus: how many it has; None for what it says. domains: the paths of those that it is in.
    """
    pool = pool_of(policy, node)
    known = {key for one in (record, seen) if one is not None for key in _keys_of(one)}
    return Seat(
        uid=node.uid,
        name=node.name,
        ledgers=(FLEET, f"{POOL}{pool.name if pool else ''}", *(f"{DOMAIN}{one}" for one in domains)),
        gpus=node.gpus if gpus is None else gpus,
        out=node.unschedulable and not record.cordoned,
        hold=held_node(policy, node) or "",
        maintenance=in_maintenance(node) or "",
        strange=tuple(one for one in node.taints if one.key in _KEYS - known),
    )


def _keys_of(record: Record) -> Iterator[str]:
    """Keys of the taints that a record is remembered beside."""
    yield from (cause.mark.key for cause in record.causes)
    if record.degraded:
        yield DEGRADED


def part_of(seat: Seat) -> int:
    """What one GPU of a node is worth, in parts of WHOLE, rounded up."""
    return -(-WHOLE // seat.gpus) if seat.gpus > 0 else WHOLE

"""The policy as people write it: the form of its file."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from nodeguard.aggregator.policy.amounts import as_duration, as_share
from nodeguard.aggregator.policy.blame import BlameForm
from nodeguard.aggregator.policy.words import (
    CheckPattern,
    Checks,
    Count,
    Duration,
    Labels,
    Marks,
    Moment,
    NodePattern,
    Path,
    Sentence,
    Settling,
    Share,
    Steps,
    TableFile,
    Word,
)
from nodeguard.model.mark import Mark
from nodeguard.model.policy import Budget, CheckLimit, Mode, Policy, Settle, Silent, Soak, Writes

_BUDGET, _LIMIT, _SOAK = Budget(), CheckLimit(), Soak()
_SETTLE, _SILENT, _MARKS = Settle(), Silent(), Writes()


class ModeForm(Struct, frozen=True, forbid_unknown_fields=True):
    """A mode for some checks, `check` or `checks`, and marks. The last one that fits counts."""

    mode: Mode
    check: CheckPattern | UnsetType = UNSET
    checks: Checks | UnsetType = UNSET
    marks: Marks = (Mark.QUARANTINE, Mark.SUSPECT)


class PoolForm(Struct, frozen=True, forbid_unknown_fields=True):
    """Nodes that share a budget: those with all these labels, and the first pool that fits. share: how many
    of them may be marked at a time; where it is not said, `budget.pool`.
    """

    name: Word
    labels: Labels = {}
    share: Share | UnsetType = UNSET


class EachForm(Struct, frozen=True, forbid_unknown_fields=True):
    """How many nodes any one check may take out: `new` within a time, and `standing` in all."""

    new: Count = _LIMIT.new
    within: Duration = as_duration(_LIMIT.within)
    standing: Count = _LIMIT.standing


class LimitForm(Struct, frozen=True, forbid_unknown_fields=True):
    """The same for some checks, `check` or `checks`; what is not said is as for any. The first one that fits
    counts.
    """

    check: CheckPattern | UnsetType = UNSET
    checks: Checks | UnsetType = UNSET
    new: Count | UnsetType = UNSET
    within: Duration | UnsetType = UNSET
    standing: Count | UnsetType = UNSET


class BudgetForm(Struct, frozen=True, forbid_unknown_fields=True):
    """How many nodes may be marked at a time; each share comes to one node at least.

    fleet: of all nodes. reserve: of the fleet's budget, kept for what is fatal. pool: of each pool. domain:
    of each failure domain. suspect: of all nodes, by `suspect` marks. degraded: of all nodes, in domains that
    are to blame; first: of all, in one such domain while there is no other; domains: how many may be new in
    an hour. check: for each check; checks: for some.
    """

    fleet: Share = as_share(_BUDGET.fleet)
    reserve: Share = as_share(_BUDGET.reserve)
    pool: Share = as_share(_BUDGET.pool)
    domain: Share = as_share(_BUDGET.domain)
    suspect: Share = as_share(_BUDGET.suspect)
    degraded: Share = as_share(_BUDGET.degraded)
    first: Share = as_share(_BUDGET.first)
    domains: Count = _BUDGET.domains
    check: EachForm = EachForm()
    checks: Annotated[tuple[LimitForm, ...], Meta(max_length=100)] = ()


class SettleForm(Struct, frozen=True, forbid_unknown_fields=True):
    """For how long a finding stands before it is marked, by mark; `0s` not at all. shared: where a part that
    nodes share may have caused it, which is then to be found first.
    """

    quarantine: Settling = as_duration(_SETTLE.quarantine)
    suspect: Settling = as_duration(_SETTLE.suspect)
    shared: Settling = as_duration(_SETTLE.shared)


class SoakForm(Struct, frozen=True, forbid_unknown_fields=True):
    """For how long a fault is proven to be over before its mark goes: `first`, then twice as long each time,
    at most `most`; what lies further back than `forget` does not count.
    """

    first: Duration = as_duration(_SOAK.first)
    most: Duration = as_duration(_SOAK.most)
    forget: Duration = as_duration(_SOAK.forget)


class HoldForm(Struct, frozen=True, forbid_unknown_fields=True):
    """Do not touch: nodes, by name or labels or both; or checks, `check` or `checks`. why: for the others."""

    node: NodePattern | UnsetType = UNSET
    labels: Labels = {}
    check: CheckPattern | UnsetType = UNSET
    checks: Checks | UnsetType = UNSET
    why: Sentence = ""


class SilenceForm(Struct, frozen=True, forbid_unknown_fields=True):
    """Tell nobody of some checks on some nodes, all where it does not say which. Marks are set all the same.

    until: when it ends; where it is not said, never.
    """

    check: CheckPattern | UnsetType = UNSET
    checks: Checks | UnsetType = UNSET
    node: NodePattern = "*"
    until: Moment | UnsetType = UNSET
    why: Sentence = ""


class SilentForm(Struct, frozen=True, forbid_unknown_fields=True):
    """A node that has said nothing for `after` is stale; when more than the share `freeze` of all are, with
    no domain to explain it, nothing new is marked.
    """

    after: Duration = as_duration(_SILENT.after)
    freeze: Share = as_share(_SILENT.freeze)


class WritesForm(Struct, frozen=True, forbid_unknown_fields=True):
    """What a mark writes. device: a taint on the one GPU instead of its node, where the cluster can."""

    taint: bool = _MARKS.taint
    cordon: bool = _MARKS.cordon
    condition: bool = _MARKS.condition
    device: bool = _MARKS.device


class ViewsForm(Struct, frozen=True, forbid_unknown_fields=True):
    """How nodes share something, by label keys, coarsest first; instead of those that are built in."""

    fabric: Path | UnsetType = UNSET
    nvlink: Path | UnsetType = UNSET
    rack: Path | UnsetType = UNSET
    power: Path | UnsetType = UNSET
    zone: Path | UnsetType = UNSET


class PlaceForm(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the nodes of a name or a pattern are, coarsest first with `/` between the steps; or the `file` of
    a table that says it, beside this one. A name goes before a pattern; the first pattern that fits counts.
    """

    file: TableFile | UnsetType = UNSET
    node: NodePattern | UnsetType = UNSET
    fabric: Steps | UnsetType = UNSET
    nvlink: Steps | UnsetType = UNSET
    rack: Steps | UnsetType = UNSET
    power: Steps | UnsetType = UNSET
    zone: Steps | UnsetType = UNSET


PlacesForm = TableFile | Annotated[tuple[PlaceForm, ...], Meta(max_length=10_000)]


class PolicyForm(Struct, frozen=True, forbid_unknown_fields=True):
    """The policy of nodeguard's aggregator: what may be marked, how much of it, and when it is given back.

    mode: for what no rule of `modes` fits. places: a table's file, or rows. pause: mark nothing new.
    """

    mode: Mode = Policy().mode
    modes: Annotated[tuple[ModeForm, ...], Meta(max_length=100)] = ()
    pools: Annotated[tuple[PoolForm, ...], Meta(max_length=200)] = ()
    budget: BudgetForm = BudgetForm()
    settle: SettleForm = SettleForm()
    soak: SoakForm = SoakForm()
    marks: WritesForm = WritesForm()
    holds: Annotated[tuple[HoldForm, ...], Meta(max_length=500)] = ()
    silences: Annotated[tuple[SilenceForm, ...], Meta(max_length=500)] = ()
    silent: SilentForm = SilentForm()
    views: ViewsForm = ViewsForm()
    places: PlacesForm = ()
    blame: BlameForm = BlameForm()
    pause: bool = False


def schema() -> dict[str, Any]:
    """The form as a JSON Schema, for editors."""
    made = msgspec.json.schema(PolicyForm)
    for part in made["$defs"].values():
        part["description"] = " ".join(part["description"].split())
    title = "Policy of nodeguard's aggregator"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **made}

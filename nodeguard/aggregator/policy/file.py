"""From the policy file to the policy, and what is to be said of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec import UNSET, UnsetType, structs

from nodeguard.aggregator.policy.amounts import duration, share
from nodeguard.aggregator.policy.blame import blame
from nodeguard.aggregator.policy.doubts import doubts
from nodeguard.aggregator.policy.form import (
    BudgetForm,
    HoldForm,
    LimitForm,
    ModeForm,
    PolicyForm,
    PoolForm,
    SilenceForm,
)
from nodeguard.aggregator.policy.labels import refuse_labels
from nodeguard.aggregator.policy.places import places
from nodeguard.aggregator.policy.refusals import refuse
from nodeguard.catalog.located import CatalogueError, convert, load
from nodeguard.model.finding import Health
from nodeguard.model.policy import (
    Budget,
    CheckLimit,
    Hold,
    ModeRule,
    Place,
    Policy,
    Pool,
    Settle,
    Silence,
    Silent,
    Soak,
    View,
    Writes,
)


class Read(NamedTuple):
    """What a file says, and what is doubtful about it, each with file, line, field and remedy."""

    policy: Policy
    doubts: tuple[CatalogueError, ...]


def read(path: Path, checks: Mapping[str, Health], now: float) -> Read:
    """The policy of a YAML file, and of the tables of places that it names; what it leaves out is as in
    Policy.

    checks: health by id of those that are known, which rules are held against. now: seconds since the epoch.
    Raises CatalogueError, which names file, line, field and remedy, for the first thing that is wrong.
    """
    located = load(path)
    refuse_labels(located)
    form = convert(located, PolicyForm)
    refuse(located, form)
    policy = _policy(form, places(located, form.places))
    return Read(policy, tuple(doubts(located, policy, checks, now)))


def _policy(form: PolicyForm, said: tuple[Place, ...]) -> Policy:
    views = structs.asdict(form.views).items()
    return Policy(
        mode=form.mode,
        modes=tuple(_rule(one) for one in form.modes),
        pools=tuple(_pool(one) for one in form.pools),
        budget=_budget(form.budget),
        settle=Settle(
            duration(form.settle.quarantine), duration(form.settle.suspect), duration(form.settle.shared)
        ),
        soak=Soak(duration(form.soak.first), duration(form.soak.most), duration(form.soak.forget)),
        marks=Writes(**structs.asdict(form.marks)),
        holds=tuple(_hold(one) for one in form.holds),
        silences=tuple(_silence(one) for one in form.silences),
        silent=Silent(duration(form.silent.after), share(form.silent.freeze)),
        views=tuple(View(name, labels) for name, labels in views if labels is not UNSET),
        places=said,
        blame=blame(form.blame),
        pause=form.pause,
    )


def _checks(one: ModeForm | LimitForm | HoldForm | SilenceForm) -> tuple[str, ...]:
    """The patterns of `check` or `checks`, none for neither."""
    if not isinstance(one.check, UnsetType):
        return (one.check,)
    return () if isinstance(one.checks, UnsetType) else one.checks


def _rule(one: ModeForm) -> ModeRule:
    return ModeRule(_checks(one), one.mode, one.marks)


def _pool(one: PoolForm) -> Pool:
    return Pool(one.name, one.labels, share(one.share) if one.share else None)


def _budget(form: BudgetForm) -> Budget:
    each = CheckLimit(("*",), form.check.new, duration(form.check.within), form.check.standing)
    return Budget(
        fleet=share(form.fleet),
        reserve=share(form.reserve),
        pool=share(form.pool),
        domain=share(form.domain),
        suspect=share(form.suspect),
        degraded=share(form.degraded),
        first=share(form.first),
        domains=form.domains,
        check=each,
        checks=tuple(_limit(one, each) for one in form.checks),
    )


def _limit(one: LimitForm, each: CheckLimit) -> CheckLimit:
    return CheckLimit(
        _checks(one),
        one.new or each.new,
        duration(one.within) if one.within else each.within,
        one.standing or each.standing,
    )


def _hold(one: HoldForm) -> Hold:
    return Hold(one.node or "", one.labels, _checks(one), one.why)


def _silence(one: SilenceForm) -> Silence:
    until = one.until.timestamp() if one.until else 0.0
    return Silence(_checks(one) or ("*",), one.node, until, one.why)

"""From the policy file to the policy, and what is to be said of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec import UNSET, UnsetType, structs

from nodeguard.aggregator.policy.diagnosis import diagnosis_settings
from nodeguard.aggregator.policy.lint import lint_policy
from nodeguard.aggregator.policy.node_locations import resolve_node_locations
from nodeguard.aggregator.policy.schema import (
    BudgetSpec,
    CheckOverrideSpec,
    HoldSpec,
    ModeRuleSpec,
    PolicySpec,
    PoolSpec,
    SilenceSpec,
)
from nodeguard.aggregator.policy.units import parse_duration, parse_share
from nodeguard.aggregator.policy.validation import validate_labels, validate_policy
from nodeguard.config.yaml_document import ConfigError, convert, load_yaml
from nodeguard.model.finding import Health
from nodeguard.model.policy import (
    Budget,
    CheckLimit,
    GracePeriods,
    Hold,
    MarkWrites,
    ModeRule,
    NodeLocation,
    Policy,
    Pool,
    Silence,
    SoakPeriod,
    StalePolicy,
    TopologyLabels,
)


class LoadedPolicy(NamedTuple):
    """What a file says, and what is doubtful about it, each with file, line, field and remedy."""

    policy: Policy
    warnings: tuple[ConfigError, ...]


def read_policy(path: Path, checks: Mapping[str, Health], now: float) -> LoadedPolicy:
    """The policy of a YAML file, and of the tables of places that it names; what it leaves out is as in
    Policy.

    checks: health by id of those that are known, which rules are held against. now: seconds since the epoch.
    Raises CatalogueError, which names file, line, field and remedy, for the first thing that is wrong.
    """
    located = load_yaml(path)
    validate_labels(located)
    form = convert(located, PolicySpec)
    validate_policy(located, form)
    policy = _policy(form, resolve_node_locations(located, form.places))
    return LoadedPolicy(policy, tuple(lint_policy(located, policy, checks, now)))


def _policy(form: PolicySpec, said: tuple[NodeLocation, ...]) -> Policy:
    views = structs.asdict(form.views).items()
    return Policy(
        mode=form.mode,
        modes=tuple(_rule(one) for one in form.modes),
        pools=tuple(_pool(one) for one in form.pools),
        budget=_budget(form.budget),
        grace=GracePeriods(
            parse_duration(form.settle.quarantine),
            parse_duration(form.settle.suspect),
            parse_duration(form.settle.shared),
        ),
        soak=SoakPeriod(
            parse_duration(form.soak.first), parse_duration(form.soak.most), parse_duration(form.soak.forget)
        ),
        marks=MarkWrites(**structs.asdict(form.marks)),
        holds=tuple(_hold(one) for one in form.holds),
        silences=tuple(_silence(one) for one in form.silences),
        stale=StalePolicy(parse_duration(form.silent.after), parse_share(form.silent.freeze)),
        topologies=tuple(TopologyLabels(name, labels) for name, labels in views if labels is not UNSET),
        locations=said,
        diagnosis=diagnosis_settings(form.blame),
        pause=form.pause,
    )


def _checks(one: ModeRuleSpec | CheckOverrideSpec | HoldSpec | SilenceSpec) -> tuple[str, ...]:
    """The patterns of `check` or `checks`, none for neither."""
    if not isinstance(one.check, UnsetType):
        return (one.check,)
    return () if isinstance(one.checks, UnsetType) else one.checks


def _rule(one: ModeRuleSpec) -> ModeRule:
    return ModeRule(_checks(one), one.mode, one.marks)


def _pool(one: PoolSpec) -> Pool:
    return Pool(one.name, one.labels, parse_share(one.share) if one.share else None)


def _budget(form: BudgetSpec) -> Budget:
    each = CheckLimit(("*",), form.check.new, parse_duration(form.check.within), form.check.standing)
    return Budget(
        fleet=parse_share(form.fleet),
        reserve=parse_share(form.reserve),
        pool=parse_share(form.pool),
        domain=parse_share(form.domain),
        suspect=parse_share(form.suspect),
        degraded=parse_share(form.degraded),
        first=parse_share(form.first),
        domains=form.domains,
        check=each,
        check_overrides=tuple(_limit(one, each) for one in form.checks),
    )


def _limit(one: CheckOverrideSpec, each: CheckLimit) -> CheckLimit:
    return CheckLimit(
        _checks(one),
        one.new or each.new,
        parse_duration(one.within) if one.within else each.within,
        one.standing or each.active,
    )


def _hold(one: HoldSpec) -> Hold:
    return Hold(one.node or "", one.labels, _checks(one), one.why)


def _silence(one: SilenceSpec) -> Silence:
    until = one.until.timestamp() if one.until else 0.0
    return Silence(_checks(one) or ("*",), one.node, until, one.why)

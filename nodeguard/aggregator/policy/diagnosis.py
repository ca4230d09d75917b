"""The part of the policy that says when a shared part, or a check, is blamed."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from nodeguard.aggregator.policy.field_types import Checks, Count, Duration, Share
from nodeguard.aggregator.policy.units import format_duration, format_share, parse_duration, parse_share
from nodeguard.model.diagnosis import FAULT_CLASSES, DiagnosisPolicy, FaultClass

_BLAME = DiagnosisPolicy()
_DAY = 86_400.0

# The views of which Nodes are marked; of a version nothing is, but what its nodes find is not acted upon.
ViewName = Literal["fabric", "nvlink", "rack", "power", "zone"]
ClassName = Literal["link-down", "link", "silent", "thermal", "power", "nvlink", "rollout"]
Windows = Annotated[tuple[Duration, ...], Meta(min_length=1, max_length=5)]


class WeakEvidenceSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """A leaf of which less than the share shows it waits for `patience`, and is blamed only if as many nodes
    as it takes showed it `lately`.
    """

    share: Share = format_share(_BLAME.weak)
    patience: Duration = format_duration(_BLAME.patience)
    lately: Duration = format_duration(_BLAME.lately)


class RecoverySpec(Struct, frozen=True, forbid_unknown_fields=True):
    """For how long hardly anybody shows it before a domain is let go: `first`, then twice as long each time,
    at most `most`; what lies further back than `forget` does not count.
    """

    first: Duration = format_duration(_BLAME.clear)
    most: Duration = format_duration(_BLAME.most)
    forget: Duration = format_duration(_BLAME.forget)


class SuppressionSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """A check is held when it begins on so many nodes at least that no domain explains, and on more than
    chance has it within one of the windows. often: onsets a day that are always thought usual. chance: of
    holding it wrongly. second: share of the nodes that another source has to bear it out on for it to be
    called real.
    """

    nodes: Count = _BLAME.held
    often: Annotated[float, Meta(gt=0.0, le=100_000.0)] = _BLAME.often
    chance: Annotated[float, Meta(gt=0.0, lt=0.5)] = _BLAME.chance
    windows: Windows = tuple(format_duration(one) for one in _BLAME.windows)
    second: Share = format_share(_BLAME.second)


class FaultClassSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """One class of faults that a shared part can cause; what is not said stays as it is built in.

    checks: which may vote. windows: within which votes belong together. share: of a domain's nodes that have
    to show it. rate: onsets of one node in a day, while little is known of the fleet's own.
    """

    checks: Checks | UnsetType = UNSET
    windows: Windows | UnsetType = UNSET
    share: Share | UnsetType = UNSET
    rate: Annotated[float, Meta(gt=0.0, le=1_000.0)] | UnsetType = UNSET


class DiagnosisSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """Which shared part is to blame for what many nodes show, or which check.

    enforce: views whose domains are marked; for the others it is said what would be. nodes: that show it, at
    least. surprise: exponent of the bound on how likely chance is; caution: how many times the fleet's own
    rate chance is thought to have. settle: for how long a domain is found before it is blamed. repeats:
    onsets of one node in a day beyond which it does not vote.
    """

    enforce: Annotated[tuple[ViewName, ...], Meta(max_length=5)] = ()
    nodes: Annotated[int, Meta(ge=2, le=1_000)] = _BLAME.nodes
    surprise: Annotated[float, Meta(gt=0.0, le=100.0)] = _BLAME.surprise
    caution: Annotated[float, Meta(ge=1.0, le=1_000.0)] = _BLAME.caution
    settle: Duration = format_duration(_BLAME.settle)
    repeats: Count = _BLAME.repeats
    weak: WeakEvidenceSpec = WeakEvidenceSpec()
    clear: RecoverySpec = RecoverySpec()
    doubt: SuppressionSpec = SuppressionSpec()
    classes: dict[ClassName, FaultClassSpec] = {}


def diagnosis_settings(form: DiagnosisSpec) -> DiagnosisPolicy:
    """What a form comes to."""
    classes = {str(name): one for name, one in form.classes.items()}
    return DiagnosisPolicy(
        enforce=tuple(dict.fromkeys(form.enforce)),
        classes=tuple(_class(one, classes.get(one.name, _AS_IT_IS)) for one in FAULT_CLASSES),
        nodes=form.nodes,
        surprise=form.surprise,
        caution=form.caution,
        settle=parse_duration(form.settle),
        weak=parse_share(form.weak.share),
        patience=parse_duration(form.weak.patience),
        lately=parse_duration(form.weak.lately),
        repeats=form.repeats,
        clear=parse_duration(form.clear.first),
        most=parse_duration(form.clear.most),
        forget=parse_duration(form.clear.forget),
        held=form.doubt.nodes,
        often=form.doubt.often,
        chance=form.doubt.chance,
        windows=tuple(parse_duration(one) for one in form.doubt.windows),
        second=parse_share(form.doubt.second),
    )


_AS_IT_IS = FaultClassSpec()


def _class(one: FaultClass, form: FaultClassSpec) -> FaultClass:
    return replace(
        one,
        checks=form.checks or one.checks,
        windows=tuple(map(parse_duration, form.windows)) if form.windows else one.windows,
        share=parse_share(form.share) if form.share else one.share,
        rate=form.rate or one.rate,
    )

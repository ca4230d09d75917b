"""Schema of `diagnosis` in the policy file: when a domain is degraded, and when a check is suppressed."""

from __future__ import annotations

from collections.abc import Iterable
from math import exp, log
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from nodeguard.aggregator.policy.field_types import Checks, Count
from nodeguard.model.amounts import Duration, Share
from nodeguard.model.diagnosis import DiagnosisPolicy, FaultClass

_DEFAULT = DiagnosisPolicy()

# Topologies with marks of their Nodes. A version has none: findings of a bad version are withheld.
TopologyName = Literal["fabric", "nvlink", "rack", "power", "zone"]
Windows = Annotated[tuple[Duration, ...], Meta(min_length=1, max_length=5)]
Probability = Annotated[float, Meta(gt=0.0, lt=0.5)]


class WeakEvidenceSpec(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """If less than `share` of a leaf's nodes are affected, the diagnosis waits for `wait`, and needs the
    minimum of nodes affected within `recent`.
    """

    share: Share = _DEFAULT.weak_share
    wait: Duration = _DEFAULT.weak_wait
    recent: Duration = _DEFAULT.weak_window


class RecoverySpec(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How long hardly any node is affected before a domain is no longer degraded: `initial`, then twice as
    long after each relapse, at most `max`. Faults older than `resetAfter` do not count.
    """

    initial: Duration = _DEFAULT.recovery_initial
    max: Duration = _DEFAULT.recovery_max
    reset_after: Duration = _DEFAULT.recovery_reset_after


class SuppressionSpec(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A check is suppressed when it begins to fire on `minNodes` nodes that no domain explains, and on more
    than chance explains within one of the windows.

    usualDailyOnsets: onsets a day that are always usual. significance: probability of a wrong suppression.
    confirmedShare: share of the nodes on which another source must confirm the check for it to be real.
    """

    min_nodes: Count = _DEFAULT.suppression_min_nodes
    usual_daily_onsets: Annotated[float, Meta(gt=0.0, le=100_000.0)] = _DEFAULT.usual_daily_onsets
    significance: Probability = _DEFAULT.suppression_significance
    windows: Windows = _DEFAULT.suppression_windows
    confirmed_share: Share = _DEFAULT.confirmed_share


class FaultClassSpec(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A class of faults that shared hardware can cause. Defaults: the values of the catalogue.

    checks: that vote. windows: within which votes belong together. share: of a domain's nodes that must be
    affected. dailyRate: onsets of one node a day, while the fleet's own rate is not known well.
    """

    checks: Checks | UnsetType = UNSET
    windows: Windows | UnsetType = UNSET
    share: Share | UnsetType = UNSET
    daily_rate: Annotated[float, Meta(gt=0.0, le=1_000.0)] | UnsetType = UNSET


class DiagnosisSpec(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """When a failure domain explains the findings of many nodes, and when a check does.

    enforce: topologies with marks of degraded domains; the others are a dry run. minNodes: affected nodes, at
    least. significance: probability that chance explains the findings, at most. rateMargin: factor on the
    fleet's own fault rate. gracePeriod: how long the evidence lasts before a domain is degraded.
    maxDailyOnsets: a node with more onsets a day does not vote.
    """

    enforce: Annotated[tuple[TopologyName, ...], Meta(max_length=5)] = ()
    min_nodes: Annotated[int, Meta(ge=2, le=1_000)] = _DEFAULT.min_nodes
    significance: Probability = round(exp(-_DEFAULT.significance_exponent), 6)
    rate_margin: Annotated[float, Meta(ge=1.0, le=1_000.0)] = _DEFAULT.rate_margin
    grace_period: Duration = _DEFAULT.grace_period
    max_daily_onsets: Count = _DEFAULT.max_daily_onsets
    weak_evidence: WeakEvidenceSpec = WeakEvidenceSpec()
    recovery: RecoverySpec = RecoverySpec()
    suppression: SuppressionSpec = SuppressionSpec()
    fault_classes: dict[str, FaultClassSpec] = {}


def diagnosis_settings(spec: DiagnosisSpec, fault_classes: Iterable[FaultClass]) -> DiagnosisPolicy:
    """Return the settings of the diagnosis that a policy file sets. fault_classes: of the catalogue."""
    return DiagnosisPolicy(
        enforce=tuple(dict.fromkeys(spec.enforce)),
        classes=tuple(
            _fault_class(fault_class, spec.fault_classes.get(fault_class.name, _UNCHANGED))
            for fault_class in fault_classes
        ),
        min_nodes=spec.min_nodes,
        # One decimal of the exponent is a tenth of the probability: more precision has no effect.
        significance_exponent=round(-log(spec.significance), 1),
        rate_margin=spec.rate_margin,
        grace_period=spec.grace_period,
        weak_share=spec.weak_evidence.share,
        weak_wait=spec.weak_evidence.wait,
        weak_window=spec.weak_evidence.recent,
        max_daily_onsets=spec.max_daily_onsets,
        recovery_initial=spec.recovery.initial,
        recovery_max=spec.recovery.max,
        recovery_reset_after=spec.recovery.reset_after,
        suppression_min_nodes=spec.suppression.min_nodes,
        usual_daily_onsets=spec.suppression.usual_daily_onsets,
        suppression_significance=spec.suppression.significance,
        suppression_windows=spec.suppression.windows,
        confirmed_share=spec.suppression.confirmed_share,
    )


_UNCHANGED = FaultClassSpec()


def _fault_class(default: FaultClass, spec: FaultClassSpec) -> FaultClass:
    return replace(
        default,
        checks=spec.checks or default.checks,
        windows=spec.windows or default.windows,
        share=spec.share or default.share,
        daily_rate=spec.daily_rate or default.daily_rate,
    )

"""PodDisruptionBudgets of a namespace, read before a drain begins."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct, field

from nodeguard.kube.objects import TypedList, TypedObject
from nodeguard.model.json_decoder import JsonDecoder
from nodeguard.model.label_selector import LabelSelector, Requirement
from nodeguard.model.pod import DisruptionBudget

# Policies for pods that run and are not ready: they are evicted if the healthy pods are enough, or always.
_IF_HEALTHY, _ALWAYS = "IfHealthyBudget", "AlwaysAllow"


class _Expression(Struct):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class _Selector(Struct):
    labels: dict[str, str] | None = field(name="matchLabels", default=None)
    expressions: list[_Expression] | None = field(name="matchExpressions", default=None)


class _Spec(Struct):
    selector: _Selector | None = None
    policy: str = field(name="unhealthyPodEvictionPolicy", default=_IF_HEALTHY)


class _Status(Struct):
    allowed: int = field(name="disruptionsAllowed", default=0)
    healthy: int = field(name="currentHealthy", default=0)
    desired: int = field(name="desiredHealthy", default=0)
    generation: int = field(name="observedGeneration", default=0)


class _Budget(TypedObject):
    spec: _Spec = field(default_factory=_Spec)
    status: _Status = field(default_factory=_Status)


_DECODER = JsonDecoder(TypedList[_Budget])


def decode_budgets(body: bytes) -> tuple[DisruptionBudget, ...]:
    """Return the disruption budgets of a list. One with an operator of a later Kubernetes version selects
    each pod and allows no eviction. Raises msgspec.MsgspecError.
    """
    return tuple(map(_disruption_budget, _DECODER.decode(body).items or ()))


def _disruption_budget(budget: _Budget) -> DisruptionBudget:
    meta, spec, status = budget.metadata, budget.spec, budget.status
    is_current = status.generation >= meta.generation
    try:
        selector = None if spec.selector is None else LabelSelector(tuple(_requirements(spec.selector)))
    except ValueError:
        return DisruptionBudget(meta.namespace, meta.name, LabelSelector(), 0, is_current)
    # The API server does not count a budget as met that needs no pod.
    is_met = is_current and status.healthy >= status.desired > 0
    return DisruptionBudget(
        meta.namespace,
        meta.name,
        selector,
        status.allowed,
        is_current,
        frees_unready=spec.policy == _ALWAYS or (spec.policy == _IF_HEALTHY and is_met),
    )


def _requirements(selector: _Selector) -> Iterator[Requirement]:
    """Yield the conditions of a selector. Raises ValueError for an unknown operator."""
    for key, value in (selector.labels or {}).items():
        yield Requirement(key, frozenset({value}))
    for expression in selector.expressions or ():
        values = frozenset(expression.values or ())
        match expression.operator:
            case "In" | "NotIn":
                yield Requirement(expression.key, values, expression.operator == "NotIn")
            case "Exists" | "DoesNotExist":
                yield Requirement(expression.key, negated=expression.operator == "DoesNotExist")
            case _:
                raise ValueError(expression.operator)

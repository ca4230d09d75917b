"""Jobs of batch/v1, as far as the cost of an eviction needs them."""

from __future__ import annotations

from msgspec import Struct, field

from nodeguard.kube.objects import TypedObject
from nodeguard.model.job import EvictionRule, JobRetries
from nodeguard.model.json_decoder import JsonDecoder

_RULES = {
    "Ignore": EvictionRule.IGNORE,
    "FailJob": EvictionRule.FAIL,
    "FailIndex": EvictionRule.FAIL_INDEX,
}


class _Condition(Struct):
    type: str
    status: str = "True"


class _Rule(Struct):
    action: str
    conditions: list[_Condition] | None = field(name="onPodConditions", default=None)


class _FailurePolicy(Struct):
    rules: list[_Rule] = []


class _Spec(Struct):
    limit: int = field(name="backoffLimit", default=6)
    limit_per_index: int | None = field(name="backoffLimitPerIndex", default=None)
    failure_policy: _FailurePolicy | None = field(name="podFailurePolicy", default=None)


class _Status(Struct):
    failed: int = 0


class _Job(TypedObject):
    spec: _Spec = field(default_factory=_Spec)
    status: _Status = field(default_factory=_Status)


_DECODER = JsonDecoder(_Job)


def decode_job_retries(body: bytes) -> JobRetries:
    """Return the failures that a Job survives. Rules for exit codes do not count: the code with which a pod
    ends is not known before. Raises msgspec.MsgspecError.
    """
    job = _DECODER.decode(body)
    policy = job.spec.failure_policy or _FailurePolicy()
    actions = (rule.action for rule in policy.rules if any(map(_is_eviction, rule.conditions or ())))
    rule = _RULES.get(next(actions, ""), EvictionRule.COUNT)
    return JobRetries(
        job.metadata.namespace,
        job.metadata.name,
        job.status.failed,
        job.spec.limit,
        rule,
        job.spec.limit_per_index,
    )


def _is_eviction(condition: _Condition) -> bool:
    return condition.type == "DisruptionTarget" and condition.status == "True"

"""Jobs on nodes: the work that an incident hits, and that may itself be the cause of many findings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from nodeguard.model.node import PREFIX

# Annotations of a Node, for clusters with a scheduler of their own, such as Slurm: the job that runs on it,
# and when it started, in RFC 3339.
JOB_ANNOTATION = f"{PREFIX}job"
JOB_START_ANNOTATION = f"{PREFIX}job-start"

# Maximum number of jobs of one node, of starts of one job on a node, and of jobs that an incident names.
MAX_NODE_JOBS = 16
MAX_STARTS = 8
MAX_INCIDENT_JOBS = 16

# Jobs that a text names before it counts the rest.
_SHOWN = 4

# Names of Kubernetes objects, and `NAMESPACE/NAME`. Annotations may hold any text: other names are ignored.
_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_NAME = re.compile(f"{_PART}(?:/{_PART})?")
_MAX_NAME = 240


class NodeJob(Struct, frozen=True):
    """A job on a node. name: `NAMESPACE/NAME`, or the name that an operator gave it. starts: when it started
    on the node, also before a restart, in seconds since the epoch; none if it did not start or that is
    unknown.
    """

    name: str
    starts: tuple[float, ...] = ()


class EvictionRule(StrEnum):
    """What an eviction is for a Job, by its podFailurePolicy. `count`: a failure. `ignore`: none. `fail`: the
    end of the Job. `fail-index`: that of the index of the pod.
    """

    COUNT = "count"
    IGNORE = "ignore"
    FAIL = "fail"
    FAIL_INDEX = "fail-index"


class JobRetries(Struct, frozen=True):
    """The failures of pods after which a Job of Kubernetes fails, and ends all its pods."""

    namespace: str
    name: str
    failed: int
    """Failures until now."""
    limit: int
    """Its `backoffLimit`: the failures that it survives."""
    rule: EvictionRule = EvictionRule.COUNT
    limit_per_index: int | None = None
    """Its `backoffLimitPerIndex`: the failures that each index survives; None for no such limit."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def is_job_name(name: str) -> bool:
    """Return whether a text from outside may name a job."""
    return len(name) <= _MAX_NAME and _NAME.fullmatch(name) is not None


def add_jobs(
    before: tuple[tuple[str, ...], int], now: tuple[tuple[str, ...], int]
) -> tuple[tuple[str, ...], int]:
    """Return the jobs of an incident, with those that it named before and how many it omitted."""
    names, omitted = limit_jobs((*before[0], *now[0]))
    return names, max(omitted, before[1], now[1])


def limit_jobs(names: Iterable[str]) -> tuple[tuple[str, ...], int]:
    """Return the jobs that an incident names, without repetitions, and how many more there are."""
    distinct = tuple(dict.fromkeys(names))
    return distinct[:MAX_INCIDENT_JOBS], max(0, len(distinct) - MAX_INCIDENT_JOBS)


def jobs_text(names: tuple[str, ...], omitted: int) -> str:
    """Return jobs as text: `a, b and 3 more`; empty for none. omitted: jobs that are not among the names."""
    text, more = ", ".join(names[:_SHOWN]), max(0, len(names) - _SHOWN) + omitted
    return f"{text} and {more} more" if more else text

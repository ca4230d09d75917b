"""The jobs of nodes: read from pods for a few nodes, or annotated by operators. Pure."""

from __future__ import annotations

from nodeguard.model.instant import parse_or_zero
from nodeguard.model.job import (
    JOB_ANNOTATION,
    JOB_START_ANNOTATION,
    MAX_NODE_JOBS,
    MAX_STARTS,
    NodeJob,
    is_job_name,
)
from nodeguard.model.node import Node


class NodeJobs:
    """The jobs of nodes, by uid. A node that is neither annotated nor read has none. version: grows with each
    change.
    """

    def __init__(self) -> None:
        self.version = 0
        self._read: dict[str, tuple[NodeJob, ...]] = {}
        self._annotated: dict[str, NodeJob] = {}

    def jobs(self, uid: str) -> tuple[NodeJob, ...]:
        """Return the jobs of a node: the annotated one if there is any, else those of its pods."""
        annotated = self._annotated.get(uid)
        return (annotated,) if annotated is not None else self._read.get(uid, ())

    def names(self, uid: str) -> tuple[str, ...]:
        """Return the names of the jobs of a node."""
        return tuple(job.name for job in self.jobs(uid))

    def update_read(self, uid: str, jobs: tuple[NodeJob, ...]) -> None:
        """Set the jobs of a node's pods; names that are no names are left out."""
        limited = tuple(
            NodeJob(job.name, tuple(sorted(job.starts)[-MAX_STARTS:]))
            for job in jobs[:MAX_NODE_JOBS]
            if is_job_name(job.name)
        )
        if limited:
            self._read[uid] = limited
        else:
            self._read.pop(uid, None)
        self.version += 1

    def update_node(self, node: Node) -> None:
        """Update the annotated job of a Node."""
        name = node.annotations.get(JOB_ANNOTATION, "").strip()
        before = self._annotated.pop(node.uid, None)
        if name and is_job_name(name):
            self._annotated[node.uid] = NodeJob(name, _start(node.annotations.get(JOB_START_ANNOTATION, "")))
        if self._annotated.get(node.uid) != before:
            self.version += 1

    def remove_node(self, uid: str) -> None:
        """Remove a deleted Node."""
        self._read.pop(uid, None)
        self._annotated.pop(uid, None)
        self.version += 1


def _start(text: str) -> tuple[float, ...]:
    """Return an annotated start in seconds since the epoch; none if it is absent or invalid."""
    at = parse_or_zero(text.strip())
    return (at,) if at else ()

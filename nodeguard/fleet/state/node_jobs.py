"""The jobs of nodes: read from pods for a few nodes, or annotated by operators. Pure."""

from __future__ import annotations

from nodeguard.model.inventory import InventoryNode
from nodeguard.model.job import MAX_NODE_JOBS, MAX_STARTS, NodeJob, is_job_name


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

    def update_node(self, node: InventoryNode) -> None:
        """Update the job that an operator's scheduler names on a node."""
        before = self._annotated.pop(node.key, None)
        if node.job is not None:
            self._annotated[node.key] = node.job
        if node.job != before:
            self.version += 1

    def remove_node(self, uid: str) -> None:
        """Remove a deleted node."""
        self._read.pop(uid, None)
        self._annotated.pop(uid, None)
        self.version += 1

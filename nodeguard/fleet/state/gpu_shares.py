"""Shares of a node's marks in its GPUs: each GPU is out for one cause at a time. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

from nodeguard.model.mark import Mark


class GpuMark(Protocol):
    """A mark that is active."""

    @property
    def carrier(self) -> str:
        """Return the name of the marked device; empty for the node."""

    @property
    def mark(self) -> Mark:
        """Return the kind of mark."""

    @property
    def began(self) -> float:
        """Return when it was set, in seconds since the epoch."""

    @property
    def check(self) -> str:
        """Return the check that requested it; empty for none."""


_Active = TypeVar("_Active", bound=GpuMark)


def gpu_shares(active: Iterable[_Active], gpus: int) -> Iterator[tuple[_Active, int]]:
    """Yield the marks that keep work from GPUs of a node, with the number of GPUs: first the mark that keeps
    all work away, then the one that began first. gpus: of the node.
    """
    order = sorted(active, key=lambda mark: (mark.mark.kind.gang_only, mark.began, mark.check))
    whole = next((mark for mark in order if not mark.carrier), None)
    if whole is not None and not whole.mark.kind.gang_only:
        yield whole, gpus
        return
    devices: dict[str, _Active] = {}
    for mark in order:
        if mark.carrier:
            devices.setdefault(mark.carrier, mark)
    for mark in list(devices.values())[:gpus]:
        yield mark, 1
    if whole is not None:
        yield whole, max(0, gpus - len(devices))

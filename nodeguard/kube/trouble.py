"""Trouble with the API is told once, and so is its end."""

from __future__ import annotations

from collections.abc import Callable

from nodeguard.kube.refusal import ApiError

Tell = Callable[[str], None]


class Trouble:
    """What is wrong with one thing that is asked for. what: its name in the plural, as in `Nodes`."""

    def __init__(self, what: str, tell: Tell) -> None:
        self._what = what
        self._tell = tell
        self._told: set[tuple[int, str]] = set()

    def met(self, error: ApiError) -> None:
        """An error; told unless one of its kind was since all was well."""
        kind = (error.status, error.reason)
        if kind not in self._told:
            self._told.add(kind)
            self._tell(f"{self._what}: {error.message}")

    def over(self) -> None:
        """All is well, which is told where it was not."""
        if self._told:
            self._told.clear()
            self._tell(f"{self._what}: the Kubernetes API answers again")

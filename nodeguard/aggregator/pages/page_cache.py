"""The page cache: many viewers of the page of a large fleet cost one rendering in two seconds."""

from __future__ import annotations

import asyncio

# Seconds for which a page is current, and pages at a time. Without requests nothing is stored.
_LIFETIME = 2.0
_PAGES = 8


class PageCache:
    """Rendered pages by path and query, each for a short time."""

    def __init__(self) -> None:
        self._bodies: dict[str, bytes] = {}

    def __len__(self) -> int:
        """Return the number of stored pages."""
        return len(self._bodies)

    def get(self, key: str) -> bytes | None:
        """Return a page; None if it is not stored."""
        return self._bodies.get(key)

    def clear(self) -> None:
        """Remove all pages, as after a change of the fleet."""
        self._bodies.clear()

    def store(self, key: str, body: bytes) -> None:
        """Store a page, unless there are too many."""
        if len(self._bodies) < _PAGES:
            self._bodies[key] = body
            asyncio.get_running_loop().call_later(_LIFETIME, self._bodies.pop, key, None)

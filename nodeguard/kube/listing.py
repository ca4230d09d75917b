"""A list of a collection, page by page: what servers can that cannot stream one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import msgspec
from msgspec import Struct

from nodeguard.kube.client import Api, Query
from nodeguard.kube.refusal import ApiError, plain

# Objects of a page, and between two breaths of the event loop; seconds for a page.
_PAGE = 500
_BREATH = 50
_WITHIN = 30.0


class Meta(Struct, rename={"version": "resourceVersion", "after": "continue"}):
    """The metadata of an object or a list. after: where the next page begins, empty for none."""

    uid: str = ""
    name: str = ""
    version: str = ""
    after: str = ""
    annotations: dict[str, str] = {}


class _Page(Struct):
    metadata: Meta
    items: list[msgspec.Raw] | None = None


_DECODER = msgspec.json.Decoder(_Page)


class Listing:
    """One list. version: resourceVersion that it is of, once all of it has come."""

    def __init__(self, api: Api, path: str, query: Query) -> None:
        self._api = api
        self._path = path
        self._query = query
        self.version = ""

    async def items(self) -> AsyncGenerator[msgspec.Raw, None]:
        """Its objects. Raises ApiError."""
        size, after = _PAGE, ""
        while True:
            try:
                page = await self._page(size, after)
            except ApiError as error:
                if error.reason != "TooLarge" or size == 1:
                    raise
                size = max(1, size // 8)
                continue
            for place, item in enumerate(page.items or ()):
                if place % _BREATH == 0:
                    await asyncio.sleep(0)
                yield item
            self.version, after = page.metadata.version, page.metadata.after
            if not after:
                return

    async def _page(self, size: int, after: str) -> _Page:
        query = {**self._query, "limit": size, **({"continue": after} if after else {})}
        body = await self._api.request("GET", self._path, query=query, within=_WITHIN)
        try:
            return _DECODER.decode(body)
        except msgspec.MsgspecError as error:
            raise ApiError(0, "Unreadable", f"a list of {self._path} is none: {plain(str(error))}") from None

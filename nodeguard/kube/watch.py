"""Following a collection: all of its objects, then each change, over whatever the connection goes through."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Generic, NoReturn, Protocol, TypeVar

import msgspec
from msgspec import Struct

from nodeguard.kube.client import ApiClient, Query
from nodeguard.kube.error_log import ErrorLog, Log
from nodeguard.kube.errors import ApiError, ApiStatus, single_line, status_error
from nodeguard.kube.watch_state import WatchMode, WatchState, connection_ended, list_completed, request_failed

# Objects of a page, and between two breaths of the event loop; seconds for a page.
_PAGE = 500
_BREATH = 50
_WITHIN = 30.0


class ObjectMeta(Struct, rename={"version": "resourceVersion", "after": "continue"}):
    """The metadata of an object or a list. after: where the next page begins, empty for none."""

    uid: str = ""
    name: str = ""
    version: str = ""
    after: str = ""
    annotations: dict[str, str] = {}


class _Page(Struct):
    metadata: ObjectMeta
    items: list[msgspec.Raw] | None = None


_DECODER = msgspec.json.Decoder(_Page)


class PagedList:
    """One list. version: resourceVersion that it is of, once all of it has come."""

    def __init__(self, api: ApiClient, path: str, query: Query) -> None:
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
        body = await self._api.request("GET", self._path, query=query, timeout=_WITHIN)
        try:
            return _DECODER.decode(body)
        except msgspec.MsgspecError as error:
            raise ApiError(
                0, "Unreadable", f"a list of {self._path} is none: {single_line(str(error))}"
            ) from None


# Seconds after which a server ends a watch by itself, so that connections find their way to a new server.
_TIMEOUT = 280

# The bookmark that ends a streamed list.
_END = "k8s.io/initial-events-end"


class WatchedObject(Protocol):
    """What is known of an object."""

    @property
    def uid(self) -> str:
        """Tells it from every other that ever was."""

    @property
    def version(self) -> str:
        """Its resourceVersion."""


T = TypeVar("T", bound=WatchedObject)
T_contra = TypeVar("T_contra", bound=WatchedObject, contravariant=True)


class WatchHandler(Protocol[T_contra]):
    """Who follows a collection."""

    def changed(self, thing: T_contra) -> None:
        """An object is new or has changed."""

    def gone(self, uid: str) -> None:
        """An object that was told of is no more."""

    def synced(self) -> None:
        """All objects that there are have been told of, and what is no more was said to be gone."""


class _Event(Struct):
    type: str
    object: msgspec.Raw


class _Marker(Struct):
    metadata: ObjectMeta


_EVENT = msgspec.json.Decoder(_Event)
_MARKER = msgspec.json.Decoder(_Marker)
_STATUS = msgspec.json.Decoder(ApiStatus)


class Watch(Generic[T]):
    """Follows one collection for one taker.

    path: of the collection. name: what messages call it. decode: an object's JSON as the taker wants it,
    raising msgspec.MsgspecError. query: selectors, for all that is asked. heard: when the server last said
    anything, in seconds of a clock that never jumps; None for never. is_synced: whether the taker was told
    all that there is, once.
    """

    def __init__(
        self,
        api: ApiClient,
        path: str,
        name: str,
        decode: Callable[[msgspec.Raw], T],
        handler: WatchHandler[T],
        log: Log,
        query: Query | None = None,
    ) -> None:
        self._api = api
        self._path = path
        self._decode = decode
        self._taker = handler
        self._query = dict(query or {})
        self._trouble = ErrorLog(name, log)
        self._name = name
        self._tell = log
        self._unreadable: set[str] = set()  # uids
        self._known: dict[str, str] = {}  # version by uid
        self._listed: set[str] | None = None  # uids of the list that is coming in
        self._cursor = ""
        self.last_received: float | None = None
        self.is_synced = False

    async def run(self) -> NoReturn:
        """Follow it until cancelled."""
        course = WatchState()
        while True:
            began = time.monotonic()
            self._cursor = course.cursor
            try:
                if course.mode is WatchMode.PAGES:
                    await self._pages()
                    course = list_completed(course, self._cursor)
                else:
                    await self._stream(course.mode)
                    course = connection_ended(course, self._cursor, time.monotonic() - began)
            except ApiError as error:
                course = request_failed(course, self._cursor, time.monotonic() - began, error)
                # A connection that breaks after a while is made anew; trouble it is where that fails.
                if course.failures and error.status != 410:
                    self._trouble.failed(error)
            await asyncio.sleep(course.wait * random.uniform(0.5, 1.0))  # noqa: S311 - jitter

    async def _stream(self, step: WatchMode) -> None:
        query: dict[str, str | int] = {**self._query, "watch": 1, "allowWatchBookmarks": "true"}
        query["timeoutSeconds"] = _TIMEOUT
        if step is WatchMode.STREAM:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
            self._listed = set()
        else:
            query["resourceVersion"] = self._cursor
        async with aclosing(self._api.stream(self._path, query=query)) as lines:
            async for line in lines:
                self.last_received = time.monotonic()
                self._take(line)

    async def _pages(self) -> None:
        self._listed = set()
        listing = PagedList(self._api, self._path, self._query)
        async with aclosing(listing.items()) as items:
            async for item in items:
                self.last_received = time.monotonic()
                self._changed(item)
        self._end_of_list(listing.version)

    def _take(self, line: bytes) -> None:
        try:
            event = _EVENT.decode(line)
            if event.type == "ERROR":
                said = _STATUS.decode(event.object)
                raise status_error(said.code or 500, said, "", "", f"a watch of {self._path}")
            if event.type == "BOOKMARK":
                meta = _MARKER.decode(event.object).metadata
                if self._listed is not None and _END in meta.annotations:
                    self._end_of_list(meta.version)
                version = meta.version
            elif event.type == "DELETED":
                meta = _MARKER.decode(event.object).metadata
                self._forget(meta.uid)
                version = meta.version
            else:
                version = self._changed(event.object)
        except msgspec.MsgspecError as error:
            raise ApiError(
                0, "Unreadable", f"a watch of {self._path} gave what is no event: {single_line(str(error))}"
            ) from None
        # The objects of a list come in no order: until its end it does not say how far it went.
        if self._listed is None:
            self._cursor = version
            self._trouble.recovered()

    def _changed(self, raw: msgspec.Raw) -> str:
        """Tell of an object; its version. Raises msgspec.MsgspecError where it is not even one."""
        try:
            thing = self._decode(raw)
        except msgspec.MsgspecError as error:
            return self._misread(_MARKER.decode(raw).metadata, error)
        uid, version = thing.uid, thing.version
        if self._listed is not None:
            self._listed.add(uid)
        if self._known.get(uid) != version:
            self._known[uid] = version
            self._unreadable.discard(uid)
            self._taker.changed(thing)
        return version

    def _end_of_list(self, version: str) -> None:
        listed = self._listed or set()
        self._listed = None
        for uid in [uid for uid in self._known if uid not in listed]:
            self._forget(uid)
        self._unreadable &= listed
        self._cursor = version
        self._trouble.recovered()
        self.is_synced = True
        self._taker.synced()

    def _forget(self, uid: str) -> None:
        self._unreadable.discard(uid)
        if self._known.pop(uid, None) is not None:
            self._taker.gone(uid)

    def _misread(self, meta: ObjectMeta, error: msgspec.MsgspecError) -> str:
        """An object that is not what it ought to be stays as it was last known; of many, one is told of."""
        if not self._unreadable:
            self._tell(
                f"{self._name}: {single_line(meta.name)} cannot be read and stays as it was: {single_line(str(error))}"
            )
        self._unreadable.add(meta.uid)
        if self._listed is not None:
            self._listed.add(meta.uid)
        return meta.version

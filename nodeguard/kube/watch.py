"""Watch of a collection: all objects, then each change, across lost connections and restarted servers."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Generic, NoReturn, Protocol, TypeVar

import msgspec
from msgspec import Struct

from nodeguard.kube.client import ApiClient, Query
from nodeguard.kube.errors import ApiError, ApiStatus, decoded, single_line, status_error
from nodeguard.kube.objects import Bookmark, ObjectMeta, RawList, TypedObject
from nodeguard.kube.watch_state import (
    WatchMode,
    WatchState,
    connection_ended,
    list_completed,
    request_failed,
)
from nodeguard.local.backoff import jittered
from nodeguard.model.json_decoder import JsonDecoder

logger = logging.getLogger(__name__)

# Seconds after which a server ends a watch by itself, so that connections move to a new server.
_TIMEOUT = 280

# The annotation of the bookmark that ends a streamed list.
_INITIAL_EVENTS_END = "k8s.io/initial-events-end"

# Objects of a page, and between two turns of the event loop; seconds for a page.
_PAGE = 500
_YIELD_EVERY = 50
_PAGE_TIMEOUT = 30.0


class WatchedObject(Protocol):
    """The decoded form of an object."""

    @property
    def uid(self) -> str:
        """Its uid."""

    @property
    def version(self) -> str:
        """Its resourceVersion."""


T = TypeVar("T", bound=WatchedObject)
T_contra = TypeVar("T_contra", bound=WatchedObject, contravariant=True)


class WatchHandler(Protocol[T_contra]):
    """Receives the objects of a collection and their changes."""

    def changed(self, thing: T_contra) -> None:
        """Handle an object that is new or has changed."""

    def gone(self, uid: str) -> None:
        """Handle the deletion of an object that was reported before."""

    def synced(self) -> None:
        """Handle the end of a list: all objects and all deletions were reported."""


class _Event(Struct):
    type: str
    object: msgspec.Raw


_PAGE_DECODER = JsonDecoder(RawList)
_EVENT = JsonDecoder(_Event)
_OBJECT = JsonDecoder(TypedObject)
_BOOKMARK = JsonDecoder(Bookmark)
_STATUS = JsonDecoder(ApiStatus)


class Watch(Generic[T]):
    """Follows one collection and reports it to one handler.

    path: of the collection. name: its plural name for log messages. decode: turns an object's JSON into the
    handler's type; raises msgspec.MsgspecError. query: selectors for every request. if_missing: the remedy if
    the server has no such collection. is_synced: whether the handler received the whole collection once.
    error: why the latest request failed, with the remedy; empty if it works.
    """

    def __init__(
        self,
        api: ApiClient,
        path: str,
        name: str,
        decode: Callable[[msgspec.Raw], T],
        handler: WatchHandler[T],
        query: Query | None = None,
        *,
        if_missing: str = "",
    ) -> None:
        self._api = api
        self._path = path
        self._if_missing = if_missing
        self._decode = decode
        self._handler = handler
        self._query = dict(query or {})
        self._name = name
        self._versions: dict[str, str] = {}  # by uid
        self._listed: set[str] | None = None  # uids of the list that is in progress
        self._cursor = ""
        self.is_synced = False
        self.error = ""

    async def run(self) -> NoReturn:
        """Follow the collection until cancelled."""
        state = WatchState()
        while True:
            began = time.monotonic()
            self._cursor = state.cursor
            try:
                if state.mode is WatchMode.PAGES:
                    await self._list_pages()
                    state = list_completed(state, self._cursor)
                else:
                    await self._stream(state.mode)
                    state = connection_ended(state, self._cursor, time.monotonic() - began)
            except ApiError as error:
                state = request_failed(state, self._cursor, time.monotonic() - began, error)
                # A connection that breaks after some time is opened again; an error is logged if that fails.
                # A server that cannot stream a list is asked for pages at once, which is no failure.
                is_expired = error.status == 410 and self.is_synced
                if state.failures and not (is_expired or state.mode is WatchMode.PAGES):
                    remedy = f": {self._if_missing}" if error.status == 404 and self._if_missing else ""
                    self.error = f"{error.message}{remedy}"
                    logger.warning("watch failed", extra={"resource": self._name, "error": self.error})
            await asyncio.sleep(jittered(state.wait, random.random()))  # noqa: S311 - jitter

    async def _stream(self, mode: WatchMode) -> None:
        query: dict[str, str | int] = {**self._query, "watch": 1, "allowWatchBookmarks": "true"}
        query["timeoutSeconds"] = _TIMEOUT
        if mode is WatchMode.STREAM:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
            self._listed = set()
        else:
            query["resourceVersion"] = self._cursor
        async with aclosing(self._api.stream(self._path, query=query)) as lines:
            async for line in lines:
                self._handle_line(line)

    async def _list_pages(self) -> None:
        self._listed = set()
        pages = PagedList(self._api, self._path, self._query)
        async with aclosing(pages.items()) as items:
            async for item in items:
                self._object_changed(item)
        self._list_ended(pages.version)

    def _handle_line(self, line: bytes) -> None:
        try:
            event = _EVENT.decode(line)
            if event.type == "ERROR":
                status = _STATUS.decode(event.object)
                raise status_error(status.code or 500, status, "", "", f"a watch of {self._path}")
            if event.type == "BOOKMARK":
                meta = _BOOKMARK.decode(event.object).metadata
                if self._listed is not None and _INITIAL_EVENTS_END in meta.annotations:
                    self._list_ended(meta.version)
                version = meta.version
            elif event.type == "DELETED":
                deleted = _OBJECT.decode(event.object)
                self._object_deleted(deleted.uid)
                version = deleted.version
            else:
                version = self._object_changed(event.object)
        except msgspec.MsgspecError as error:
            reason = single_line(str(error))
            message = f"a watch of {self._path} returned an invalid event: {reason}"
            raise ApiError(0, "Unreadable", message) from None
        # The objects of a list arrive in no order: until its end no version is complete.
        if self._listed is None:
            self._cursor = version
            self._recovered()

    def _object_changed(self, raw: msgspec.Raw) -> str:
        """Report an object and return its version. Raises msgspec.MsgspecError if it has no metadata."""
        try:
            thing = self._decode(raw)
        except msgspec.MsgspecError as error:
            return self._object_unreadable(_OBJECT.decode(raw).metadata, error)
        uid, version = thing.uid, thing.version
        if self._listed is not None:
            self._listed.add(uid)
        if self._versions.get(uid) != version:
            self._versions[uid] = version
            self._handler.changed(thing)
        return version

    def _list_ended(self, version: str) -> None:
        listed = self._listed or set()
        self._listed = None
        for uid in [uid for uid in self._versions if uid not in listed]:
            self._object_deleted(uid)
        self._cursor = version
        self._recovered()
        self.is_synced = True
        self._handler.synced()

    def _object_deleted(self, uid: str) -> None:
        if self._versions.pop(uid, None) is not None:
            self._handler.gone(uid)

    def _recovered(self) -> None:
        if self.error:
            self.error = ""
            logger.info("watch works again", extra={"resource": self._name})

    def _object_unreadable(self, meta: ObjectMeta, error: msgspec.MsgspecError) -> str:
        """Keep the last readable state of an object, and log that."""
        fields = {"object": single_line(meta.name), "error": single_line(str(error))}
        logger.warning(
            "cannot decode an object, its last state stays in use", extra={"resource": self._name, **fields}
        )
        if self._listed is not None:
            self._listed.add(meta.uid)
        return meta.version


class PagedList:
    """A list in pages, for servers that cannot stream one. version: of the list, after its last page."""

    def __init__(self, api: ApiClient, path: str, query: Query | None = None) -> None:
        self._api = api
        self._path = path
        self._query = query or {}
        self.version = ""

    async def items(self) -> AsyncGenerator[msgspec.Raw, None]:
        """Yield the objects of the list. Raises ApiError."""
        size, token = _PAGE, ""
        while True:
            try:
                page = await self._page(size, token)
            except ApiError as error:
                if error.reason != "TooLarge" or size == 1:
                    raise
                size = max(1, size // 8)
                continue
            for index, item in enumerate(page.items or ()):
                if index % _YIELD_EVERY == 0:
                    await asyncio.sleep(0)
                yield item
            self.version, token = page.metadata.version, page.metadata.continue_token
            if not token:
                return

    async def _page(self, size: int, token: str) -> RawList:
        query = {**self._query, "limit": size, **({"continue": token} if token else {})}
        body = await self._api.request("GET", self._path, query=query, timeout=_PAGE_TIMEOUT)
        return decoded(_PAGE_DECODER.decode, body, f"the list of {self._path}")

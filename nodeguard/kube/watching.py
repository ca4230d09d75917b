"""Following a collection: all of its objects, then each change, over whatever the connection goes through."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import aclosing
from typing import Generic, NoReturn, Protocol, TypeVar

import msgspec
from msgspec import Struct

from nodeguard.kube.client import Api, Query
from nodeguard.kube.course import Course, Step, ended, failed, listed
from nodeguard.kube.listing import Listing, Meta
from nodeguard.kube.refusal import ApiError, Status, of_status, plain
from nodeguard.kube.trouble import Tell, Trouble

# Seconds after which a server ends a watch by itself, so that connections find their way to a new server.
_TIMEOUT = 280

# The bookmark that ends a streamed list.
_END = "k8s.io/initial-events-end"


class Thing(Protocol):
    """What is known of an object."""

    @property
    def uid(self) -> str:
        """Tells it from every other that ever was."""

    @property
    def version(self) -> str:
        """Its resourceVersion."""


T = TypeVar("T", bound=Thing)
T_contra = TypeVar("T_contra", bound=Thing, contravariant=True)


class Taker(Protocol[T_contra]):
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
    metadata: Meta


_EVENT = msgspec.json.Decoder(_Event)
_MARKER = msgspec.json.Decoder(_Marker)
_STATUS = msgspec.json.Decoder(Status)


class Watching(Generic[T]):
    """Follows one collection for one taker.

    path: of the collection. name: what messages call it. decode: an object's JSON as the taker wants it,
    raising msgspec.MsgspecError. query: selectors, for all that is asked. heard: when the server last said
    anything, in seconds of a clock that never jumps; None for never. is_synced: whether the taker was told
    all that there is, once.
    """

    def __init__(
        self,
        api: Api,
        path: str,
        name: str,
        decode: Callable[[msgspec.Raw], T],
        taker: Taker[T],
        tell: Tell,
        query: Query | None = None,
    ) -> None:
        self._api = api
        self._path = path
        self._decode = decode
        self._taker = taker
        self._query = dict(query or {})
        self._trouble = Trouble(name, tell)
        self._name = name
        self._tell = tell
        self._unreadable: set[str] = set()  # uids
        self._known: dict[str, str] = {}  # version by uid
        self._listed: set[str] | None = None  # uids of the list that is coming in
        self._cursor = ""
        self.heard: float | None = None
        self.is_synced = False

    async def run(self) -> NoReturn:
        """Follow it until cancelled."""
        course = Course()
        while True:
            began = time.monotonic()
            self._cursor = course.cursor
            try:
                if course.step is Step.PAGES:
                    await self._pages()
                    course = listed(course, self._cursor)
                else:
                    await self._stream(course.step)
                    course = ended(course, self._cursor, time.monotonic() - began)
            except ApiError as error:
                course = failed(course, self._cursor, time.monotonic() - began, error)
                # A connection that breaks after a while is made anew; trouble it is where that fails.
                if course.failures and error.status != 410:
                    self._trouble.met(error)
            await asyncio.sleep(course.wait * random.uniform(0.5, 1.0))  # noqa: S311 - jitter

    async def _stream(self, step: Step) -> None:
        query: dict[str, str | int] = {**self._query, "watch": 1, "allowWatchBookmarks": "true"}
        query["timeoutSeconds"] = _TIMEOUT
        if step is Step.STREAM:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
            self._listed = set()
        else:
            query["resourceVersion"] = self._cursor
        async with aclosing(self._api.stream(self._path, query=query)) as lines:
            async for line in lines:
                self.heard = time.monotonic()
                self._take(line)

    async def _pages(self) -> None:
        self._listed = set()
        listing = Listing(self._api, self._path, self._query)
        async with aclosing(listing.items()) as items:
            async for item in items:
                self.heard = time.monotonic()
                self._changed(item)
        self._end_of_list(listing.version)

    def _take(self, line: bytes) -> None:
        try:
            event = _EVENT.decode(line)
            if event.type == "ERROR":
                said = _STATUS.decode(event.object)
                raise of_status(said.code or 500, said, "", "", f"a watch of {self._path}")
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
                0, "Unreadable", f"a watch of {self._path} gave what is no event: {plain(str(error))}"
            ) from None
        # The objects of a list come in no order: until its end it does not say how far it went.
        if self._listed is None:
            self._cursor = version
            self._trouble.over()

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
        self._trouble.over()
        self.is_synced = True
        self._taker.synced()

    def _forget(self, uid: str) -> None:
        self._unreadable.discard(uid)
        if self._known.pop(uid, None) is not None:
            self._taker.gone(uid)

    def _misread(self, meta: Meta, error: msgspec.MsgspecError) -> str:
        """An object that is not what it ought to be stays as it was last known; of many, one is told of."""
        if not self._unreadable:
            self._tell(
                f"{self._name}: {plain(meta.name)} cannot be read and stays as it was: {plain(str(error))}"
            )
        self._unreadable.add(meta.uid)
        if self._listed is not None:
            self._listed.add(meta.uid)
        return meta.version

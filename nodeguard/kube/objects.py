"""What all objects of the Kubernetes API share: metadata, and lists. A module that reads a kind of object
defines only its spec and status, and of these only the fields that it reads.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec
from msgspec import Struct, field

T = TypeVar("T")


class OwnerReference(Struct):
    """An object that owns another one. api: its group and version. controller: whether it manages it; null
    for false.
    """

    api: str = field(name="apiVersion", default="")
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None

    @property
    def is_job(self) -> bool:
        """Return whether it is a Job of Kubernetes: other groups have a kind of this name, too."""
        return self.kind == "Job" and self.api.startswith("batch/")


class ObjectMeta(Struct):
    """Metadata of a stored object. version: its resourceVersion. namespace: empty for a cluster's object.
    deleted_at: when its deletion began, empty before.
    """

    name: str
    uid: str
    version: str = field(name="resourceVersion")
    namespace: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owners: list[OwnerReference] = field(name="ownerReferences", default_factory=list)
    deleted_at: str = field(name="deletionTimestamp", default="")


class TypedObject(Struct):
    """An object by its metadata."""

    metadata: ObjectMeta

    @property
    def uid(self) -> str:
        """Its uid."""
        return self.metadata.uid

    @property
    def version(self) -> str:
        """Its resourceVersion."""
        return self.metadata.version


class ListMeta(Struct):
    """Metadata of a list or a bookmark. continue_token: of the next page, empty for none. Only the API server
    sets a version: without it, the JSON of a proxy would be an empty list.
    """

    version: str = field(name="resourceVersion")
    continue_token: str = field(name="continue", default="")
    annotations: dict[str, str] = {}


class TypedList(Struct, Generic[T]):
    """A list of objects, or a page of one."""

    metadata: ListMeta
    items: list[T] | None = None


class Bookmark(Struct):
    """The object of a watch event that has only a version."""

    metadata: ListMeta


RawList = TypedList[msgspec.Raw]

"""The aggregator's authority in the cluster: its keys in a Secret, its certificates in a ConfigMap."""

from __future__ import annotations

import base64
import binascii
from urllib.parse import quote

import msgspec
from msgspec import Struct

from nodeguard.aggregator.certificates.stored import StoreConflictError, Stored, StoreError
from nodeguard.kube.client import ApiClient, ApiError

SECRET_NAME = "nodeguard-ca"  # noqa: S105 - an object's name
CONFIG_MAP_NAME = "nodeguard-ca"
CA_BUNDLE_KEY = "ca.crt"
_STATE = "authority.json"

_LABELS = {"app.kubernetes.io/name": "nodeguard"}


class _Metadata(Struct, frozen=True):
    version: str = msgspec.field(default="", name="resourceVersion")


class _Object(Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    data: dict[str, str] | None = None


class AuthoritySecretStore:
    """namespace: the aggregator's own, where its Secret and its ConfigMap are."""

    def __init__(self, api: ApiClient, namespace: str) -> None:
        self.name = f"Secret {namespace}/{SECRET_NAME}"
        self._api = api
        self._namespace = namespace

    async def read(self) -> Stored:
        """What is kept. Raises StoreError."""
        # In this order: a bundle that is written over had no newer state behind it.
        shown = await self._get("configmaps", CONFIG_MAP_NAME)
        kept = await self._get("secrets", SECRET_NAME)
        text = (kept.data or {}).get(_STATE, "")
        try:
            state = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise StoreError(f"{self.name} cannot be read: delete it") from None
        bundle = (shown.data or {}).get(CA_BUNDLE_KEY, "")
        return Stored(state, kept.metadata.version, bundle, shown.metadata.version)

    async def keep(self, state: bytes, before: Stored) -> None:
        """Write a state. Raises StoreConflictError, StoreError."""
        data = {_STATE: base64.b64encode(state).decode()}
        await self._put("secrets", "Secret", SECRET_NAME, data, before.version)

    async def publish(self, bundle: str, before: Stored) -> None:
        """Write what agents read. Raises StoreConflictError, StoreError."""
        await self._put(
            "configmaps", "ConfigMap", CONFIG_MAP_NAME, {CA_BUNDLE_KEY: bundle}, before.bundle_version
        )

    async def _get(self, kind: str, name: str) -> _Object:
        try:
            return msgspec.json.decode(await self._api.request("GET", self._path(kind, name)), type=_Object)
        except ApiError as error:
            if error.status == 404:
                return _Object()
            raise StoreError(str(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise StoreError("the answer is not one of the Kubernetes API: check its address") from None

    async def _put(self, kinds: str, kind: str, name: str, data: dict[str, str], version: str) -> None:
        """Make an object, or write one over that is still the same. Raises StoreConflictError, StoreError."""
        metadata: dict[str, object] = {"name": name, "namespace": self._namespace, "labels": _LABELS}
        whole = {"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": data}
        try:
            if version:
                metadata["resourceVersion"] = version
                await self._api.request("PUT", self._path(kinds, name), body=whole)
            else:
                await self._api.request("POST", self._path(kinds), body=whole)
        except ApiError as error:
            # Somebody else made it, wrote it, or deleted it in between.
            if error.status == 409 or (version and error.status == 404):
                raise StoreConflictError from None
            raise StoreError(str(error)) from None

    def _path(self, kinds: str, name: str = "") -> str:
        return f"/api/v1/namespaces/{quote(self._namespace, safe='')}/{kinds}{'/' if name else ''}{name}"

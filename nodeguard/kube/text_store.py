"""A text in a ConfigMap or a Secret: the certificate authority of the aggregators, and what agents trust."""

from __future__ import annotations

import base64
import binascii
from urllib.parse import quote

import msgspec

from nodeguard.kube.client import ApiClient, ApiError
from nodeguard.kube.objects import TypedObject
from nodeguard.model.json_decoder import JsonDecoder
from nodeguard.model.stored_text import StoreConflictError, StoredText, StoreError

SECRET_NAME = "nodeguard-ca"  # noqa: S105 - an object's name
CONFIG_MAP_NAME = "nodeguard-ca"
CA_BUNDLE_KEY = "ca.crt"
_AUTHORITY_KEY = "authority.json"

_LABELS = {"app.kubernetes.io/name": "nodeguard"}


class _Object(TypedObject):
    data: dict[str, str] | None = None


class KubernetesTextStore:
    """The text under one key of an object. namespace: the aggregator's own."""

    def __init__(self, api: ApiClient, namespace: str, kind: str, name: str, key: str) -> None:
        self.name = f"{kind} {namespace}/{name}"
        self._api = api
        self._kind = kind
        self._key = key
        self._metadata = {"name": name, "namespace": namespace, "labels": _LABELS}
        self._collection = f"/api/v1/namespaces/{quote(namespace, safe='')}/{kind.lower()}s"
        self._path = f"{self._collection}/{name}"

    async def read(self) -> StoredText:
        """Return the stored text. Raises StoreError."""
        try:
            response = await self._api.request("GET", self._path)
            stored = JsonDecoder(_Object).decode(response)
            return StoredText(self._decoded((stored.data or {}).get(self._key, "")), stored.version)
        except ApiError as error:
            if error.status == 404:
                return StoredText()
            raise StoreError(str(error)) from None
        except msgspec.DecodeError:
            raise StoreError("the response does not come from a Kubernetes API: check the address") from None

    async def write(self, text: str, previous: StoredText) -> None:
        """Create the object, or replace the version that was read. Raises StoreConflictError, StoreError."""
        data = {self._key: base64.b64encode(text.encode()).decode() if self._kind == "Secret" else text}
        body = {"apiVersion": "v1", "kind": self._kind, "metadata": self._metadata, "data": data}
        try:
            if previous.version:
                body["metadata"] = {**self._metadata, "resourceVersion": previous.version}
                await self._api.request("PUT", self._path, body=body)
            else:
                await self._api.request("POST", self._collection, body=body)
        except ApiError as error:
            # Another writer created, changed or deleted it meanwhile.
            if error.status == 409 or (previous.version and error.status == 404):
                raise StoreConflictError from None
            raise StoreError(str(error)) from None

    def _decoded(self, value: str) -> str:
        if self._kind != "Secret":
            return value
        try:
            return base64.b64decode(value, validate=True).decode()
        except (binascii.Error, ValueError):
            raise StoreError(f"{self.name} could not be read: delete it") from None


def authority_store(api: ApiClient, namespace: str) -> KubernetesTextStore:
    """Return the store of the certificate authority, which only aggregators read."""
    return KubernetesTextStore(api, namespace, "Secret", SECRET_NAME, _AUTHORITY_KEY)


def ca_bundle_store(api: ApiClient, namespace: str) -> KubernetesTextStore:
    """Return the store of the CA certificates that agents trust."""
    return KubernetesTextStore(api, namespace, "ConfigMap", CONFIG_MAP_NAME, CA_BUNDLE_KEY)

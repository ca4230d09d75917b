"""Storage of the aggregator's certificate authority: keys in a Secret, certificates in a ConfigMap."""

from __future__ import annotations

import base64
import binascii
from urllib.parse import quote

import msgspec

from nodeguard.kube.client import ApiClient, ApiError
from nodeguard.kube.objects import TypedObject
from nodeguard.model.stored_authority import StoreConflictError, Stored, StoreError

SECRET_NAME = "nodeguard-ca"  # noqa: S105 - an object's name
CONFIG_MAP_NAME = "nodeguard-ca"
CA_BUNDLE_KEY = "ca.crt"
_STATE_KEY = "authority.json"

_LABELS = {"app.kubernetes.io/name": "nodeguard"}


class _Object(TypedObject):
    data: dict[str, str] | None = None


class CaBundleStore:
    """Reads and writes the ConfigMap. namespace: the aggregator's own."""

    def __init__(self, api: ApiClient, namespace: str) -> None:
        self.name = f"ConfigMap {namespace}/{CONFIG_MAP_NAME}"
        self._api = api
        self._namespace = namespace

    async def read(self) -> Stored:
        """Return the stored bundle. Raises StoreError."""
        bundle, version = await self._get("configmaps", CONFIG_MAP_NAME, CA_BUNDLE_KEY)
        return Stored(bundle=bundle, bundle_version=version)

    async def publish(self, bundle: str, before: Stored) -> None:
        """Write the certificates that agents read. Raises StoreConflictError, StoreError."""
        data = {CA_BUNDLE_KEY: bundle}
        await self._put("configmaps", "ConfigMap", CONFIG_MAP_NAME, data, before.bundle_version)

    async def _get(self, resource: str, name: str, key: str) -> tuple[str, str]:
        """Return an object's text under a key, and its version; both are empty if there is none."""
        try:
            response = await self._api.request("GET", self._path(resource, name))
            stored = msgspec.json.decode(response, type=_Object)
            return (stored.data or {}).get(key, ""), stored.version
        except ApiError as error:
            if error.status == 404:
                return "", ""
            raise StoreError(str(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise StoreError("the response does not come from a Kubernetes API: check the address") from None

    async def _put(self, resource: str, kind: str, name: str, data: dict[str, str], version: str) -> None:
        """Create an object, or replace one with this version. Raises StoreConflictError, StoreError."""
        metadata: dict[str, object] = {"name": name, "namespace": self._namespace, "labels": _LABELS}
        body = {"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": data}
        try:
            if version:
                metadata["resourceVersion"] = version
                await self._api.request("PUT", self._path(resource, name), body=body)
            else:
                await self._api.request("POST", self._path(resource), body=body)
        except ApiError as error:
            # Another writer created, changed or deleted it meanwhile.
            if error.status == 409 or (version and error.status == 404):
                raise StoreConflictError from None
            raise StoreError(str(error)) from None

    def _path(self, resource: str, name: str = "") -> str:
        collection = f"/api/v1/namespaces/{quote(self._namespace, safe='')}/{resource}"
        return f"{collection}/{name}" if name else collection


class AuthoritySecretStore(CaBundleStore):
    """Reads and writes the Secret, too."""

    def __init__(self, api: ApiClient, namespace: str) -> None:
        super().__init__(api, namespace)
        self.name = f"Secret {namespace}/{SECRET_NAME}"

    async def read(self) -> Stored:
        """Return the stored authority. Raises StoreError."""
        # The bundle is read first, so that the state is never older: `publish` replaces only this version.
        published = await super().read()
        text, version = await self._get("secrets", SECRET_NAME, _STATE_KEY)
        try:
            state = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise StoreError(f"{self.name} could not be read: delete it") from None
        return Stored(state, version, published.bundle, published.bundle_version)

    async def keep(self, state: bytes, before: Stored) -> None:
        """Write the authority's state. Raises StoreConflictError, StoreError."""
        data = {_STATE_KEY: base64.b64encode(state).decode()}
        await self._put("secrets", "Secret", SECRET_NAME, data, before.version)

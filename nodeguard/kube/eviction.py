"""The pods of a drain in Kubernetes: reads them, announces and requests their eviction, under one epoch of
the lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from urllib.parse import quote

from msgspec.structs import replace

from nodeguard.kube.claims import (
    Claim,
    ClaimKey,
    claim_keys,
    consuming_groups,
    decode_claim,
    with_claimed_gpus,
)
from nodeguard.kube.client import MERGE_PATCH, Query
from nodeguard.kube.devices import API_GROUP, decode_gpu_ids
from nodeguard.kube.devices import PATH as RESOURCE_SLICES
from nodeguard.kube.disruption_budgets import decode_budgets
from nodeguard.kube.errors import DISRUPTION_BUDGET, ApiError, decoded, may_have_succeeded
from nodeguard.kube.events import EventContent
from nodeguard.kube.fenced_client import JSON, FencedClient, FencedError, NotPermittedError
from nodeguard.kube.gpu_pods import decode_gpu_pods, decode_page
from nodeguard.kube.job_retries import decode_job_retries
from nodeguard.kube.node_pods import PATH
from nodeguard.kube.pod_group import decode_leaves_whole, decode_selector, decode_uid, pod_group_path
from nodeguard.model.eviction import (
    DrainEvent,
    Eviction,
    EvictionState,
    NodeDrain,
    PodNotice,
    PodReadError,
)
from nodeguard.model.job import JobRetries, is_job_name
from nodeguard.model.pod import DRAIN_AT_ANNOTATION, DisruptionBudget, NodePod, PodGroupKey, PodKey

# Claims that are read at the same time, and those of one Node: a user may write any number into a pod.
_PARALLEL = 8
_MAX_CLAIMS = 1_000

_UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"

# Pods of one page of a namespace. A quarter of them after a page that is too large.
_PAGE = 500

# Recorded pods that are read one by one rather than a page of their namespace. A page costs the aggregator as
# much as 50 (decision 102), but each request costs the API server, too.
_READS_OF_PAGE = 20

# Bytes of a page, of the pods of one Node, of which a kubelet runs 110 by default, and of the budgets of a
# namespace.
_MAX_BYTES = 16 * 1024 * 1024

# Part of the message of the API server if two budgets select the pod (Kubernetes 1.37, status 500).
_TWO_BUDGETS = "more than one PodDisruptionBudget"

_RIGHTS = "with the value policy.drain.mode: observe or enforce"
_NOTICE_RIGHTS = "with a rule of policy.drain.rules that has `when: deadline`"

_NOT_LEADING = "this aggregator may not write now: it does not hold the lease"

# Seconds until a request without an answer is sent again, and the longest wait that the server can ask for.
_RETRY = 1.0
_LONGEST_RETRY = 60.0


class _MissingError(PodReadError):
    """There is no such object, or the server has none of its kind."""


class _TooLargeError(PodReadError):
    """The response is larger than the limit."""


class KubernetesDrainCluster:
    """See DrainCluster. show: shows drains on their Nodes. record: sends an Event."""

    def __init__(
        self,
        client: FencedClient,
        show: Callable[[Collection[NodeDrain]], object] = lambda _: None,
        record: Callable[[EventContent], object] = lambda _: None,
    ) -> None:
        self._client = client
        self._show = show
        self._record = record
        # Pages of the latest whole list of the pods of a namespace.
        self._pages: dict[str, int] = {}

    async def node_pods(self, node: str) -> tuple[NodePod, ...]:
        """Return the pods of a Node that are not finished. Raises PodReadError."""
        # Without a resource version the list is as new as the request. The server answers it from its cache,
        # which has an index of the pods by Node, since Kubernetes 1.31, and only without a limit before 1.34.
        query = {"fieldSelector": f"spec.nodeName={node},{_UNFINISHED}"}
        body = await self._read(PATH, query)
        try:
            return decoded(decode_gpu_pods, body, f"the pods of Node {node}")
        except ApiError as error:
            raise PodReadError(error.message) from None

    async def with_claims(self, node: str, pods: Collection[NodePod]) -> tuple[NodePod, ...]:
        """Return some pods of a Node with the GPUs of their ResourceClaims, as far as these can be known.
        Raises PodReadError.
        """
        keys = claim_keys(pods)
        if not keys:
            return tuple(pods)
        if len(keys) > _MAX_CLAIMS:
            raise PodReadError(
                f"the pods of Node {node} name {len(keys)} ResourceClaims, and a drain reads at most "
                f"{_MAX_CLAIMS}: evict them with kubectl drain"
            )
        try:
            slices = await self._read(RESOURCE_SLICES, {"fieldSelector": f"spec.nodeName={node}"})
        except _MissingError:
            # The server has no resource.k8s.io/v1.
            return tuple(pods)
        try:
            gpu_ids = decoded(decode_gpu_ids, slices, f"the ResourceSlices of Node {node}")
        except ApiError as error:
            raise PodReadError(error.message) from None
        claims: dict[ClaimKey, Claim] = {}
        # After an error no further one is requested.
        for first in range(0, len(keys), _PARALLEL):
            names = keys[first : first + _PARALLEL]
            found = zip(names, await asyncio.gather(*map(self._claim, names)), strict=True)
            claims |= {key: claim for key, claim in found if claim is not None}
        groups = {group: await self._group_uid(group) for group in consuming_groups(pods, claims)}
        return tuple(with_claimed_gpus(pod, claims, gpu_ids, groups) for pod in pods)

    async def _group_uid(self, group: PodGroupKey) -> str:
        """Return the uid of a PodGroup; empty if there is none of that name. Raises PodReadError."""
        try:
            return decoded(decode_uid, await self._read(pod_group_path(group), {}), f"PodGroup {group}")
        except _MissingError:
            return ""
        except ApiError as error:
            raise PodReadError(error.message) from None

    async def _claim(self, key: ClaimKey) -> Claim | None:
        """Return a ResourceClaim; None if there is none of that name. Raises PodReadError."""
        namespace, name = key
        path = f"{API_GROUP}/namespaces/{namespace}/resourceclaims/{name}"
        try:
            return decoded(decode_claim, await self._read(path, {}), f"ResourceClaim {namespace}/{name}")
        except _MissingError:
            return None
        except ApiError as error:
            raise PodReadError(error.message) from None

    async def leaves_whole(self, group: PodGroupKey) -> bool:
        """Return whether the pods of a PodGroup may be disrupted only together. Raises PodReadError."""
        try:
            body = await self._read(pod_group_path(group), {})
            return decoded(decode_leaves_whole, body, f"PodGroup {group}")
        except ApiError as error:
            raise PodReadError(error.message) from None
        except PodReadError as error:
            reason = f"it is not known whether PodGroup {group} leaves whole: {error}"
            raise PodReadError(reason, error.retry_after) from None

    async def group_pods(
        self, groups: Collection[PodGroupKey], recorded: Collection[PodKey] | None = None
    ) -> tuple[NodePod, ...]:
        """Return the pods of some PodGroups that are not finished, on all nodes. Raises PodReadError.
        recorded: the only ones that are needed; None for all.
        The API server has no field selector for the group, so that the pods of the namespace are listed,
        unless a Job has created the group, with pods that have its label, or those that are needed are few.
        """
        if recorded is not None and self._are_few(recorded):
            return await self._named_pods(recorded)
        found, others = list[NodePod](), set[PodGroupKey]()
        for group in groups:
            selector = await self._pod_selector(group)
            listed = self._namespace_pods(group.namespace, selector)
            pods = [pod async for pod in listed if pod.group == group] if selector else []
            found += pods
            if not pods:
                others.add(group)
        for namespace in sorted({group.namespace for group in others}):
            found += [pod async for pod in self._namespace_pods(namespace) if pod.group in others]
        return tuple(found)

    def _are_few(self, pods: Collection[PodKey]) -> bool:
        """Return whether pods are better read one by one than by lists of their namespaces."""
        pages = [self._pages.get(namespace, 0) for namespace in {pod.namespace for pod in pods}]
        return all(count > 1 for count in pages) and len(pods) <= sum(pages) * _READS_OF_PAGE

    async def _named_pods(self, keys: Collection[PodKey]) -> tuple[NodePod, ...]:
        """Return some pods that are not finished. One that was created again has another uid."""
        limit = asyncio.Semaphore(_PARALLEL)

        async def read(key: PodKey) -> tuple[NodePod, ...]:
            # A list, which needs no right to get pods. The API server reads only this pod.
            query = {"fieldSelector": f"metadata.name={key.name},{_UNFINISHED}"}
            async with limit:
                body = await self._read(f"/api/v1/namespaces/{key.namespace}/pods", query)
            try:
                return decoded(decode_gpu_pods, body, f"pod {key}")
            except ApiError as error:
                raise PodReadError(error.message) from None

        return tuple(pod for pods in await asyncio.gather(*map(read, keys)) for pod in pods)

    async def _pod_selector(self, group: PodGroupKey) -> str:
        """Return the label selector of the pods of a PodGroup; empty if it cannot be known."""
        try:
            return decoded(decode_selector, await self._read(pod_group_path(group), {}), f"PodGroup {group}")
        except (ApiError, PodReadError):
            return ""

    async def _namespace_pods(self, namespace: str, selector: str = "") -> AsyncIterator[NodePod]:
        path, token, limit, pages = f"/api/v1/namespaces/{namespace}/pods", "", _PAGE, 0
        while True:
            query: Query = {"fieldSelector": _UNFINISHED, "limit": limit}
            if selector:
                query = {**query, "labelSelector": selector}
            if token:
                query = {**query, "continue": token}
            try:
                body = await self._read(path, query)
            except _TooLargeError:
                if limit == 1:
                    raise
                limit = max(1, limit // 4)
                continue
            try:
                pods, token = decoded(decode_page, body, f"the pods of namespace {namespace}")
            except ApiError as error:
                raise PodReadError(error.message) from None
            for pod in pods:
                yield pod
            pages += 1
            if not token:
                break
        if not selector:
            self._pages[namespace] = pages

    async def disruption_budgets(self, namespace: str) -> tuple[DisruptionBudget, ...]:
        """Return the disruption budgets of a namespace as they are stored now. Raises PodReadError."""
        body = await self._read(f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets", {})
        try:
            return decoded(decode_budgets, body, f"the PodDisruptionBudgets of namespace {namespace}")
        except ApiError as error:
            raise PodReadError(error.message) from None

    async def job_retries(self, namespace: str, name: str) -> JobRetries:
        """Return the failures that a Job survives. Raises PodReadError."""
        # The owner reference of a pod may have any text as the name.
        if not is_job_name(name):
            raise PodReadError("a Job cannot have this name")
        path = f"/apis/batch/v1/namespaces/{namespace}/jobs/{quote(name, safe='')}"
        try:
            return decoded(decode_job_retries, await self._read(path, {}), f"Job {namespace}/{name}")
        except ApiError as error:
            raise PodReadError(error.message) from None

    async def evict(self, pod: NodePod, *, is_dry_run: bool) -> Eviction:
        """See DrainCluster."""
        key = pod.key
        # A kubelet may report a status at any time, and with it the API server would not say what forbids.
        preconditions = {"uid": key.uid}
        options: dict[str, object] = {"preconditions": preconditions}
        if is_dry_run:
            options["dryRun"] = ["All"]
        else:
            preconditions["resourceVersion"] = pod.version
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": key.name, "namespace": key.namespace},
            "deleteOptions": options,
        }
        path = f"/api/v1/namespaces/{key.namespace}/pods/{key.name}/eviction"
        return await self._write(_RIGHTS, "POST", path, body, JSON)

    async def write_notice(self, pod: NodePod, notice: PodNotice, *, is_dry_run: bool) -> Eviction:
        """Write or remove the notice of a pod, if it is still the one of its uid, with an Event. is_dry_run:
        only ask whether it is allowed.
        """
        key = pod.key
        annotations = {DRAIN_AT_ANNOTATION: notice.drain_at or None}
        body = {"metadata": {"uid": key.uid, "annotations": annotations}}
        path = f"/api/v1/namespaces/{key.namespace}/pods/{key.name}"
        query = {"dryRun": "All"} if is_dry_run else None
        response = await self._write(_NOTICE_RIGHTS, "PATCH", path, body, MERGE_PATCH, query)
        if response.state == EvictionState.ACCEPTED and not is_dry_run:
            kind, reason = (
                ("Warning", "NodeguardDrainNotice")
                if notice.drain_at
                else ("Normal", "NodeguardDrainWithdrawn")
            )
            event = EventContent(key.name, key.uid, kind, reason, notice.message, "Pod", "v1", key.namespace)
            self._record(event)
        return response

    async def _write(
        self,
        rights: str,
        method: str,
        path: str,
        body: object,
        content_type: str,
        query: Query | None = None,
    ) -> Eviction:
        """Send a write, and return its response. rights: as of _message."""
        try:
            await self._client.write(method, path, body, content_type, query)
        except ApiError as error:
            return Eviction(eviction_state(error), _message(error, rights), retry_wait(error))
        except (NotPermittedError, FencedError):
            return Eviction(EvictionState.FAILED, _NOT_LEADING, _RETRY)
        return Eviction(EvictionState.ACCEPTED)

    def record(self, event: DrainEvent) -> None:
        """Record an Event on the Node of a drain."""
        kind = "Warning" if event.is_warning else "Normal"
        content = EventContent(event.node, event.uid, kind, event.reason, event.message)
        self._record(replace(content, key=event.key, at=float(event.at)))

    def show(self, drains: Collection[NodeDrain]) -> None:
        """Show some drains on their Nodes, and no other drain on any Node."""
        self._show(drains)

    async def _read(self, path: str, query: Query) -> bytes:
        try:
            return await self._client.read(path, query, max_bytes=_MAX_BYTES)
        except ApiError as error:
            problem = PodReadError
            if error.status == 404:
                problem = _MissingError
            elif error.reason == "TooLarge":
                problem = _TooLargeError
            raise problem(_message(error, _RIGHTS), retry_wait(error)) from None
        except NotPermittedError:
            raise PodReadError(_NOT_LEADING, _RETRY) from None


def _message(error: ApiError, rights: str) -> str:
    """Return the message of an error. rights: for a missing right, the value of the chart that grants it."""
    return f"{error.message} {rights}" if error.lacks_right else error.message


def eviction_state(error: ApiError) -> EvictionState:
    """Return the state of an eviction or a notice that the API server did not accept."""
    # A patch that names another uid would change a field that never changes: the status is 422.
    if error.status == 404 or "metadata.uid" in error.fields:
        return EvictionState.GONE
    if error.status == 409:
        return EvictionState.CHANGED
    if error.reason == DISRUPTION_BUDGET:
        return EvictionState.REFUSED
    if _TWO_BUDGETS in error.message or error.status == 403:
        return EvictionState.FORBIDDEN
    return EvictionState.UNKNOWN if may_have_succeeded(error) else EvictionState.FAILED


def retry_wait(error: ApiError) -> float:
    """Return the seconds after which a request may be sent again, within limits; 0 if its answer lasts. Too
    many requests without a time is the answer of a budget or a webhook.
    """
    is_unanswered = error.status >= 500 or (error.status == 0 and error.reason != "TooLarge")
    least = _RETRY if is_unanswered and eviction_state(error) != EvictionState.FORBIDDEN else 0.0
    return min(_LONGEST_RETRY, max(least, error.retry_after or 0.0))

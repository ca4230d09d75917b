"""Runs a command of nodeguard in the pod of the active aggregator, or of an agent, by `kubectl exec`."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from urllib.parse import quote

from msgspec import Struct, field

from nodeguard.aggregator.backends.kubernetes import LEASE_NAME
from nodeguard.cli.plugin.cluster import ask, missing_right
from nodeguard.cli.plugin.options import ClusterOptions, with_options
from nodeguard.cli.program import PROGRAM
from nodeguard.cli.streams import in_color
from nodeguard.cli.usage import UsageError
from nodeguard.kube.client import ApiClient, ApiError
from nodeguard.kube.lease_record import LeaseRecord
from nodeguard.kube.objects import TypedObject
from nodeguard.kube.reading import Right, get_object, has_right, list_objects

# Any aggregator answers, if there is no leader or its pod is gone.
_NAME = "nodeguard-aggregator"
_DEPLOYMENT = f"deployment/{_NAME}"
_AGENT = "nodeguard-agent"
# Where the chart mounts the root of the node.
AGENT_ROOT = "/host"
_POD = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")

ADMIN_ROLE = "the Role nodeguard-admin (value roles.admin.enabled of the chart)"


class _DeploymentStatus(Struct, frozen=True):
    ready: int = field(name="readyReplicas", default=0)


class _Deployment(TypedObject):
    """The Deployment of the aggregators."""

    status: _DeploymentStatus = _DeploymentStatus()


def run_in_pod(options: ClusterOptions, words: Sequence[str]) -> int:
    """Run a command in the pod of the leader; returns its exit code. Raises UsageError."""
    return _execute(options, partial(find_pod, options), "aggregator", words)


def run_on_node(options: ClusterOptions, words: Sequence[str]) -> int:
    """Run a command in the pod of the agent of a node; returns its exit code. Raises UsageError."""
    return _execute(options, partial(find_agent, options), "agent", words)


def _execute(
    options: ClusterOptions, find: Callable[[ApiClient], Awaitable[str]], container: str, words: Sequence[str]
) -> int:
    """Run a command; returns its exit code. words: of the command. Raises UsageError."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise UsageError(
            "kubectl is not on the PATH: install it, because this command runs in a pod of the cluster"
        )
    pod = ask(options, find)
    terminal = ["--stdin", "--tty"] if _is_interactive() else []
    arguments = [
        "kubectl",
        "exec",
        *options.kubectl_options(),
        pod,
        f"--container={container}",
        *terminal,
        "--",
    ]
    return _run(
        kubectl, [*arguments, "env", f"{PROGRAM}={options.program}", "nodeguard", *_with_color(words)]
    )


def _is_interactive() -> bool:
    """Return whether a terminal is on both sides. Without one, standard input is left to the caller."""
    return bool(sys.stdin and sys.stdin.isatty() and sys.stdout and sys.stdout.isatty())


def _with_color(words: Sequence[str]) -> list[str]:
    """Return a command that is in color where it would be here."""
    return with_options(words, [f"--color={'always' if in_color() else 'never'}"])


async def find_pod(options: ClusterOptions, client: ApiClient) -> str:
    """Return what to run the command in: the pod of the leader. Raises UsageError and ApiError."""
    namespace = options.namespace
    await _require_exec(options, client)
    try:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{LEASE_NAME}"
        lease = await get_object(client, path, LeaseRecord)
    except ApiError as error:
        if error.status == 403:
            right = f"read the Lease {LEASE_NAME} in the namespace {namespace}"
            raise missing_right(options, right, ADMIN_ROLE) from None
        if error.status == 404:
            return await _without_lease(client, namespace)
        raise
    pod = lease.spec.holder.rpartition("_")[0]
    # A leader that was killed leaves its name in the Lease.
    is_there = _POD.fullmatch(pod) and await _exists(client, f"/api/v1/namespaces/{namespace}/pods/{pod}")
    return f"pod/{pod}" if is_there else _DEPLOYMENT


async def find_agent(options: ClusterOptions, client: ApiClient) -> str:
    """Return the pod of the agent on a node. Raises UsageError and ApiError."""
    namespace = options.namespace
    await _require_exec(options, client)
    labels = quote(f"app.kubernetes.io/name={_AGENT}", safe="")
    fields = quote(f"spec.nodeName={options.node},status.phase=Running", safe="")
    path = f"/api/v1/namespaces/{namespace}/pods?labelSelector={labels}&fieldSelector={fields}"
    async for pod in list_objects(client, path, TypedObject):
        return f"pod/{pod.metadata.name}"
    raise UsageError(
        f"no agent runs on a node '{options.node}': kubectl get pods -n {namespace} "
        f"-l app.kubernetes.io/name={_AGENT} -o wide lists the pods with their nodes"
    )


async def _require_exec(options: ClusterOptions, client: ApiClient) -> None:
    """Check that the user may run commands in pods. Raises UsageError and ApiError."""
    if not await has_exec(options, client):
        raise missing_exec(options)


def may_run_in_pod(options: ClusterOptions) -> bool:
    """Return whether the user may run commands in pods. Raises UsageError."""
    return ask(options, partial(has_exec, options))


async def has_exec(options: ClusterOptions, client: ApiClient) -> bool:
    """Return whether the user may run commands in pods. Raises ApiError."""
    return await has_right(client, Right("create", "", "pods/exec", options.namespace))


def missing_exec(options: ClusterOptions) -> UsageError:
    """Return the error for a user who may not run commands in pods."""
    return missing_right(options, f"run commands in pods of the namespace {options.namespace}", ADMIN_ROLE)


async def _without_lease(client: ApiClient, namespace: str) -> str:
    """Return what to run the command in while no aggregator has created the Lease, as in the first seconds of
    an installation. Raises UsageError if none is ready, and ApiError.
    """
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{_NAME}"
    try:
        deployment = await get_object(client, path, _Deployment)
    except ApiError as error:
        if error.status not in {403, 404}:
            raise
        raise UsageError(
            f"there is no aggregator in the namespace {namespace}: name its namespace with -n before the "
            "command, or its cluster with --context"
        ) from None
    if deployment.status.ready:
        return _DEPLOYMENT
    raise UsageError(
        f"no aggregator has started yet in the namespace {namespace}: its pods have the reason, "
        f"kubectl describe pods -n {namespace} -l app.kubernetes.io/name={_NAME}"
    )


async def _exists(client: ApiClient, path: str) -> bool:
    """Return whether an object exists that this user may read. Raises ApiError."""
    try:
        await get_object(client, path, TypedObject)
    except ApiError as error:
        if error.status in {403, 404}:
            return False
        raise
    return True


def _run(program: str, arguments: list[str]) -> int:
    """Run a program with the streams of this one; returns its exit code, as a shell does for signals."""
    child = os.posix_spawn(program, arguments, os.environ)
    try:
        _, status = os.waitpid(child, 0)
    except KeyboardInterrupt:
        os.waitpid(child, 0)  # the terminal has interrupted it, too
        raise
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code

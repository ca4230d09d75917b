"""The access of agents: backend, authentication and serving certificate, in Kubernetes and standalone."""

from __future__ import annotations

import os
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, NamedTuple

from nodeguard.aggregator.backends.backend import Backend
from nodeguard.aggregator.backends.kubernetes import KubernetesBackend
from nodeguard.aggregator.backends.standalone import StandaloneBackend
from nodeguard.aggregator.backends.standalone_state import StandaloneStateError, state_path
from nodeguard.aggregator.certificates.file_store import FileStore
from nodeguard.aggregator.certificates.issue import InvalidHostError
from nodeguard.aggregator.certificates.published_authority import PublishedCertificate
from nodeguard.aggregator.certificates.self_signed_authority import SelfSignedAuthority
from nodeguard.aggregator.certificates.serving_certificate import (
    CertificateRefresher,
    CertificateUnavailableError,
    FileCertificate,
    ServingCertificateError,
    tls_context,
)
from nodeguard.aggregator.fleet_inputs import FleetInputs, FleetView
from nodeguard.aggregator.identity.caller import Authenticator
from nodeguard.aggregator.identity.certificate import CertificateAuthenticator
from nodeguard.aggregator.identity.insecure import InsecureAuthenticator, NotLoopbackError
from nodeguard.aggregator.identity.signing_keys import SigningKeyring, fetch_keys
from nodeguard.aggregator.identity.token import TokenRequirements
from nodeguard.aggregator.identity.token_authenticator import TokenAuthenticator
from nodeguard.aggregator.metrics import AggregatorMetrics
from nodeguard.aggregator.options import AGENT_ACCOUNT, AggregatorOptions
from nodeguard.executors.kube.cluster import ObservedCluster
from nodeguard.executors.owners import NodeOwners
from nodeguard.kube.client import ApiClient, ApiError
from nodeguard.kube.text_store import authority_store, ca_bundle_store
from nodeguard.local.unix_socket import acquire_state_lock
from nodeguard.model.failure import UserError

Work = Coroutine[Any, Any, Any]


class StartError(UserError):
    """The aggregator cannot start. The message has the reason and the remedy."""


class Access(NamedTuple):
    """How agents reach the aggregator. certificate: None for plain HTTP. work: runs until the end."""

    backend: Backend
    authenticator: Authenticator
    certificate: CertificateRefresher | None
    work: tuple[Work, ...] = ()


async def standalone_access(
    options: AggregatorOptions,
    fleet: FleetView,
    inputs: FleetInputs,
    owners: NodeOwners,
    stack: AsyncExitStack,
) -> Access:
    """Return the access without Kubernetes: by client certificates, or none. Raises StartError."""
    if options.state:
        _lock_state(options.state, stack)
    try:
        path = state_path(options.state) if options.state else None
        backend = StandaloneBackend(path, fleet, inputs, owners)
        if options.insecure:
            return Access(backend, InsecureAuthenticator(options.listen[0]), None)
        provider: FileCertificate | SelfSignedAuthority = (
            FileCertificate(options.certificate, options.key, options.client_ca)
            if options.certificate
            else SelfSignedAuthority(
                FileStore(f"{options.state}/authority.json", 0o600),
                FileStore(f"{options.state}/ca.crt", 0o644),
                options.hosts,
                options.client_ca,
            )
        )
        # An invalid certificate at the start is an error of the operator who starts it.
        tls_context(await provider.current(time.time()))
    except ServingCertificateError as error:
        files = filter(None, (options.certificate, options.key, options.client_ca))
        raise StartError(f"{', '.join(files)}: {error}") from None
    except (StandaloneStateError, NotLoopbackError, InvalidHostError, CertificateUnavailableError) as error:
        raise StartError(str(error)) from None
    return Access(backend, CertificateAuthenticator(), CertificateRefresher(provider, time.time))


def _lock_state(directory: str, stack: AsyncExitStack) -> None:
    """Lock the state directory for this process. Raises StartError."""
    lock = acquire_state_lock(directory, "aggregator")
    if lock is None:
        raise StartError(
            f"--state {directory}: another aggregator on this machine uses this directory: name another"
        )
    stack.callback(lock.close)
    parent = os.path.dirname(directory)
    if not os.path.isdir(parent):
        raise StartError(f"--state {directory}: the directory {parent} does not exist: create it")


async def kubernetes_access(
    options: AggregatorOptions,
    fleet: FleetView,
    inputs: FleetInputs,
    cluster: ObservedCluster,
    metrics: AggregatorMetrics,
) -> Access:
    """Return the access in Kubernetes: by service account tokens. Raises StartError."""
    try:
        api = await ApiClient.connect(options.kubeconfig, options.context)
    except ApiError as error:
        raise StartError(f"{error}; to run without Kubernetes, add --standalone") from None
    backend = KubernetesBackend(
        api,
        options.namespace,
        options.pod,
        fleet,
        inputs,
        cluster,
        on_written=metrics.marks_written,
    )
    backend.begin(read_jobs=options.read_jobs)
    requirements = TokenRequirements(frozenset({f"{options.namespace}:{AGENT_ACCOUNT}"}))
    keyring = SigningKeyring(partial(fetch_keys, api))
    try:
        # With the certificate of another issuer, the aggregator has no right to the Secret.
        authority: PublishedCertificate | SelfSignedAuthority = (
            PublishedCertificate(
                FileCertificate(options.certificate, options.key),
                options.publish_ca,
                ca_bundle_store(api, options.namespace),
            )
            if options.certificate
            else SelfSignedAuthority(
                authority_store(api, options.namespace),
                ca_bundle_store(api, options.namespace),
                options.hosts,
            )
        )
    except InvalidHostError as error:
        raise StartError(str(error)) from None
    return Access(
        backend,
        TokenAuthenticator(requirements, keyring, time.monotonic),
        CertificateRefresher(authority, time.time),
        (keyring.run(time.monotonic),),
    )

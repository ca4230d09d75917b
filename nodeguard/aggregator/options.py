"""Options of the aggregator process: the settings that the command line and the pod's environment give."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

# The Service by which agents reach the aggregator in a cluster, and the agents' service account there.
SERVICE_NAME = "nodeguard-aggregator"
AGENT_ACCOUNT = "nodeguard-agent"


class AggregatorOptions(Struct, frozen=True):
    """Settings of one aggregator.

    listen: host and port for agents. metrics: host and port for /metrics, /healthz and /readyz.
    page: where the status page listens: a loopback host and port, or the path of a socket; None for no page.
    policy: the policy file, None for the default policy. socket: path of the API socket, empty for none.
    checks: folders with checks of the site. standalone: run without Kubernetes.
    certificate, key: PEM files of the serving certificate, empty to issue one.
    For standalone only: state: directory for state and certificates. client_ca: PEM file of the CA that signs
    the agents' certificates. insecure: accept agents without credentials.
    For Kubernetes only: publish_ca: PEM file of the CA that signed the serving certificate. read_jobs:
    whether to read the pods of nodes with faults.
    kubeconfig: path, None inside a pod. context: of it, empty for its current one.
    namespace, pod: of the aggregator's own pod.
    hosts: names and addresses in the serving certificate.
    history: file or directory of the history, empty for none. history_days, history_mib: its limits.
    notifications: file with the webhooks for incidents, None for none.
    log_format, log_level: see local.logs.
    """

    listen: tuple[str, int]
    metrics: tuple[str, int]
    page: tuple[str, int] | str | None
    policy: Path | None
    socket: str
    checks: tuple[str, ...]
    standalone: bool
    state: str
    client_ca: str
    certificate: str
    key: str
    publish_ca: str
    read_jobs: bool
    insecure: bool
    kubeconfig: str | None
    context: str
    namespace: str
    pod: str
    hosts: tuple[str, ...]
    history: str
    history_days: float
    history_mib: float
    notifications: Path | None
    log_format: str
    log_level: str

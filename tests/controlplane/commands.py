"""Command lines of the components: each listens on 127.0.0.1 and uses only the directory of its cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from tests.controlplane.certificates import Authority

Component = Literal["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"]

# The Service of the API server: the first address of the range of Services, and its port.
SERVICE_ADDRESS, SERVICE_PORT = "10.0.0.1", 443

_GANGS = "--feature-gates=GenericWorkload=true"
_PLACED = f"{_GANGS},TopologyAwareWorkloadScheduling=true"

# With these flags the scheduler places whole gangs (PodGroups of scheduling.k8s.io/v1beta1) on nodes with one label value.
GANGS: Mapping[Component, Sequence[str]] = {
    "kube-apiserver": [
        _PLACED,
        "--runtime-config=scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true",
    ],
    "kube-controller-manager": [_GANGS],
    "kube-scheduler": [_PLACED],
}


class Commands(NamedTuple):
    """ports: of the API server, of etcd's clients and of etcd's peers. signing: key for service account tokens.
    has_kubelets: whether Nodes are real.
    """

    directory: Path
    ports: list[int]
    authority: Authority
    signing: Path
    has_kubelets: bool = False

    def all(self) -> dict[Component, list[str]]:
        """Return the arguments by component."""
        return {
            "etcd": self._etcd(),
            "kube-apiserver": self._apiserver(),
            "kube-controller-manager": [
                *self._client("kube-controller-manager"),
                f"--service-account-private-key-file={self.signing}",
                f"--root-ca-file={self.authority.certificate}",
                "--use-service-account-credentials=true",
                # Without a kubelet nothing renews a Node's lease.
                f"--node-monitor-grace-period={'50s' if self.has_kubelets else '24h'}",
            ],
            "kube-scheduler": self._client("kube-scheduler"),
        }

    def _etcd(self) -> list[str]:
        clients, peers = (f"http://127.0.0.1:{port}" for port in self.ports[1:])
        return [
            "--name=tests",
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=tests={peers}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def _apiserver(self) -> list[str]:
        serving = self.authority.issue(
            "kube-apiserver", "127.0.0.1", SERVICE_ADDRESS, "localhost", "kubernetes.default.svc"
        )
        ca = self.authority.certificate
        return [
            f"--etcd-servers=http://127.0.0.1:{self.ports[1]}",
            f"--bind-address={'0.0.0.0' if self.has_kubelets else '127.0.0.1'}",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self.ports[0]}",
            "--endpoint-reconciler-type=none",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            f"--client-ca-file={ca}",
            f"--kubelet-client-certificate={serving.certificate}",
            f"--kubelet-client-key={serving.key}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--token-auth-file={self.directory / 'tokens.csv'}",
            f"--requestheader-client-ca-file={ca}",
            "--requestheader-allowed-names=front-proxy",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.signing}",
            f"--service-account-signing-key-file={self.signing}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",  # as installers set it
            "--service-cluster-ip-range=10.0.0.0/16",
        ]

    def _client(self, user: str) -> list[str]:
        """Return the arguments of a component that uses the API server and does not listen."""
        kubeconfig = self.directory / f"{user}.kubeconfig"
        return [
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--secure-port=0",
            "--leader-elect=false",
            "--kube-api-qps=2000",  # with the default the controllers wait seconds for each other
            "--kube-api-burst=4000",
        ]

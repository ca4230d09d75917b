"""Replicas on a real cluster share one certificate authority, and rotate it."""

from __future__ import annotations

import asyncio

import pytest
from cryptography import x509

from nodeguard.aggregator.certificates.rotation import AUTHORITY_LIFETIME, DAY, SUCCESSION
from nodeguard.aggregator.certificates.self_signed_authority import SelfSignedAuthority
from nodeguard.aggregator.certificates.serving_certificate import CertificateUnavailableError
from nodeguard.kube.authority_store import AuthoritySecretStore
from nodeguard.kube.client import ApiClient
from tests.aggregator.issuer import NOW
from tests.controlplane.cluster import Cluster


def issuer(certificate: str) -> x509.Name:
    return x509.load_pem_x509_certificate(certificate.encode()).issuer


async def test_all_replicas_use_one_authority(controlplane: Cluster, namespace: str) -> None:
    api = await ApiClient.connect(str(controlplane.kubeconfig))
    replicas = [
        SelfSignedAuthority(AuthoritySecretStore(api, namespace), ["nodeguard.example"]) for _ in range(4)
    ]

    async def issuers(now: float) -> set[x509.Name]:
        current = await asyncio.gather(*(replica.current(now) for replica in replicas))
        return {issuer(serving.certificate) for serving in current}

    def published() -> str:
        data: str = controlplane.api.get(f"/api/v1/namespaces/{namespace}/configmaps/nodeguard-ca")["data"][
            "ca.crt"
        ]
        return data

    first = await issuers(NOW)
    assert len(first) == 1
    assert published().count("BEGIN") == 1
    succession = NOW + AUTHORITY_LIFETIME - SUCCESSION + 60
    assert await issuers(succession) == first
    assert published().count("BEGIN") == 2
    second = await issuers(succession + DAY)
    assert len(second) == 1
    assert second != first
    assert published().count("BEGIN") == 2
    assert await issuers(succession + 10 * DAY) == second
    assert published().count("BEGIN") == 1

    controlplane.api.delete(f"/api/v1/namespaces/{namespace}/configmaps/nodeguard-ca")
    assert await issuers(succession + 10 * DAY) == second
    assert published().count("BEGIN") == 1
    await api.close()


async def test_a_deleted_secret_is_written_back_and_rotated(controlplane: Cluster, namespace: str) -> None:
    api = await ApiClient.connect(str(controlplane.kubeconfig))
    replicas = [
        SelfSignedAuthority(AuthoritySecretStore(api, namespace), ["nodeguard.example"]) for _ in range(2)
    ]
    objects = f"/api/v1/namespaces/{namespace}"
    config_map = f"{objects}/configmaps/nodeguard-ca"
    for at in (0.0, 3 * DAY):
        if at:
            controlplane.api.delete(f"{objects}/secrets/nodeguard-ca")
        current = await asyncio.gather(*(replica.current(NOW + at) for replica in replicas))
        [first] = {issuer(serving.certificate) for serving in current}
    bundle = controlplane.api.get(config_map)["data"]["ca.crt"]
    assert [item.subject == first for item in x509.load_pem_x509_certificates(bundle.encode())] == [
        True,
        False,
    ]
    assert "it signs from" in await replicas[1].rotate("ann", NOW + 5 * DAY)
    assert controlplane.api.get(config_map)["data"]["ca.crt"].count("BEGIN") == 3
    for replica in replicas:
        assert issuer((await replica.current(NOW + 20 * DAY)).certificate) != first
    assert controlplane.api.get(config_map)["data"]["ca.crt"].count("BEGIN") == 1
    await api.close()


async def test_an_authority_that_cannot_be_read_at_the_start_is_an_error(controlplane: Cluster) -> None:
    api = await ApiClient.connect(str(controlplane.kubeconfig))
    missing = AuthoritySecretStore(api, "no/such")
    with pytest.raises(
        CertificateUnavailableError, match="the aggregator's certificate authority: the Kubernetes API"
    ):
        await SelfSignedAuthority(missing, ["nodeguard.example"]).current(NOW)
    await api.close()

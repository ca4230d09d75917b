"""Replicas on a real cluster share one certificate authority, and replace it when it is deleted."""

from __future__ import annotations

import asyncio

import pytest
from cryptography import x509

from nodeguard.aggregator.certificates.issue import DAY
from nodeguard.aggregator.certificates.self_signed_authority import SelfSignedAuthority
from nodeguard.aggregator.certificates.serving_certificate import CertificateUnavailableError
from nodeguard.kube.client import ApiClient
from nodeguard.kube.text_store import authority_store, ca_bundle_store
from tests.aggregator.issuer import NOW
from tests.controlplane.cluster import Cluster


def replica(api: ApiClient, namespace: str) -> SelfSignedAuthority:
    return SelfSignedAuthority(
        authority_store(api, namespace), ca_bundle_store(api, namespace), ["nodeguard.example"]
    )


def issuer(certificate: str) -> x509.Name:
    return x509.load_pem_x509_certificate(certificate.encode()).issuer


async def test_all_replicas_use_one_authority_and_replace_a_deleted_one(
    controlplane: Cluster, namespace: str
) -> None:
    api = await ApiClient.connect(str(controlplane.kubeconfig))
    replicas = [replica(api, namespace) for _ in range(4)]
    config_map = f"/api/v1/namespaces/{namespace}/configmaps/nodeguard-ca"

    async def issuers(now: float) -> set[x509.Name]:
        current = await asyncio.gather(*(running.current(now) for running in replicas))
        return {issuer(serving.certificate) for serving in current}

    def published() -> list[x509.Name]:
        bundle = controlplane.api.get(config_map)["data"]["ca.crt"]
        return [item.subject for item in x509.load_pem_x509_certificates(bundle.encode())]

    first = await issuers(NOW)
    assert published() == list(first)
    controlplane.api.delete(config_map)
    assert await issuers(NOW + 3000 * DAY) == first
    assert published() == list(first)

    controlplane.kubectl("delete", "-n", namespace, "secret/nodeguard-ca", "configmap/nodeguard-ca")
    second = await issuers(NOW + 3000 * DAY)
    assert published() == list(second)
    assert second != first
    await api.close()


async def test_an_authority_that_cannot_be_read_at_the_start_is_an_error(controlplane: Cluster) -> None:
    api = await ApiClient.connect(str(controlplane.kubeconfig))
    with pytest.raises(
        CertificateUnavailableError, match="the aggregator's certificate authority: the Kubernetes API"
    ):
        await replica(api, "no/such").current(NOW)
    await api.close()

"""The client with the credentials of a pod, on a real control plane."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nodeguard.kube import pod_credentials
from nodeguard.kube.client import ApiClient
from nodeguard.kube.errors import ApiError
from tests.controlplane.certificates import Authority
from tests.controlplane.cluster import Cluster

SECRET = "top-secret-token"


async def test_a_pods_token_may_rotate(
    controlplane: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text(SECRET)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", controlplane.url.rpartition(":")[2])
    (tmp_path / "ca.crt").write_bytes(controlplane.ca.read_bytes())
    monkeypatch.setattr(pod_credentials, "DIRECTORY", str(tmp_path))
    api = await ApiClient.connect(None)
    with pytest.raises(ApiError) as refused:
        await api.request("GET", "/api/v1/nodes")
    assert refused.value.status == 401
    assert SECRET not in repr(refused.value)
    token.write_text(controlplane.token + "\n")
    assert json.loads(await api.request("GET", "/api/v1/nodes"))["items"] == []
    token.unlink()
    assert json.loads(await api.request("GET", "/api/v1/nodes"))["items"] == []
    await api.close()


def test_the_library_is_imported_for_a_kubeconfig_only() -> None:
    program = "import sys, nodeguard.aggregator.app; print('kubernetes' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"


@pytest.mark.parametrize("name", ["token", "ca.crt"])
async def test_an_incomplete_service_account_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(pod_credentials, "DIRECTORY", str(tmp_path))
    (tmp_path / "token").write_text(SECRET)
    Authority(tmp_path)  # writes ca.crt
    authority = (tmp_path / "ca.crt").read_text()
    (tmp_path / "ca.crt").write_text("# Autorité de certification\n" + authority)
    api = await ApiClient.connect(None)
    assert api.url == "https://[::1]:443"
    await api.close()
    (tmp_path / name).write_text("\n")
    with pytest.raises(ApiError, match=f"{tmp_path / name} is empty"):
        await ApiClient.connect(None)
    (tmp_path / name).unlink()
    with pytest.raises(ApiError, match=f"{tmp_path / name}: No such file or directory; run inside a pod"):
        await ApiClient.connect(None)

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from nodeguard.kube.client import ApiClient
from nodeguard.kube.errors import ApiError
from nodeguard.kube.fenced_client import FencedClient, FencedError, NotPermittedError
from nodeguard.model.mark import EPOCH_ANNOTATION
from tests.controlplane.certificates import Authority
from tests.controlplane.credentials import write_kubeconfig
from tests.logs import LogLines
from tests.waiting import PROMPTLY


async def test_no_request_outlasts_the_lease(tmp_path: Path) -> None:
    # This server listens and never accepts.
    silent = socket.create_server(("127.0.0.1", 0))
    port = silent.getsockname()[1]
    kubeconfig = tmp_path / "kubeconfig"
    write_kubeconfig(kubeconfig, f"http://127.0.0.1:{port}", Authority(tmp_path).certificate, "token")
    api = await ApiClient.connect(str(kubeconfig))
    try:
        client = FencedClient(api, 1, may_write=lambda: True, seconds_left=lambda: 0.2, renewals=lambda: 1)
        began = time.monotonic()
        with pytest.raises(ApiError, match=r"within 0\.2 s"):
            await client.write("PATCH", "/api/v1/nodes/gpu-7", {})
        assert time.monotonic() - began < PROMPTLY
    finally:
        await api.close()
        silent.close()


@pytest.mark.parametrize(("may", "left"), [(False, 9.0), (True, 0.0), (True, -1.0)])
async def test_without_the_lease_no_write_begins(tmp_path: Path, may: bool, left: float) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    write_kubeconfig(kubeconfig, "http://127.0.0.1:9", Authority(tmp_path).certificate, "token")
    api = await ApiClient.connect(str(kubeconfig))
    client = FencedClient(api, 1, may_write=lambda: may, seconds_left=lambda: left, renewals=lambda: 1)
    try:
        assert not client.can_write()
        with pytest.raises(NotPermittedError):
            await client.write("PATCH", "/api/v1/nodes/gpu-7", {})
    finally:
        await api.close()


async def test_a_fenced_client_never_writes_again_and_logs_once(tmp_path: Path, log: LogLines) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    write_kubeconfig(kubeconfig, "http://127.0.0.1:9", Authority(tmp_path).certificate, "token")
    api = await ApiClient.connect(str(kubeconfig))
    client = FencedClient(api, 4, may_write=lambda: True, seconds_left=lambda: 9.0, renewals=lambda: 1)
    try:
        client.check_epoch("DeviceTaintRule gpu-7", {EPOCH_ANNOTATION: "4"})
        assert client.can_write()
        for _ in range(2):
            with pytest.raises(FencedError, match="in epoch 5 of the lease, later than 4"):
                client.check_epoch("DeviceTaintRule gpu-7", {EPOCH_ANNOTATION: "5"})
        assert not client.can_write()
        assert (len(log.text()), client.foreign_epoch) == (1, 5)
        assert "object=DeviceTaintRule gpu-7 epoch=5 own_epoch=4" in log.text()[0]
    finally:
        await api.close()


async def test_the_epoch_of_a_node_stops_writes_once_until_the_lease_is_renewed(
    tmp_path: Path, log: LogLines
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    write_kubeconfig(kubeconfig, "http://127.0.0.1:9", Authority(tmp_path).certificate, "token")
    api = await ApiClient.connect(str(kubeconfig))
    renewals = 1
    client = FencedClient(api, 4, may_write=lambda: True, seconds_left=lambda: 9.0, renewals=lambda: renewals)
    try:
        for _ in range(2):
            with pytest.raises(NotPermittedError):
                client.check_node_epoch("Node gpu-7", {EPOCH_ANNOTATION: "5"})
            assert not client.can_write()
        renewals += 1
        for epoch in ("5", "6", "1000000"):
            client.check_node_epoch("Node gpu-7", {EPOCH_ANNOTATION: epoch})
            assert client.can_write()
        assert len(log.text()) == 1
        assert "object=Node gpu-7 epoch=5 own_epoch=4" in log.text()[0]
    finally:
        await api.close()

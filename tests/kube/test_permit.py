from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from nodeguard.kube.client import Api
from nodeguard.kube.permit import FencedError, NotPermittedError, Permit
from nodeguard.kube.refusal import ApiError
from nodeguard.model.mark import EPOCH
from tests.controlplane.certificates import Authority
from tests.controlplane.credentials import write_kubeconfig
from tests.waiting import PROMPTLY


async def test_no_request_outlasts_the_lease(tmp_path: Path) -> None:
    # Who listens and never accepts.
    silent = socket.create_server(("127.0.0.1", 0))
    port = silent.getsockname()[1]
    kubeconfig = tmp_path / "kubeconfig"
    write_kubeconfig(kubeconfig, f"http://127.0.0.1:{port}", Authority(tmp_path).certificate, "token")
    api = await Api.connect(str(kubeconfig))
    try:
        permit = Permit(api, 1, may_write=lambda: True, left=lambda: 0.2, fenced=print)
        began = time.monotonic()
        with pytest.raises(ApiError, match=r"within 0\.2 s"):
            await permit.write("PATCH", "/api/v1/nodes/gpu-7", {})
        assert time.monotonic() - began < PROMPTLY
    finally:
        await api.close()
        silent.close()


@pytest.mark.parametrize(("may", "left"), [(False, 9.0), (True, 0.0), (True, -1.0)])
async def test_without_the_lease_nothing_is_begun(tmp_path: Path, may: bool, left: float) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    write_kubeconfig(kubeconfig, "http://127.0.0.1:9", Authority(tmp_path).certificate, "token")
    api = await Api.connect(str(kubeconfig))
    permit = Permit(api, 1, may_write=lambda: may, left=lambda: left, fenced=print)
    try:
        assert not permit.given()
        with pytest.raises(NotPermittedError):
            await permit.write("PATCH", "/api/v1/nodes/gpu-7", {})
    finally:
        await api.close()


async def test_who_was_fenced_never_writes_again_and_says_so_once(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    write_kubeconfig(kubeconfig, "http://127.0.0.1:9", Authority(tmp_path).certificate, "token")
    api = await Api.connect(str(kubeconfig))
    told: list[str] = []
    permit = Permit(api, 4, may_write=lambda: True, left=lambda: 9.0, fenced=told.append)
    try:
        permit.check("Node gpu-7", {EPOCH: "4"})
        assert permit.given()
        for _ in range(2):
            with pytest.raises(FencedError, match="under epoch 5 of the lease, and this aggregator's is 4"):
                permit.check("Node gpu-7", {EPOCH: "5"})
        assert not permit.given()
        assert (len(told), permit.later) == (1, 5)
    finally:
        await api.close()

"""Admission webhooks and policies that deny a request: that is no missing right, and concerns one object."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from nodeguard.aggregator.certificates.issue import issue_authority, issue_serving_certificate
from nodeguard.kube.client import MERGE_PATCH, ApiClient
from nodeguard.kube.errors import ApiError
from tests.controlplane.cluster import Cluster
from tests.controlplane.objects import node
from tests.waiting import PATIENCE

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
NODE = "/api/v1/nodes/gpu-1"
# A configuration applies for a while after it is deleted, and must not concern other tests.
SELECTOR = {"matchLabels": {"denied": "always"}}
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]}


class _Denies(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        # As the admission.Denied of controller-runtime does.
        status = {"code": 403, "reason": "Forbidden", "message": "not by nodeguard"}
        review["response"] = {"uid": review["request"]["uid"], "allowed": False, "status": status}
        del review["request"]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(review).encode())

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _webhook(directory: Path) -> Iterator[dict[str, Any]]:
    """Run a webhook that denies changes of Nodes, and yield its configuration."""
    authority = issue_authority(time.time())
    issued = issue_serving_certificate(authority, ["127.0.0.1"], time.time())
    (directory / "crt").write_text(issued.certificate)
    (directory / "key").write_text(issued.key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Denies)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "crt", directory / "key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    bundle = base64.b64encode(authority.certificate.encode()).decode()
    try:
        yield {
            "metadata": {"name": "denies"},
            "webhooks": [
                {
                    "name": "denies.example.com",
                    "clientConfig": {"url": f"https://127.0.0.1:{server.server_port}/", "caBundle": bundle},
                    "rules": [RULE],
                    "objectSelector": SELECTOR,
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                }
            ],
        }
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def _denied(api: ApiClient) -> ApiError:
    """Change a Node until that is denied. Returns the error: a configuration takes effect after a while."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        body = {"metadata": {"labels": {"changed": str(time.time())}}}
        try:
            await api.request("PATCH", NODE, body=body, content_type=MERGE_PATCH)
        except ApiError as error:
            return error
    raise AssertionError("nothing denies the change")


async def test_a_denial_of_a_webhook_is_no_missing_right(
    api: ApiClient, controlplane: Cluster, tmp_path: Path
) -> None:
    controlplane.api.post("/api/v1/nodes", node("gpu-1", labels=SELECTOR["matchLabels"]))
    with _webhook(tmp_path) as configuration:
        controlplane.api.post(f"{ADMISSION}/validatingwebhookconfigurations", configuration)
        try:
            error = await _denied(api)
        finally:
            controlplane.api.delete(f"{ADMISSION}/validatingwebhookconfigurations/denies")
    assert (error.status, error.lacks_right, api.refused.current()) == (403, False, ())
    assert error.message == (
        f"the Kubernetes API returned 403 for PATCH {NODE}: "
        'admission webhook "denies.example.com" denied the request: not by nodeguard: '
        "have the webhook or policy permit it"
    )


async def test_a_denial_of_a_policy_is_no_missing_right(api: ApiClient, controlplane: Cluster) -> None:
    controlplane.api.post("/api/v1/nodes", node("gpu-1", labels=SELECTOR["matchLabels"]))
    policy = {
        "metadata": {"name": "denies"},
        "spec": {
            "matchConstraints": {"resourceRules": [RULE], "objectSelector": SELECTOR},
            "validations": [{"expression": "false", "reason": "Forbidden", "message": "not by nodeguard"}],
        },
    }
    binding = {
        "metadata": {"name": "denies"},
        "spec": {"policyName": "denies", "validationActions": ["Deny"]},
    }
    kinds = "validatingadmissionpolicies", "validatingadmissionpolicybindings"
    try:
        for kind, content in zip(kinds, (policy, binding), strict=True):
            controlplane.api.post(f"{ADMISSION}/{kind}", content)
        error = await _denied(api)
    finally:
        for kind in reversed(kinds):
            controlplane.api.delete(f"{ADMISSION}/{kind}/denies")
    assert (error.status, error.lacks_right, api.refused.current()) == (403, False, ())
    assert error.message.endswith("denied request: not by nodeguard: have the webhook or policy permit it")

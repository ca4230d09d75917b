"""Signed notifications of a real aggregator, over an outage of the receiver and a kill."""

from __future__ import annotations

import base64
import hmac
import json
import signal
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path

import pytest

from tests.e2e.processes import until
from tests.e2e.test_standalone import XID, Site, insecure_settings
from tests.waiting import PROMPTLY
from tests.webhooks import WebhookReceiver

pytestmark = pytest.mark.slow

SECRET = base64.b64encode(b"a key of the test").decode()


def test_each_change_arrives_signed_and_in_order_although_the_aggregator_is_killed(tmp_path: Path) -> None:
    site, receiver = Site(tmp_path), WebhookReceiver()
    spool = tmp_path / "spool"
    spool.mkdir()
    (tmp_path / "secret").write_text(f"whsec_{SECRET}\n")
    (tmp_path / "notifications.yaml").write_text(
        f"spoolDirectory: {spool}\nwebhooks:\n- {{name: oncall, url: '{receiver.url}', secretFile: secret}}\n"
    )
    options = ("--insecure", "--notifications", f"{tmp_path}/notifications.yaml")
    receiver.status = 503
    with ExitStack() as stack:
        stack.enter_context(receiver.serving())
        process = stack.enter_context(site.aggregator(*options))
        bundle = stack.enter_context(site.node("gpu-1", insecure_settings(site)))
        site.wait_for_reports(1)
        with (bundle / "kmsg").open("a") as kernel:
            kernel.write(XID)
        until(lambda: "gpu-1" in "".join(path.read_text() for path in spool.glob("*.json")), site.log)
        process.send_signal(signal.SIGKILL)
        process.wait(PROMPTLY)
        receiver.status = 200
        stack.enter_context(site.aggregator(*options))
        until(lambda: [body["change"] for body in receiver.bodies] == ["opened"], site.log)
        site.wait_for_reports(1)
        (incident,) = [item["name"] for item in site.query("get", "incidents")["incidents"]]
        assert site.run("incidents", "clear", incident).returncode == 0
        until(lambda: receiver.bodies[-1]["change"] == "resolved", site.log)
    assert [body["incident"] for body in receiver.bodies] == [incident] * len(receiver.bodies)
    for content, headers in zip(receiver.contents, receiver.headers, strict=True):
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + content
        digest = hmac.new(base64.b64decode(SECRET), signed, sha256).digest()
        assert headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
        assert json.loads(content)["id"] == headers["webhook-id"]

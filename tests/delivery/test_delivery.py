"""Delivery to a real receiver: what each response, and each failure without one, means for a message."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from nodeguard.aggregator.certificates.issue import issue_authority
from nodeguard.delivery import attempt as attempt_module
from nodeguard.delivery import queue as queue_module
from nodeguard.delivery.attempt import Destination
from nodeguard.delivery.delivery import Delivery
from nodeguard.delivery.queue import Message
from nodeguard.local.client_tls import client_context
from tests.logs import LogLines
from tests.waiting import in_background, until_async
from tests.webhooks import WebhookReceiver

NOW = 1_700_000_000.0
REFUSALS = (400, 413, 422)
ALL_STATUSES = (*range(201, 209), *range(300, 309), *range(400, 452), *range(500, 512), 599)


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    receiver = WebhookReceiver()
    with receiver.serving():
        yield receiver


@pytest.fixture(autouse=True)
def _retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_RETRY", "LONGEST_RETRY"):
        monkeypatch.setattr(queue_module, name, 0.01)


class Scene:
    """A delivery to one webhook, `site`, and the messages that it dropped."""

    def __init__(self, url: str, ca: str = "", secret: bytes = b"") -> None:
        self.dropped: list[tuple[str, str]] = []
        self.now = NOW
        self.delivery = Delivery(
            [Destination("site", url, bytes, secret, ca)],
            dropped=lambda _, message, reason: self.dropped.append((message.id, reason)),
            wall=lambda: self.now,
        )

    def put(self, *numbers: int, key: str = "", expires_at: float | None = None) -> None:
        for number in numbers:
            name = key or f"key-{number}"
            content = b'{"id": "id-%d"}' % number
            self.delivery.put("site", Message(f"id-{number}", name, content, self.now, "", expires_at))

    def counts(self) -> tuple[int, int, int]:
        delivery = self.delivery
        return delivery.sent["site"], delivery.refused["site"], delivery.failed["site"]

    def has_changed(self, before: tuple[int, int, int]) -> bool:
        return self.counts() != before

    def fails_again(self) -> bool:
        return self.delivery.failed["site"] >= 2

    def running(self) -> AbstractAsyncContextManager[None]:
        return in_background(self.delivery.run())


def ids(receiver: WebhookReceiver) -> list[str]:
    return [body["id"] for body in receiver.bodies]


async def test_each_status_means_accepted_refused_or_try_again(receiver: WebhookReceiver) -> None:
    """Only three statuses are about the message; every other one may pass, whatever its class."""
    meanings: dict[str, list[int]] = {"accepted": [], "refused": [], "again": []}
    scene = Scene(receiver.url)
    delivery = scene.delivery
    async with scene.running():
        for number, status in enumerate(ALL_STATUSES):
            receiver.status = status
            before = scene.counts()
            scene.put(number)
            await until_async(partial(scene.has_changed, before))
            changed = [new > old for new, old in zip(scene.counts(), before, strict=True)]
            meanings[list(meanings)[changed.index(True)]].append(status)
            receiver.status = 204
            await until_async(lambda: not delivery.waiting("site"))
    assert meanings["accepted"] == list(range(201, 209))
    assert meanings["refused"] == list(REFUSALS)
    assert sum(map(len, meanings.values())) == len(ALL_STATUSES)


@pytest.mark.parametrize("status", [301, 308, 401, 403, 404, 407, 408, 410, 429, 500, 503])
async def test_everything_comes_in_order_after_the_receiver_is_repaired(
    receiver: WebhookReceiver, status: int, log: LogLines
) -> None:
    receiver.status, receiver.response_headers = status, {"Location": "http://127.0.0.1:1/T0KEN"}
    scene = Scene(receiver.url)
    async with scene.running():
        scene.put(0, 1, 2, key="a")
        scene.put(3, 4)
        await until_async(lambda: scene.delivery.failed["site"] >= 4)
        receiver.status = 200
        await until_async(lambda: not scene.delivery.waiting("site"))
    assert [name for name in ids(receiver) if name in {"id-0", "id-1", "id-2"}] == ["id-0", "id-1", "id-2"]
    assert sorted(ids(receiver)) == [f"id-{number}" for number in range(5)]
    assert scene.dropped == []
    assert log.messages() == ["cannot send to a webhook, it is tried again"]
    assert "T0KEN" not in str(log.lines)


async def test_after_the_clock_goes_back_a_webhook_fails_since_its_next_failure(
    receiver: WebhookReceiver,
) -> None:
    receiver.status = 503
    scene = Scene(receiver.url)
    async with scene.running():
        scene.put(0)
        await until_async(scene.fails_again)
        assert scene.delivery.failing_since("site") == NOW
        scene.now, before = NOW - 3600.0, scene.delivery.failed["site"]
        await until_async(lambda: scene.delivery.failed["site"] > before + 1)
    assert scene.delivery.failing_since("site") == scene.delivery.oldest("site") == NOW - 3600.0


@pytest.mark.parametrize("fault", ["drop", "hang", "garbage"])
async def test_a_receiver_without_a_response_gets_the_message_later(
    receiver: WebhookReceiver, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == "hang":
        monkeypatch.setattr(attempt_module, "TIMEOUT", 0.2)
        monkeypatch.setattr("nodeguard.delivery.delivery.TIMEOUT", 0.2)
    receiver.fault = fault
    scene = Scene(receiver.url)
    async with scene.running():
        scene.put(0)
        await until_async(lambda: scene.delivery.failed["site"] >= 2)
        problem = scene.delivery.problems["site"]
        expected = "no response within 0.2 s" if fault == "hang" else "cannot send ("
        assert problem.startswith(expected)
        receiver.fault = ""
        await until_async(lambda: ids(receiver)[:1] == ["id-0"])


async def test_an_address_without_a_receiver_is_tried_again(receiver: WebhookReceiver) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{unused.getsockname()[1]}/"
        for url in (closed, "https://receiver.invalid/", receiver.url.replace("http", "https")):
            scene = Scene(url)
            async with scene.running():
                scene.put(0)
                await until_async(scene.fails_again)
            assert len(scene.delivery.waiting("site")) == 1
            assert scene.delivery.problems["site"].startswith("cannot send (")


async def test_a_certificate_that_is_not_trusted_is_named_and_tried_again(
    receiver: WebhookReceiver, tmp_path: Path
) -> None:
    authority, other = issue_authority(time.time()), issue_authority(time.time())
    receiver.encrypt(authority, tmp_path)
    wrong, right = Scene(receiver.url, ca=other.certificate), Scene(receiver.url, ca=authority.certificate)
    async with wrong.running(), right.running():
        wrong.put(0)
        right.put(1)
        await until_async(lambda: wrong.delivery.failed["site"] >= 2)
        await until_async(lambda: ids(receiver) == ["id-1"])
    assert "set caFile to the CA certificate" in wrong.delivery.problems["site"]
    assert wrong.dropped == []


async def test_a_refused_message_is_named_and_delays_no_other(
    receiver: WebhookReceiver, log: LogLines
) -> None:
    receiver.status = 422
    scene = Scene(receiver.url)
    async with scene.running():
        scene.put(0)
        await until_async(lambda: scene.dropped == [("id-0", "refused")])
        receiver.status = 200
        scene.put(1)
        await until_async(lambda: ids(receiver) == ["id-1"])
    assert (scene.delivery.refused["site"], scene.delivery.dropped["site"]) == (1, 0)
    [line] = log.lines
    assert "the receiver of a webhook refuses a message" in str(line)
    assert "key-0" in str(line)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7.0),
        ("Tue, 14 Nov 2023 22:14:20 GMT", 60.0),
        ("Tue, 14 Nov 2023 22:12:20 GMT", 0.0),
        ("soon", 0.0),
        ("-5", 0.0),
        ("9" * 400, 999999999.0),
    ],
)
async def test_the_wait_that_a_receiver_asks_for(
    receiver: WebhookReceiver, text: str, seconds: float
) -> None:
    receiver.status, receiver.response_headers = 429, {"Retry-After": text}
    destination = Destination("site", receiver.url, bytes)
    async with aiohttp.ClientSession() as session:
        result = await attempt_module.send(
            destination, session, client_context(), message_id="id-0", body=b"{}", wall=NOW
        )
    assert (result.problem.partition(":")[0], result.retry_after) == ("HTTP status 429", seconds)


async def test_retry_after_is_honoured(receiver: WebhookReceiver) -> None:
    """The second attempt is due after a hundredth of a second, and the receiver asks for an hour."""
    receiver.status, receiver.response_headers = 429, {"Retry-After": "3600"}
    scene = Scene(receiver.url)
    async with scene.running():
        scene.put(0)
        await until_async(lambda: scene.delivery.failed["site"])
        await asyncio.sleep(0.5)
        assert scene.delivery.failed["site"] == 1
        assert [message.id for message in scene.delivery.waiting("site")] == ["id-0"]


async def test_a_message_that_cannot_be_rendered_delays_no_other(receiver: WebhookReceiver) -> None:
    def render(payload: bytes) -> bytes:
        if b"id-0" in payload:
            raise ValueError("no such format")
        return payload

    scene = Scene(receiver.url)
    scene.delivery = Delivery(
        [Destination("site", receiver.url, render)],
        dropped=lambda _, message, reason: scene.dropped.append((message.id, reason)),
    )
    async with scene.running():
        scene.put(0, 1)
        await until_async(lambda: ids(receiver) == ["id-1"])
    assert scene.dropped == [("id-0", "refused")]


async def test_an_expired_message_is_dropped_counted_and_logged_once(
    receiver: WebhookReceiver, log: LogLines
) -> None:
    receiver.status = 403
    scene = Scene(receiver.url)
    async with scene.running():
        scene.put(0, 1, expires_at=NOW + 100.0)
        scene.put(2)
        await until_async(lambda: scene.delivery.failed["site"] >= 1)
        assert scene.delivery.oldest("site") == NOW
        scene.now += 101.0
        await until_async(lambda: len(scene.dropped) == 2)
    assert scene.dropped == [("id-0", "expired"), ("id-1", "expired")]
    assert scene.delivery.dropped["site"] == 2
    assert log.messages().count("messages for a webhook are dropped") == 1


async def test_messages_of_an_earlier_start_are_sent_first_and_those_of_removed_webhooks_not(
    receiver: WebhookReceiver,
) -> None:
    before, after = Scene("http://127.0.0.1:1/"), Scene(receiver.url)
    before.put(0, 1, key="a")
    after.put(2, key="a")
    waiting = before.delivery.waiting("site")
    after.delivery.restore({"site": waiting, "removed": waiting})
    async with after.running():
        await until_async(lambda: len(receiver.bodies) == 3)
    assert ids(receiver) == ["id-0", "id-1", "id-2"]

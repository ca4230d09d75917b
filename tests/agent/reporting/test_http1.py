from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path

import pytest

from nodeguard.agent.reporting.credentials import TokenFile
from nodeguard.agent.reporting.http1 import DEADLINE, HttpsTransport, TransportError, _seconds
from nodeguard.wire.encoding import decode_reply, encode
from nodeguard.wire.report import VERSION, Heartbeat
from tests.agent.reporting.receiver import TLS, Receiver, closed_port, receiving
from tests.waiting import PATIENCE, PROMPTLY

BEAT = encode(Heartbeat(version=VERSION, node="n", boot_id="b", sequence=1))
CA = str(TLS / "ca.pem")


@pytest.fixture
def token(tmp_path: Path) -> TokenFile:
    (tmp_path / "token").write_text("secret-token")
    return TokenFile(str(tmp_path / "token"))


def faulty(receiver: Receiver, *faults: str) -> None:
    """Let the next requests have these faults, and later ones none."""
    script = list(faults)
    receiver.fault = lambda: script.pop(0) if script else ""


@pytest.mark.parametrize("tls", [False, True])
async def test_one_connection_is_kept(token: TokenFile, tls: bool) -> None:
    with receiving(tls=tls) as receiver:
        transport = HttpsTransport(receiver.address, token, CA)
        for _ in range(3):
            answer = await transport.post(BEAT)
            assert answer.status == 200
            assert decode_reply(answer.body)[0].acked_sequence == 1
        transport.close()
        assert (receiver.connections, receiver.requests) == (1, 3)
        assert receiver.tokens == ["Bearer secret-token"] * 3


@pytest.mark.parametrize("tls", [False, True])
async def test_a_closed_connection_is_opened_again(tls: bool) -> None:
    with receiving(tls=tls) as receiver:
        transport = HttpsTransport(receiver.address, None, CA)
        faulty(receiver, "close silently", "close", "")
        for _ in range(4):
            assert (await transport.post(BEAT)).status == 200
        transport.close()
        assert (receiver.connections, receiver.beats) == (3, 4)


@pytest.mark.parametrize("tls", [False, True])
async def test_a_response_without_a_length_is_read_to_its_end(tls: bool) -> None:
    with receiving(tls=tls) as receiver:
        transport = HttpsTransport(receiver.address, None, CA)
        faulty(receiver, "no length", "no length")
        for _ in range(3):
            assert decode_reply((await transport.post(BEAT)).body)[0].acked_sequence == 1
        transport.close()


FAULTS = {
    "lose request": "see that it runs",
    "lose reply": "see that it runs",
    "not HTTP": "not HTTP",
    "large": "more than 65536 bytes",
    "many headers": "more than 65536 bytes|not HTTP",
    "endless": "more than 65536 bytes",
    "drip": "no answer within 0.4 s",
    "hang": "no answer within 0.4 s",
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_an_invalid_response_is_an_error_without_secrets(token: TokenFile, fault: str) -> None:
    with receiving(tls=True) as receiver:
        transport = HttpsTransport(receiver.address, token, CA)
        faulty(receiver, *[fault] * 2)
        began = time.monotonic()
        with pytest.raises(TransportError, match=FAULTS[fault]) as error:
            await transport.post(BEAT, 0.4 if "0.4 s" in FAULTS[fault] else PATIENCE)
        assert time.monotonic() - began < PROMPTLY
        assert "secret" not in str(error.value)
        assert error.value.__cause__ is None
        assert error.value.__suppress_context__
        faulty(receiver)
        assert (await transport.post(BEAT)).status == 200
        transport.close()


async def test_a_redirect_is_not_followed(token: TokenFile) -> None:
    with receiving() as elsewhere, receiving() as receiver:
        faulty(receiver, f"moved {elsewhere.address}")
        transport = HttpsTransport(receiver.address, token)
        assert (await transport.post(BEAT)).status == 307
        transport.close()
        assert elsewhere.requests == 0


async def test_retry_after_is_in_the_response() -> None:
    with receiving() as receiver:
        faulty(receiver, "busy")
        transport = HttpsTransport(receiver.address, None)
        answer = await transport.post(BEAT)
        transport.close()
        assert (answer.status, answer.retry_after) == (503, 7.0)


@pytest.mark.parametrize(("text", "seconds"), [("7", 7.0), ("9" * 20, 0.0), ("-1", 0.0), ("soon", 0.0), ("²", 0.0), ("", 0.0)])  # fmt: skip
def test_retry_after_must_be_a_plain_number(text: str, seconds: float) -> None:
    assert _seconds(text) == seconds


async def test_a_refused_token_is_read_again(token: TokenFile, tmp_path: Path) -> None:
    with receiving() as receiver:
        transport = HttpsTransport(receiver.address, token)
        faulty(receiver, "unauthorised")
        assert (await transport.post(BEAT)).status == 401
        (tmp_path / "token").write_text("fresher-token")
        assert (await transport.post(BEAT)).status == 200
        transport.close()
        assert receiver.tokens[-1] == "Bearer fresher-token"


async def test_without_a_token_nothing_is_sent(tmp_path: Path) -> None:
    with receiving() as receiver:
        transport = HttpsTransport(receiver.address, TokenFile(str(tmp_path / "none")))
        with pytest.raises(TransportError, match="mount the node's token"):
            await transport.post(BEAT)
        assert receiver.connections == 0


async def test_without_a_trusted_certificate_no_token_is_sent(token: TokenFile) -> None:
    with receiving(tls=True) as receiver:
        for address, ca in (
            (receiver.address, None),
            (receiver.address.replace("localhost", "127.0.0.1"), CA),
        ):
            with pytest.raises(TransportError, match="certificate is not trusted"):
                await HttpsTransport(address, token, ca).post(BEAT)
        assert receiver.tokens == []


async def test_plain_http_at_an_https_address_is_an_error() -> None:
    with receiving() as receiver:
        transport = HttpsTransport(
            receiver.address.replace("http://127.0.0.1", "https://localhost"), None, CA
        )
        with pytest.raises(TransportError, match="see that it speaks https"):
            await transport.post(BEAT, 2.0)


async def test_a_refused_connection_is_an_error() -> None:
    with pytest.raises(TransportError, match="Connection refused: see that it runs"):
        await HttpsTransport(f"http://127.0.0.1:{closed_port()}", None).post(BEAT)


async def test_a_hung_handshake_ends_at_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        transport = HttpsTransport(f"https://localhost:{silent.getsockname()[1]}/", None, CA)
        with pytest.raises(TransportError, match=r"no answer within 0\.3 s"):
            await transport.post(BEAT, 0.3)


async def test_a_ca_file_that_cannot_be_used_is_named_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    with receiving(tls=True) as receiver:
        transport = HttpsTransport(receiver.address, None, str(path))
        with pytest.raises(TransportError, match=f"^{path}: No such file or directory: put the CA's cert"):
            await transport.post(BEAT)
        for content in ("", "no certificate", "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"):
            path.write_text(content)
            with pytest.raises(TransportError, match=f"^{path} holds no certificates: write the CA's"):
                await transport.post(BEAT)
        path.write_bytes((TLS / "ca.pem").read_bytes())
        assert (await transport.post(BEAT)).status == 200
        transport.close()


@pytest.mark.parametrize("tls", [False, True])
async def test_an_exchange_can_be_ended_early(tls: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        name = "https://localhost" if tls else "http://127.0.0.1"
        transport = HttpsTransport(f"{name}:{silent.getsockname()[1]}/", None, CA)
        asyncio.get_running_loop().call_later(0.2, lambda: transport.end_by(time.monotonic()))
        began = time.monotonic()
        with pytest.raises(TransportError, match=r"no answer within \d\.\d s"):
            await transport.post(BEAT)
        assert time.monotonic() - began < DEADLINE
        began = time.monotonic()
        transport.end_by(began + 0.3)
        with pytest.raises(TransportError, match=r"no answer within 0\.\d s"):
            await transport.post(BEAT)
        assert time.monotonic() - began < DEADLINE


async def test_a_pending_connection_can_be_ended_early() -> None:
    with socket.socket() as full, socket.socket() as first, socket.socket() as other:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for sock in (first, other):
            sock.setblocking(False)
            sock.connect_ex(full.getsockname())
        transport = HttpsTransport(f"http://127.0.0.1:{full.getsockname()[1]}/", None)
        asyncio.get_running_loop().call_later(0.2, lambda: transport.end_by(time.monotonic()))
        began = time.monotonic()
        with pytest.raises(TransportError, match="no answer within"):
            await transport.post(BEAT)
        assert time.monotonic() - began < DEADLINE

"""The status page over real sockets."""

from __future__ import annotations

import asyncio
import stat
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NoReturn

import aiohttp
import pytest

from nodeguard.aggregator.history.reader import HistoryError
from nodeguard.aggregator.history.store import HistoryStore
from nodeguard.aggregator.pages import handler as pages_handler
from nodeguard.aggregator.pages.change_feed import ChangeFeed
from nodeguard.aggregator.pages.handler import MAX_STREAMS, PagesContext, StatusPages, serve_pages
from nodeguard.aggregator.pages.layout import CONTENT_SECURITY_POLICY
from nodeguard.fleet.state.history_events import HistoryNote, NoteKind
from nodeguard.fleet.state.node_marks import encode_record
from nodeguard.fleet_api.service_state import ServiceState
from nodeguard.model.mark import Mark, MarkCause, MarkRecord
from tests.aggregator.history.scene import START, received
from tests.aggregator.pages.scenes import CATALOGUE, gpu_name, pages_context, plain_fleet
from tests.fleet.scene import Fleet, finding
from tests.logs import LogLines
from tests.ports import free_ports
from tests.waiting import PATIENCE, until_async


@asynccontextmanager
async def served(
    fleet: Fleet, history: str = "", feed: ChangeFeed | None = None
) -> AsyncIterator[aiohttp.ClientSession]:
    """Serve the pages of a fleet. Yield a session of a client with their base address."""
    [port] = free_ports(1)
    async with (
        serve_pages(("127.0.0.1", port), StatusPages(pages_context(fleet, history), feed)),
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
    ):
        yield session


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    made = plain_fleet(40)
    made.report(3, finding())
    made.carry_out()
    return made


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/", 200, "40 nodes: 1 fatal"),
        ("/?by=power", 200, "/domains/power/row0"),
        ("/nodes/gpu-h100-0003", 200, "quarantined, no new work: gpu-lost"),
        ("/nodes", 200, "40 nodes"),
        ("/nodes?q=0003", 200, "1 node with &#x27;0003&#x27; in the name"),
        ("/nodes?q=&health=fatal&mark=any&page=1", 200, "/nodes/gpu-h100-0003"),
        ("/nodes?health=broken", 400, "use one of fatal, suspect, warning, unknown, ok"),
        ("/nodes?mark=x", 400, "is not valid for mark: use one of any, quarantine"),
        ("/nodes?work=x", 400, "is not valid for work: use one of working, unknown, faulty, marked"),
        ("/nodes?page=0", 400, "use a number from 1 to 9999"),
        (f"/nodes?q={'x' * 254}", 400, "q has 254 characters: use at most 253"),
        ("/nodes?name=x", 400, "is not a filter of this page: use q, health, mark, work, page"),
        ("/incidents?state=broken", 400, "is not valid for state: use one of open, pending"),
        ("/nodes/none", 404, "Not found"),
        ("/incidents", 200, "gpu-lost"),
        ("/incidents?state=marked&check=gpu-lost", 200, "gpu-lost"),
        ("/incidents?check=gpu-lost&page=1", 200, "gpu-lost"),
        ("/incidents?check=gpu-lost&page=-1", 400, "use a number from 1 to 9999"),
        ("/incidents/none", 404, "Not found"),
        ("/checks/gpu-lost", 200, "gpu-lost - "),
        ("/checks/link", 200, "who acts"),
        ("/checks/none", 404, "Not found"),
        ("/checks/", 404, "Not found"),
        ("/domains", 200, "no domain is degraded"),
        ("/domains/fabric/p0/r0", 200, "fabric/p0/r0"),
        ("/domains/none", 404, "Not found"),
        ("/etc/passwd", 404, "Not found"),
        ("/static/..%2F..%2Flayout.py", 404, "Not found"),
        ("/%00%ff//", 404, "Not found"),
    ],
)  # fmt: skip
async def test_pages_are_served_with_a_strict_policy(fleet: Fleet, path: str, status: int, text: str) -> None:
    async with served(fleet) as session, session.get(path) as response:
        body = (await response.read()).decode()
        headers = response.headers
        assert (response.status, response.content_type) == (status, "text/html")
        assert text in body
        assert headers["Content-Security-Policy"] == CONTENT_SECURITY_POLICY
        assert "unsafe" not in CONTENT_SECURITY_POLICY
        assert (headers["X-Content-Type-Options"], headers["Cache-Control"]) == ("nosniff", "no-store")
        assert "Access-Control-Allow-Origin" not in headers
        assert " style=" not in body
        assert " on" not in [word[:3] for word in body.split("<")]


async def test_static_files_never_change_under_their_path(fleet: Fleet) -> None:
    async with served(fleet) as session:
        async with session.get("/") as response:
            body = (await response.read()).decode()
        paths = [
            part.split('"')[0]
            for part in body.replace('src="', 'href="').split('href="')
            if part.startswith("/static/")
        ]
        assert len(paths) == 3
        for path in paths:
            async with session.get(path) as response:
                assert response.status == 200
                assert "immutable" in response.headers["Cache-Control"]
                assert (await response.read()).strip()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT"])
async def test_only_reading_is_allowed(fleet: Fleet, method: str) -> None:
    async with served(fleet) as session, session.request(method, "/") as response:
        assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")


async def test_head_has_no_body(fleet: Fleet) -> None:
    async with served(fleet) as session, session.head("/") as response:
        assert (response.status, await response.read()) == (200, b"")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:9436", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:9436", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.nip.io:9436", 421),
        ("[::1].evil.example", 421),
        ("", 421),
    ],
)
async def test_a_web_site_that_resolves_to_this_machine_is_refused(
    fleet: Fleet, host: str, status: int
) -> None:
    async with served(fleet) as session, session.get("/", headers={"Host": host}) as response:
        assert response.status == status
        if status == 421:
            assert "open it as http://localhost:PORT" in (await response.read()).decode()


@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1"])
@pytest.mark.parametrize("path", ["/", "/events", "http://localhost/"])
async def test_a_request_without_a_host_is_refused_without_a_line_in_the_log(
    fleet: Fleet, log: LogLines, caplog: pytest.LogCaptureFixture, version: str, path: str
) -> None:
    [port] = free_ports(1)
    async with serve_pages(("127.0.0.1", port), StatusPages(pages_context(fleet))):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {path} {version}\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
    assert 400 <= int(answer.split()[1]) < 500
    assert not log.lines
    assert not caplog.records


async def test_a_long_page_is_compressed_on_request(fleet: Fleet) -> None:
    async with served(fleet) as session, session.get("/", headers={"Accept-Encoding": "gzip"}) as response:
        assert response.headers["Content-Encoding"] == "gzip"
        assert b"40 nodes" in await response.read()


async def status_at(path: Path) -> int:
    """Return the status of the first page at a socket."""
    async with (
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as session,
        session.get("http://localhost/") as response,
    ):
        return response.status


async def test_at_a_socket_root_and_the_own_user_may_ask(fleet: Fleet, tmp_path: Path) -> None:
    path = tmp_path / "page.sock"
    async with serve_pages(str(path), StatusPages(pages_context(fleet))):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert await status_at(path) == 200
    assert not path.exists()


async def test_at_a_socket_other_users_are_refused(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodeguard.aggregator.pages.request_check.is_authorized_peer", lambda _: False)
    path = tmp_path / "page.sock"
    async with serve_pages(str(path), StatusPages(pages_context(fleet))):
        assert await status_at(path) == 403


async def test_a_change_is_sent_to_open_pages() -> None:
    fleet = plain_fleet(8)
    context = pages_context(fleet)
    feed = ChangeFeed(lambda: len(fleet.planner.tracker.recorded.by_uid), 0.001, 1e6)
    async with served(fleet, feed=feed) as session, session.get("/events") as response:
        assert response.content_type == "text/event-stream"
        assert await response.content.readuntil(b"\n\n") == b"retry: 5000\n: open\n\n"
        fleet.report(3, finding())
        fleet.carry_out()
        async with asyncio.timeout(PATIENCE):
            assert await response.content.readuntil(b"\n\n") == b"event: change\ndata:\n\n"
    assert context.planner is fleet.planner


async def test_a_quiet_stream_has_heartbeats(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages_handler, "_HEARTBEAT", 0.001)
    async with (
        served(fleet, feed=ChangeFeed(lambda: 0, 1e6, 1e6)) as session,
        session.get("/events") as response,
    ):
        await response.content.readuntil(b"\n\n")
        assert await response.content.readuntil(b"\n\n") == b": alive\n\n"


async def test_streams_are_limited_and_a_closed_page_frees_its_stream(fleet: Fleet) -> None:
    feed = ChangeFeed(lambda: 0, 1e6, 1e6)
    async with served(fleet, feed=feed) as session:
        streams = [await session.get("/events") for _ in range(MAX_STREAMS)]
        async with session.get("/events") as response:
            assert response.status == 503
        streams[0].close()
        await until_async(lambda: len(feed) < MAX_STREAMS)
        async with session.get("/events") as response:
            assert response.status == 200
        for stream in streams:
            stream.close()


async def test_the_end_of_the_server_ends_its_streams(fleet: Fleet, log: LogLines) -> None:
    [port] = free_ports(1)
    feed = ChangeFeed(lambda: 0, 1e6, 1e6)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        async with serve_pages(("127.0.0.1", port), StatusPages(pages_context(fleet), feed)):
            stream = await session.get("/events")
            await stream.content.readuntil(b"\n\n")
        async with asyncio.timeout(PATIENCE):
            assert await stream.content.read() == b"event: change\ndata:\n\n"
    assert log.lines == []


async def test_the_findings_of_a_node_come_from_the_history(fleet: Fleet, tmp_path: Path) -> None:
    store = HistoryStore(str(tmp_path / "history.sqlite"))
    store.add([received(0.0, 3, 1, finding("gpu-hot", message="89 °C"))], START)
    store.close()
    async with served(fleet, str(tmp_path)) as session, session.get(f"/nodes/{gpu_name(3)}") as response:
        assert "gpu-hot: 89 °C" in (await response.read()).decode()
    (tmp_path / "history.sqlite").write_bytes(b"damaged" * 999)
    async with served(fleet, str(tmp_path)) as session, session.get(f"/nodes/{gpu_name(3)}") as response:
        assert response.status == 200
        assert "Not available: " in (await response.read()).decode()


async def test_the_changes_of_the_past_day_come_from_the_history(fleet: Fleet, tmp_path: Path) -> None:
    store = HistoryStore(str(tmp_path / "history.sqlite"))
    mark = MarkCause(Mark.QUARANTINE, "gpu-lost", "gpu/0000:3b:00", "gpu", 0.0)
    notes = (
        (NoteKind.MARKS, "uid-3", gpu_name(3), encode_record(MarkRecord())),
        (NoteKind.MARKS, "uid-3", gpu_name(3), encode_record(MarkRecord((mark,)))),
        (NoteKind.PAUSE, "", "", "paused by alice"),
    )
    store.add([HistoryNote(fleet.wall - 60.0, *note) for note in notes], fleet.wall)
    store.close()
    for path, counts in (
        ("/", "1 mark set, 1 pause"),
        (f"/nodes/{gpu_name(3)}", "1 mark set, 1 pause"),
        (f"/nodes/{gpu_name(4)}", "1 pause"),
    ):
        async with served(fleet, str(tmp_path)) as session, session.get(path) as response:
            assert f"Past 24 hours</b>: {counts}" in (await response.read()).decode()


async def test_a_history_that_hangs_delays_a_page_for_a_limited_time(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang = threading.Event()
    monkeypatch.setattr(pages_handler, "read_history_view", lambda *_, **__: hang.wait(PATIENCE))
    monkeypatch.setattr(pages_handler, "_HISTORY", 0.02)
    try:
        async with served(fleet, str(tmp_path)) as session:
            for path in ("/?by=fabric", "/?by=power"):
                async with session.get(path) as response:
                    assert "not available: the history was not read within" in await response.text()
    finally:
        hang.set()


async def test_many_viewers_of_the_fleet_read_the_history_once(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []

    def read(_: str, name: str, *times: float, **options: bool) -> NoReturn:
        reads.append(name)
        raise HistoryError("not read")

    monkeypatch.setattr(pages_handler, "read_history_view", read)

    async def view(session: aiohttp.ClientSession) -> str:
        async with session.get("/") as response:
            return await response.text()

    async with served(fleet, str(tmp_path)) as session:
        pages = await asyncio.gather(*(view(session) for _ in range(8)))
    assert ["not read" in page for page in pages] == [True] * 8
    assert reads == [""]


async def test_an_internal_error_is_logged_and_not_shown(fleet: Fleet, log: LogLines) -> None:
    def fail() -> NoReturn:
        raise ZeroDivisionError("secret")

    [port] = free_ports(1)
    broken = PagesContext(fleet.planner, fail, lambda: fleet.now, {}, CATALOGUE)
    async with (
        serve_pages(("127.0.0.1", port), StatusPages(broken)),
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/") as response,
    ):
        assert (response.status, await response.text()) == (
            500,
            "ZeroDivisionError: see the aggregator's log\n",
        )
    assert "internal error in the status page" in str(log.lines)


async def test_an_invalid_topology_is_no_key_of_the_cache(fleet: Fleet) -> None:
    [port] = free_ports(1)
    pages = StatusPages(pages_context(fleet))
    async with (
        serve_pages(("127.0.0.1", port), pages),
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
    ):
        for number in range(20):
            async with session.get(f"/?by=x{number}&x={number}") as response:
                assert response.status == 200
        assert len(pages.cache) <= 1


async def test_many_viewers_cost_one_page_in_two_seconds(fleet: Fleet) -> None:
    calls = 0
    context = pages_context(fleet)

    def service() -> ServiceState:
        nonlocal calls
        calls += 1
        return context.service()

    [port] = free_ports(1)
    counting = context._replace(service=service)
    async with (
        serve_pages(("127.0.0.1", port), StatusPages(counting)),
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
    ):
        bodies = [await (await session.get("/")).read() for _ in range(5)]
    assert len(set(bodies)) == 1
    assert calls < 5

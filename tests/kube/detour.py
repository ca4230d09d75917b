"""A TCP proxy to a server that a test can cut or stall."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self

# At least the turns of the event loop from the acceptance of a connection to its task.
_ACCEPTING = 10


class Detour:
    """A proxy to a port of this machine. It forwards at first. delay: seconds until the client gets what the
    server has sent; the client's data is not delayed.
    """

    def __init__(self, port: int) -> None:
        self.delay = 0.0
        self._port = port
        self._open = asyncio.Event()
        self._open.set()
        self._is_cut = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """Close all connections, and each new one at once."""
        self._is_cut = True
        for task in self._tasks:
            task.cancel()

    def stall(self) -> None:
        """Forward no data, and close no connection."""
        self._open.clear()

    def restore(self) -> None:
        """Forward again."""
        self._is_cut = False
        self._open.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        # Python leaves a connection open that is accepted when the server is closed.
        for listener in self._server.sockets:
            asyncio.get_running_loop().remove_reader(listener.fileno())
        for _ in range(_ACCEPTING):
            await asyncio.sleep(0)
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the transports are closed in the next turn

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._pass(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # A task that is cancelled before it begins closes nothing.
        task.add_done_callback(lambda _: writer.close())

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            if self._is_cut:
                return
            with suppress(OSError):
                from_server, to_server = await asyncio.open_connection("127.0.0.1", self._port)
                writers.append(to_server)
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._copy(reader, to_server))
                    group.create_task(self._copy_late(from_server, writer))
        finally:
            for stream in writers:
                stream.close()
            for stream in writers:
                with suppress(OSError):
                    await stream.wait_closed()

    async def _copy_late(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Copy each piece after the delay. Pieces that come together are also delivered together."""
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                due, piece = await pieces.get()
                await asyncio.sleep(due - loop.time())
                await self._open.wait()
                if not piece:
                    return
                writer.write(piece)
                await writer.drain()

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(deliver())
                piece = b"any"
                while piece:
                    piece = await reader.read(65536)
                    pieces.put_nowait((loop.time() + self.delay, piece))
            writer.close()
        except* OSError:
            pass  # one side is gone

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await reader.read(65536):
                await self._open.wait()
                writer.write(piece)
                await writer.drain()
            writer.close()

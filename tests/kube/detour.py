"""A way to a server that can be cut: bytes go through as they are, as long as it is open."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self


class Detour:
    """A port of this machine behind which another one is. Open at first."""

    def __init__(self, port: int) -> None:
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

    def silence(self) -> None:
        """Let nothing through, and close nothing."""
        self._open.clear()

    def mend(self) -> None:
        self._is_cut = False
        self._open.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._came, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._pass(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            if self._is_cut:
                return
            with suppress(OSError):
                there, back = await asyncio.open_connection("127.0.0.1", self._port)
                writers.append(back)
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._copy(reader, back))
                    group.create_task(self._copy(there, writer))
        finally:
            for one in writers:
                one.close()
            for one in writers:
                with suppress(OSError):
                    await one.wait_closed()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await reader.read(65536):
                await self._open.wait()
                writer.write(piece)
                await writer.drain()
            writer.close()

"""A headless Chromium for tests, driven by the Chrome DevTools Protocol over a WebSocket."""

from __future__ import annotations

import asyncio
import base64
import itertools
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

from tests.waiting import PATIENCE, until, until_async

_ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-proxy-server",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
    "about:blank",
)


class ProtocolError(Exception):
    """The browser did not run a method: "Inspected target navigated or closed", for example."""


class Tab:
    """A page of the browser. messages: errors and warnings of its console, violations of its policy included.
    servers: end after the page, so that none ends while the page connects.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, servers: AsyncExitStack) -> None:
        self.servers = servers
        self.messages: list[str] = []
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._loads = 0
        self._reading = asyncio.create_task(self._read())

    async def start(self) -> None:
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return the result of a method of the protocol. Raises ProtocolError."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(PATIENCE):
            result: dict[str, Any] = await answer
        return result

    async def open(self, url: str) -> None:
        """Open a page and wait until it is loaded."""
        loads = self._loads
        await self.call("Page.navigate", url=url)
        await until_async(lambda: self._loads > loads)

    async def evaluate(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript. Raises ProtocolError if its page is replaced."""
        result = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def shows(self, expression: str) -> None:
        """Wait until an expression is true, in this page or in the page that replaces it."""
        async with asyncio.timeout(PATIENCE):
            while True:
                with suppress(ProtocolError):
                    if await self.evaluate(expression):
                        return
                await asyncio.sleep(0.01)

    async def press(self, key: str, code: int) -> None:
        """Press a key. code: its Windows virtual key code."""
        for kind in ("rawKeyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code
            )

    async def view(self, width: int, *, dark: bool = False, scripts: bool = True) -> None:
        """Set the width in pixels, the color scheme, and whether scripts run."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        await self.call("Emulation.setScriptExecutionDisabled", value=not scripts)

    async def screenshot(self, path: Path) -> None:
        """Write a picture of the whole page as PNG."""
        result = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(result["data"]))

    async def close(self) -> None:
        self._reading.cancel()
        await self._socket.close()

    async def _read(self) -> None:
        async for message in self._socket:
            event = message.json()
            parameters = event.get("params", {})
            match event.get("method"):
                case None:
                    answer = self._answers.pop(event["id"])
                    if "error" in event:
                        answer.set_exception(ProtocolError(event["error"]["message"]))
                    else:
                        answer.set_result(event["result"])
                case "Page.loadEventFired":
                    self._loads += 1
                case "Log.entryAdded":
                    self.messages.append(f"{parameters['entry']['level']}: {parameters['entry']['text']}")
                case "Runtime.exceptionThrown":
                    self.messages.append(f"exception: {parameters['exceptionDetails']['text']}")
                case "Runtime.consoleAPICalled":
                    self.messages.append(f"console: {parameters['args']}")


@contextmanager
def browser(directory: Path) -> Iterator[str]:
    """Run a browser with an empty profile in a directory. Returns the URL at which it opens pages."""
    program = shutil.which("chromium")
    assert program is not None, "chromium is missing: run `scripts/environment browser`"
    with (directory / "chromium.log").open("w") as log:
        process = subprocess.Popen(
            [program, f"--user-data-dir={directory}", *_ARGUMENTS],
            stdout=log, stderr=log, env={"HOME": str(directory), "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
    try:
        port_file = directory / "DevToolsActivePort"
        until(lambda: port_file.exists() and "\n" in port_file.read_text())
        yield f"http://127.0.0.1:{port_file.read_text().split()[0]}/json"
    finally:
        process.terminate()
        process.wait(PATIENCE)


@asynccontextmanager
async def new_tab(url: str) -> AsyncIterator[Tab]:
    """Open a page of a browser, and close it before its servers end. url: of the browser."""
    async with AsyncExitStack() as servers, aiohttp.ClientSession() as session:
        async with session.put(f"{url}/new?about:blank") as response:
            page = await response.json()
        async with session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0) as socket:
            tab = Tab(socket, servers)
            await tab.start()
            yield tab
            await tab.close()
        async with session.get(f"{url}/close/{page['id']}") as response:
            response.raise_for_status()

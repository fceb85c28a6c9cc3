"""A browser without a window, and one page of it: what the page asks for, complains of and shows."""

import asyncio
import base64
import itertools
import os
import re
import shutil
import signal
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = shutil.which("chromium")
PATIENCE = 60  # seconds: the end of hope, not a time anybody waits
LOOK_EVERY = 0.05
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # tests may run as root, and it sees nothing but our own page
    "--remote-debugging-port=0",
    "--no-first-run",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",  # it reaches this machine, and nothing else
)


class Page:
    """A page, by the protocol of the browser's developer tools."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self.requests: list[str] = []
        self.complaints: list[str] = []

    async def listen(self) -> None:
        async for message in self._socket:
            said = message.json()
            if "id" in said:
                self._waiting.pop(said["id"]).set_result(said)
                continue
            match said["method"], said["params"]:
                case "Network.requestWillBeSent", params:
                    self.requests.append(params["request"]["url"])
                case "Runtime.exceptionThrown", params:
                    self.complaints.append(str(params["exceptionDetails"]))
                case "Runtime.consoleAPICalled", {"type": "error" | "warning"} as params:
                    self.complaints.append(str(params["args"]))
                case "Log.entryAdded", {"entry": {"level": "error" | "warning"} as entry}:
                    self.complaints.append(f"{entry['text']} {entry.get('url')}")

    async def tell(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(PATIENCE):
            said = await self._waiting[number]
        assert "error" not in said, said
        return said["result"]

    async def value(self, expression: str) -> Any:
        """Return what an expression is on the page."""
        said = await self.tell("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in said, said
        return said["result"].get("value")

    async def until(self, expression: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while True:
                if await self.value(expression):
                    return
                await asyncio.sleep(LOOK_EVERY)

    async def go(self, url: str) -> None:
        await self.tell("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'")

    async def look(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the size of the window, and which colours are wanted."""
        await self.tell(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.tell("Emulation.setEmulatedMedia", features=[feature])

    async def picture(self, path: Path) -> None:
        shot = await self.tell("Page.captureScreenshot", format="png")
        await asyncio.to_thread(path.write_bytes, base64.b64decode(shot["data"]))


@asynccontextmanager
async def browsing() -> AsyncIterator[Page]:
    """Open a page, and end the browser with all its processes afterwards."""
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory(prefix="mainspring-browser-", ignore_cleanup_errors=True) as room:
        process = await asyncio.create_subprocess_exec(
            CHROMIUM,
            *FLAGS,
            f"--user-data-dir={room}",
            "about:blank",
            stdout=DEVNULL,
            stderr=PIPE,
            start_new_session=True,
        )
        assert process.stderr is not None
        try:
            async with asyncio.timeout(PATIENCE):
                while not (found := re.search(rb"ws://127\.0\.0\.1:(\d+)/", said := await process.stderr.readline())):
                    assert said, "the browser ended"
            rest = asyncio.create_task(process.stderr.read())  # else it would wait for somebody to read
            async with aiohttp.ClientSession() as session:
                async with session.put(f"http://127.0.0.1:{int(found[1])}/json/new?about:blank") as answer:
                    where = (await answer.json())["webSocketDebuggerUrl"]
                async with session.ws_connect(where, max_msg_size=0) as socket:
                    page = Page(socket)
                    listening = asyncio.create_task(page.listen())
                    for domain in ("Page", "Runtime", "Log", "Network"):
                        await page.tell(f"{domain}.enable")
                    yield page
                    listening.cancel()
                    await asyncio.wait((listening,))
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # a session of its own: the browser and its children
            await process.wait()
        await rest

"""Chromium and Firefox without a window, driven by what they speak themselves: DevTools, and WebDriver BiDi.

Neither needs a driver program. Both get a profile of their own, which goes away with them.
"""

from __future__ import annotations

import base64
import io
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import websocket
from PIL import Image

LIMIT_S = 120
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FIREFOX = ("firefox-esr", "firefox")
_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--force-color-profile=srgb", "--disable-background-networking", "--remote-debugging-port=0",
)  # fmt: skip
_PREFERENCES = {
    "layout.css.prefers-color-scheme.content-override": 1,
    "ui.useOverlayScrollbars": 1,
    "app.update.auto": False,
    "toolkit.telemetry.reportingpolicy.firstRun": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "remote.log.truncate": True,
}


class Browser:
    """A page in a browser.

    Args:
        address: of the web socket.
    """

    name = ""

    def __init__(self, address: str) -> None:
        self._socket = websocket.create_connection(address, timeout=LIMIT_S, suppress_origin=True, max_size=None)
        self._numbers = count(1)
        self.events: list[dict[str, Any]] = []

    def close(self) -> None:
        with suppress(Exception):
            self._socket.close()

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._socket.send(json.dumps(self._envelope(number, method, parameters)))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") != number:
                self.events.append(message)
                continue
            assert "error" not in message, f"{self.name}: {method}: {message}"
            return message["result"]

    def _envelope(self, number: int, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        return {"id": number, "method": method, "params": parameters}

    def open(self, page: Path | str, width: int, height: int = 900) -> None:
        """Show a file, or an address, in a window of so many CSS pixels."""
        raise NotImplementedError

    def evaluate(self, expression: str) -> Any:
        """The value of JavaScript, as JSON has it; promises are waited for."""
        raise NotImplementedError

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Press at one point of the window, let go at another."""
        raise NotImplementedError

    def hover(self, x: float, y: float) -> None:
        raise NotImplementedError

    def press(self, key: str) -> None:
        """Press and let go of ``Tab``, ``Enter`` or a character's key."""
        raise NotImplementedError

    def _screenshot(self, box: dict[str, float]) -> str:
        raise NotImplementedError

    def picture(self, box: dict[str, float]) -> Image.Image:
        """What is seen of a part of the document: x, y, width, height."""
        return Image.open(io.BytesIO(base64.b64decode(self._screenshot(box)))).convert("RGB")

    def wait(self, condition: str) -> Any:
        """Wait until an expression is true; its value."""
        end = time.monotonic() + LIMIT_S
        while not (value := self.evaluate(condition)):
            assert time.monotonic() < end, f"{self.name}: never: {condition}"
            time.sleep(0.05)
        return value


class Chromium(Browser):
    name = "chromium"

    def __init__(self, address: str, scheme: str) -> None:
        super().__init__(address)
        self._session = ""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self.send(f"{domain}.enable")
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def _envelope(self, number: int, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        found = super()._envelope(number, method, parameters)
        return found | {"sessionId": self._session} if self._session else found

    def open(self, page: Path | str, width: int, height: int = 900) -> None:
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        address = _address(page)
        self.send("Page.navigate", url=address)
        self.wait(f"document.readyState === 'complete' && location.href === {json.dumps(address)}")

    def requests(self) -> list[str]:
        """What it asked for, over whatever."""
        return [one["params"]["request"]["url"] for one in self.events if one["method"] == "Network.requestWillBeSent"]

    def evaluate(self, expression: str) -> Any:
        found = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, f"{expression}: {found['exceptionDetails']}"
        return found["result"].get("value")

    def _mouse(self, kind: str, point: tuple[float, float], **more: Any) -> None:
        self.send("Input.dispatchMouseEvent", type=kind, x=point[0], y=point[1], **more)

    def hover(self, x: float, y: float) -> None:
        self._mouse("mouseMoved", (x - 1, y))
        self._mouse("mouseMoved", (x, y))

    def press(self, key: str) -> None:
        code = {"Tab": 9, "Enter": 13}.get(key, 0)
        text = {"Tab": {}, "Enter": {"text": "\r"}}.get(key, {"text": key})
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        self._mouse("mouseMoved", start)
        self._mouse("mousePressed", start, button="left", clickCount=1)
        self._mouse("mouseMoved", ((start[0] + end[0]) / 2, end[1]), button="left", buttons=1)
        self._mouse("mouseMoved", end, button="left", buttons=1)
        self._mouse("mouseReleased", end, button="left", clickCount=1)

    def _screenshot(self, box: dict[str, float]) -> str:
        found = self.send("Page.captureScreenshot", clip=box | {"scale": 1}, captureBeyondViewport=True)
        return str(found["data"])


class Firefox(Browser):
    name = "firefox"

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.send("session.new", capabilities={})
        self._context = self.send("browsingContext.getTree")["contexts"][0]["context"]
        self.send("session.subscribe", events=["network.beforeRequestSent"])

    def open(self, page: Path | str, width: int, height: int = 900) -> None:
        size = {"width": width, "height": height}
        self.send("browsingContext.setViewport", context=self._context, viewport=size, devicePixelRatio=1)
        self.send("browsingContext.navigate", context=self._context, url=_address(page), wait="complete")

    def requests(self) -> list[str]:
        """What it asked for, over whatever."""
        return [one["params"]["request"]["url"] for one in self.events if one["method"] == "network.beforeRequestSent"]

    def evaluate(self, expression: str) -> Any:
        wrapped = f"Promise.resolve({expression}).then(value => JSON.stringify(value === undefined ? null : value))"
        found = self.send(
            "script.evaluate", expression=wrapped, target={"context": self._context}, awaitPromise=True,
            resultOwnership="none",
        )  # fmt: skip
        assert found["type"] == "success", f"{expression}: {found}"
        return json.loads(found["result"]["value"])

    def _actions(self, *actions: dict[str, Any]) -> None:
        mouse = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": list(actions)}
        self.send("input.performActions", context=self._context, actions=[mouse])

    def press(self, key: str) -> None:
        value = {"Tab": "\ue004", "Enter": "\ue007"}.get(key, key)
        actions = [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        keys = {"type": "key", "id": "keys", "actions": actions}
        self.send("input.performActions", context=self._context, actions=[keys])

    @staticmethod
    def _move(x: float, y: float) -> dict[str, Any]:
        return {"type": "pointerMove", "x": round(x), "y": round(y)}

    def hover(self, x: float, y: float) -> None:
        self._actions(self._move(x - 1, y), self._move(x, y))

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        self._actions(
            self._move(*start), {"type": "pointerDown", "button": 0}, self._move((start[0] + end[0]) / 2, end[1]),
            self._move(*end), {"type": "pointerUp", "button": 0},
        )  # fmt: skip

    def _screenshot(self, box: dict[str, float]) -> str:
        found = self.send(
            "browsingContext.captureScreenshot", context=self._context, origin="document", clip={"type": "box"} | box
        )
        return str(found["data"])


def _address(page: Path | str) -> str:
    return page if isinstance(page, str) else page.as_uri()


@contextmanager
def browser(name: str, scheme: str) -> Iterator[Chromium | Firefox]:
    """Start a browser: ``chromium`` or ``firefox``, whose pages are told to be ``light`` or ``dark``."""
    names = _CHROMIUM if name == "chromium" else _FIREFOX
    program = next((found for one in names if (found := shutil.which(one))), None)
    assert program, f"no {name}: install one of {', '.join(names)}"
    with tempfile.TemporaryDirectory(prefix=f"{name}-", ignore_cleanup_errors=True) as profile:
        if name == "chromium":
            arguments = [program, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
            said = r"DevTools listening on (ws://\S+)"
        else:
            values = _PREFERENCES | {"layout.css.prefers-color-scheme.content-override": 0 if scheme == "dark" else 1}
            lines = (f'user_pref("{key}", {json.dumps(value)});\n' for key, value in values.items())
            (Path(profile) / "user.js").write_text("".join(lines))
            arguments = [program, "--headless", "--no-remote", "--profile", profile, "--remote-debugging-port", "0"]
            said = r"WebDriver BiDi listening on (ws://\S+)"
        with _running([*arguments], said, profile) as address:
            page = Chromium(address, scheme) if name == "chromium" else Firefox(f"{address}/session")
            try:
                yield page
            finally:
                page.close()


@contextmanager
def _running(arguments: list[str], said: str, home: str) -> Iterator[str]:
    # The address that a browser writes to its error output.
    environment = os.environ | {"HOME": home, "MOZ_DISABLE_CONTENT_SANDBOX": "1"}
    process = subprocess.Popen(
        arguments, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment, start_new_session=True
    )
    lines: queue.Queue[str | None] = queue.Queue()
    reader = threading.Thread(target=_read, args=(process, lines.put), daemon=True)
    reader.start()
    seen = ""
    try:
        while True:
            line = lines.get(timeout=LIMIT_S)
            assert line is not None, f"{arguments[0]} ended: {seen}"
            seen += line
            if found := re.search(said, line):
                yield found[1]
                return
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        reader.join(LIMIT_S)
        process.stderr.close()


def _read(process: subprocess.Popen[str], put: Callable[[str | None], None]) -> None:
    for line in process.stderr:
        put(line)
    put(None)

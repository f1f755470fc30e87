"""A real browser without a window: Debian's Chromium, spoken to over two pipes by its own protocol."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

PROGRAM: Final = shutil.which("chromium")
MISSING: Final = "chromium is not installed (Debian's package; .ci/run installs it)"
_FLAGS: Final = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--force-device-scale-factor=1", "--remote-debugging-pipe"),
)
_READ_BYTES: Final = 1 << 16


class Chromium:
    """One browser with one page. Waiting is for what the browser tells; the watchdog ends a test that hangs."""

    def __init__(self, profile: Path) -> None:
        assert PROGRAM is not None, MISSING
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        # The protocol is on descriptors 3 and 4.
        shell = f'exec {PROGRAM} "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer = b""
        self._last_id = 0
        self._session = ""
        self.events: deque[dict[str, Any]] = deque()
        """Events of the page since the last `open`."""
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def _ask(self, method: str, **parameters: object) -> dict[str, Any]:
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self._last_id:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._from, _READ_BYTES)
            assert part, "the browser has ended"
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        return found

    def wait_for(self, method: str) -> dict[str, Any]:
        """The next event of this kind."""
        while True:
            event = self.events.popleft() if self.events else self._message()
            if event.get("method") == method:
                found: dict[str, Any] = event["params"]
                return found

    def open(self, address: str) -> int:
        """Open an address, once it is loaded; the status of its answer."""
        self.events.clear()
        assert "errorText" not in self._ask("Page.navigate", url=address)
        status = self.wait_for("Network.responseReceived")["response"]["status"]
        self.wait_for("Page.loadEventFired")
        return int(status)

    def run(self, script: str) -> Any:
        """The value of a script, which the policy of the page does not bind."""
        result = self._ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def look(self, width: int, height: int = 900, *, is_dark: bool = False) -> None:
        """Size of the window from now on, and the scheme of its user."""
        self._ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])

    def without_scripts(self, is_off: bool) -> None:
        self._ask("Emulation.setScriptExecutionDisabled", value=is_off)

    def press(self, key: str, code: int) -> None:
        for kind in ("rawKeyDown", "char", "keyUp") if key == "Enter" else ("rawKeyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" else {}
            self._ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def picture(self) -> bytes:
        """The whole page as WebP."""
        size = self._ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 2_200), "scale": 1}
        shot = self._ask("Page.captureScreenshot", format="webp", quality=82, captureBeyondViewport=True, clip=clip)
        return base64.b64decode(shot["data"])

"""Chromium without a window, driven by the devtools protocol through a pipe (Debian's package: chromium)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe")
FREE = 60  # far from the descriptors that the child has open
COMPLAINTS = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")


class Browser:
    """One page at a time. `messages` is all that the browser said unasked."""

    def __init__(self) -> None:
        name = next((name for name in NAMES if shutil.which(name)), None)
        assert name is not None, f"needs one of {', '.join(NAMES)}: apt-get install chromium"
        to_child, self.to = os.pipe()
        self.come, from_child = os.pipe()

        def place() -> None:
            """Chromium reads from descriptor 3 and writes to 4."""
            os.dup2(to_child, FREE)
            os.dup2(from_child, FREE + 1)
            os.dup2(FREE, 3)
            os.dup2(FREE + 1, 4)

        self.process = subprocess.Popen(
            [name, *FLAGS], preexec_fn=place, close_fds=False, stderr=subprocess.DEVNULL
        )
        os.close(to_child)
        os.close(from_child)
        self.number, self.rest, self.messages, self.session = 0, b"", list[dict[str, Any]](), ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: object) -> dict[str, Any]:
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        message |= {"sessionId": self.session} if self.session else {}
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while (answer := self.hear()).get("id") != self.number:
            self.messages.append(answer)
        assert "error" not in answer, (method, answer)
        return answer["result"]

    def hear(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            piece = os.read(self.come, 1 << 16)
            assert piece, "chromium ended"
            self.rest += piece
        text, _, self.rest = self.rest.partition(b"\0")
        return json.loads(text)

    def open(self, path: Path, width: int = 1280, dark: bool = False) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.messages = []
        self.call("Page.navigate", url=path.absolute().as_uri())
        while not any(message.get("method") == "Page.loadEventFired" for message in self.messages):
            self.messages.append(self.hear())

    def ask(self, expression: str) -> Any:
        """What a piece of JavaScript in the page comes to; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key)

    @property
    def complaints(self) -> list[dict[str, Any]]:
        return [message for message in self.messages if message.get("method") in COMPLAINTS]

    @property
    def fetched(self) -> list[str]:
        """Addresses of all that was asked for, the page itself left out."""
        asked = [m["params"] for m in self.messages if m.get("method") == "Network.requestWillBeSent"]
        urls = [each["request"]["url"] for each in asked if each.get("type") != "Document"]
        return [url for url in urls if not url.startswith("data:")]

    def close(self) -> None:
        self.session = ""
        self.call("Browser.close")
        self.process.wait()
        os.close(self.to)
        os.close(self.come)

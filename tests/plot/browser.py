"""A headless Chromium, told what to do over the pipe of its DevTools protocol: no driver, no port.

with Browser(tmp_path) as browser:
    page = browser.open(tmp_path / "report.html", width=360, dark=True)
    page.evaluate("document.title")
"""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

LIMIT = 60  # seconds for each answer
NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",  # root and containers have none; the pages are our own
    "--remote-debugging-pipe",
    "--no-first-run",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--hide-scrollbars",
)


def chromium() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    def __init__(self, home: Path) -> None:
        self._home = home
        self._numbers = itertools.count(1)
        self._buffer = b""

    def __enter__(self) -> Browser:
        # The browser reads from its descriptor 3 and writes to its 4.
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (to_read, to_write)]
        words = [chromium(), *FLAGS, f"--user-data-dir={self._home / 'profile'}"]
        log = os.open(self._home / "chromium.log", os.O_WRONLY | os.O_CREAT)
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{high[0]} 4>&{high[1]}', "bash", *words],
            pass_fds=high,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            env={**os.environ, "HOME": str(self._home)},
            start_new_session=True,
        )
        for fd in (to_read, to_write, log, *high):
            os.close(fd)
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._read)
        os.close(self._write)

    def open(
        self,
        path: Path,
        *,
        width: int = 1200,
        height: int = 900,
        dark: bool = False,
        scripts: bool = True,
    ) -> Page:
        """The page, loaded, in a tab of its own of `width` CSS pixels."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        page.call("Page.enable")
        page.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        page.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", features=[scheme])
        page.call("Page.navigate", url=path.resolve().as_uri())
        self.wait_for("Page.loadEventFired", session)
        return page

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        return self._until(lambda answer: answer.get("id") == number)

    def wait_for(self, event: str, session: str) -> None:
        self._until(lambda a: (a.get("method"), a.get("sessionId")) == (event, session))

    def _until(self, wanted: Any) -> dict[str, Any]:
        """Drops what is not wanted: every call waits for its own answer before the next one."""
        deadline = time.monotonic() + LIMIT
        while True:
            while b"\0" in self._buffer:
                text, self._buffer = self._buffer.split(b"\0", 1)
                answer = json.loads(text)
                if wanted(answer):
                    if "error" in answer:
                        raise AssertionError(answer["error"])
                    return answer.get("result", {})
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._read], [], [], left)[0]:
                raise AssertionError(f"no answer within {LIMIT} s; {self._log()}")
            read = os.read(self._read, 1 << 20)
            if not read:
                raise AssertionError(f"the browser ended; {self._log()}")
            self._buffer += read

    def _log(self) -> str:
        return (self._home / "chromium.log").read_text(errors="replace")[-2000:]


class Page:
    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, also where the page's own scripts are off."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def screenshot(self, whole: bool = False) -> bytes:
        """A PNG of what is in view, or of the whole page."""
        done = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(done["data"])

"""Pictures of the page for its documentation: `python -m tests.page.screenshots`, or `make screenshots`.

A server in this process has something of everything, and Chromium looks at it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

from coordinator_server.metrics import history
from tests.harness.threaded_server import threaded_server
from tests.page import chromium
from tests.page.chromium import Chromium
from tests.page.filled import Filled
from tests.page.served import served_page

DIRECTORY: Final = Path(__file__).resolve().parent.parent.parent / "docs/page"
PICTURES: Final = (
    ("overview", "/", 1200, False),
    ("transaction", "/transaction?id=shipping-2", 1200, False),
    ("records", "/records?name=orders&partition=0", 1200, False),
    ("topic-dark", "/topic?name=orders", 1200, True),
    ("phone", "/transactions", 390, False),
)
"""Name, path, width and scheme of each picture."""
_BUSY_S: Final = 45


def main() -> int:
    if chromium.PROGRAM is None:
        print(chromium.MISSING, file=sys.stderr)
        return 1
    DIRECTORY.mkdir(exist_ok=True)
    # An hour of rates in the time that the server is at work.
    history.INTERVAL_MS = round(_BUSY_S * 1_000 / history.POINTS_MAX)  # type: ignore[misc]
    with tempfile.TemporaryDirectory() as profile, threaded_server() as server, Chromium(Path(profile)) as browser:
        everything = Filled(server, is_hostile=False)
        everything.work(_BUSY_S)
        with served_page(server) as address:
            browser.open(f"{address}/pace?every=off&back=/")
            for name, path, width, is_dark in PICTURES:
                browser.look(width, is_dark=is_dark)
                browser.open(address + path)
                (DIRECTORY / f"{name}.webp").write_bytes(browser.picture())
                print(f"wrote {DIRECTORY.name}/{name}.webp")
        everything.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())

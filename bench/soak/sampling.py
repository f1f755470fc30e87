"""Resources that a server uses at one moment."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.server import OwnServer, metrics_address, scraped
from bench.soak.growth import Sample
from bench.soak.watched_server import FILE_VARIABLE, Allocated

_MIB: Final = 1 << 20
_STATUS: Final = re.compile(r"^(RssAnon|Threads):\s+(\d+)", re.MULTILINE)


class WatchedServer(OwnServer):
    """A server with metrics, which also reports its allocated memory."""

    def __init__(self, directory: Path, arguments: Sequence[str] = ()) -> None:
        self.allocated_file = directory / "allocated.json"
        os.environ[FILE_VARIABLE] = str(self.allocated_file)
        shown = ["--set", "metrics_listen=127.0.0.1:0"]
        super().__init__(directory, module="bench.soak.watched_server", arguments=[*shown, *arguments])


def sampled(server: WatchedServer, elapsed_s: float) -> Sample:
    """Sample a server. The latencies of its clients are not known here."""
    allocated = Allocated(**json.loads(server.allocated_file.read_text()))
    process = Path(f"/proc/{server.process_id}")
    found = {name: int(value) for name, value in _STATUS.findall((process / "status").read_text())}
    told = scraped(metrics_address(server.log))
    return Sample(
        elapsed_s=elapsed_s,
        memory_mib=found["RssAnon"] / 1_024,
        buffers_mib=told["txn_store_memtable_bytes"] / _MIB,
        cache_mib=told["txn_store_block_cache_bytes"] / _MIB,
        handles=sum(1 for _ in (process / "fd").iterdir()),
        threads=found["Threads"],
        disk_mib=_disk_bytes(server.data_dir) / _MIB,
        outside_python_mib=allocated.outside_python_mib,
        python_blocks=allocated.python_blocks,
        transactions=int(told["txn_coordinator_completed_total"]),
    )


def _disk_bytes(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_blocks * 512 if path.is_file() else 0
        except FileNotFoundError:
            # The file was removed after it was listed.
            continue
    return total

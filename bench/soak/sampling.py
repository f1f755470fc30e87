"""What a server takes of the machine at one moment."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from bench.server import OwnServer, metrics_address, scraped
from bench.soak.growth import Sample

_MIB: Final = 1 << 20
_STATUS: Final = re.compile(r"^(RssAnon|Threads):\s+(\d+)", re.MULTILINE)


def sampled(server: OwnServer, elapsed_s: float) -> Sample:
    """Look at a server that shows its metrics. What its clients see is not known here."""
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
        transactions=int(told["txn_coordinator_completed_total"]),
    )


def _disk_bytes(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_blocks * 512 if path.is_file() else 0
        except FileNotFoundError:
            # It was removed since it was listed.
            continue
    return total

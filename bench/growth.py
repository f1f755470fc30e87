"""Whether the memory of a server grows: one server under a mixed load for minutes, its memory every few seconds.

    python -m bench.growth --minutes 15 --svg docs/memory.svg

Memory rises while buffers and caches fill, and must then stay level however much is written. What fills is named beside
it: RocksDB's write buffers, which are emptied in turn, and what the store has on disk.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression, mean
from typing import Final

from bench.load.mixed import Load
from bench.results import LoadFailed
from bench.server import OwnServer, last_words

_MINUTES: Final = 10.0
_SAMPLE_S: Final = 5.0
_MIB: Final = 1024 * 1024
_METRICS: Final = re.compile(r"^(?P<name>\w+)(?:\{[^}]*\})? (?P<value>\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Sample:
    """What was measured at one moment."""

    elapsed_s: float
    resident_mib: float
    """Anonymous memory: what the process took, without the program files it has mapped."""
    buffers_mib: float
    """RocksDB's write buffers, a part of the resident memory."""
    stored_mib: float
    """MiB on disk: sorted files, segments and write-ahead log."""
    transactions: int


def main(arguments: Sequence[str] = ()) -> None:
    """Measure and print; with `--svg` draw the curve too."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=_MINUTES, help="how long (default: %(default)g)")
    parser.add_argument("--svg", type=Path, help="where to draw the curve")
    asked = parser.parse_args(arguments)
    samples = watch(asked.minutes * 60)
    print(table(samples))
    print(verdict(samples))
    if asked.svg is not None:
        asked.svg.write_text(curve(samples))


def watch(seconds: float) -> list[Sample]:
    """Run a server and its load, and look at its memory. Raises: LoadFailed."""
    with tempfile.TemporaryDirectory(prefix="bench-growth-") as directory:
        server = OwnServer(Path(directory), arguments=["--set", "metrics_listen=127.0.0.1:0"])
        server.start()
        try:
            metrics = metrics_address(server.log)
            load = Load(endpoint=server.endpoint, server_process_id=server.process_id, measured_s=seconds)
            fields = {name: getattr(load, name) for name in ("endpoint", "server_process_id", "measured_s")}
            command = [sys.executable, "-m", "bench.load", "mixed", json.dumps(fields)]
            began, samples = time.monotonic(), []
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as loading:
                while loading.poll() is None:
                    samples.append(_sample(server.process_id, metrics, time.monotonic() - began))
                    time.sleep(_SAMPLE_S)
                _, said = loading.communicate()
            if loading.returncode:
                raise LoadFailed(f"the load ended early: {' / '.join(said.strip().splitlines()[-3:])}")
            return samples
        finally:
            server.stop()


def metrics_address(log: Path) -> str:
    """Where a server that is started shows its metrics, as its log says; of several lives, the last. Raises:
    LoadFailed."""
    for line in reversed(log.read_text().splitlines()):
        said = json.loads(line)
        if said["event"] == "serving_metrics":
            return f"http://{said['listen']}{said['path']}"
    raise LoadFailed(f"the server does not say where its metrics are: {last_words(log)}")


def _sample(process_id: int, metrics: str, elapsed_s: float) -> Sample:
    status = Path(f"/proc/{process_id}/status").read_text()
    resident_kib = int(re.search(r"RssAnon:\s+(\d+)", status)[1])  # type: ignore[index]  # Linux has the line
    values = scraped(metrics)
    stored = ("txn_store_size_bytes", "txn_store_segment_bytes", "txn_store_wal_bytes")
    return Sample(
        elapsed_s,
        resident_kib / 1024,
        values["txn_store_memtable_bytes"] / _MIB,
        sum(values[name] for name in stored) / _MIB,
        int(values["txn_coordinator_completed_total"]),
    )


def scraped(metrics: str) -> dict[str, float]:
    """What a server shows as its metrics, those of one name added up."""
    with urllib.request.urlopen(metrics) as answer:
        text = answer.read().decode()
    values: dict[str, float] = {}
    for found in _METRICS.finditer(text):
        values[found["name"]] = values.get(found["name"], 0.0) + float(found["value"])
    return values


def table(samples: Sequence[Sample]) -> str:
    """A row for each tenth of the time, as Markdown."""
    step = max(1, len(samples) // 10)
    rows = [
        f"| {each.elapsed_s / 60:.1f} | {each.resident_mib:.0f} | {each.buffers_mib:.0f} | {each.stored_mib:,.0f} "
        f"| {each.transactions:,} |"
        for each in samples[::step]
    ]
    head = "| minute | memory MiB | of it write buffers MiB | on disk MiB | transactions |"
    return "\n".join([head, "| --- | --- | --- | --- | --- |", *rows])


def verdict(samples: Sequence[Sample]) -> str:
    """Return how memory developed in the second half, when buffers and caches were full: mean and slope."""
    late = samples[len(samples) // 2 :]
    slope, _ = linear_regression([each.elapsed_s / 60 for each in late], [each.resident_mib for each in late])
    without, _ = linear_regression(
        [each.elapsed_s / 60 for each in late], [each.resident_mib - each.buffers_mib for each in late]
    )
    written = late[-1].stored_mib - late[0].stored_mib
    return (
        f"second half: {mean(each.resident_mib for each in late):.0f} MiB on average, {slope:+.2f} MiB a minute, "
        f"{without:+.2f} without the write buffers, while {written:,.0f} MiB more came to lie on the disk"
    )


_WIDTH, _HEIGHT, _MARGIN = 720, 320, 48


def curve(samples: Sequence[Sample]) -> str:
    """Memory over time, and the write buffers in it, as SVG."""
    minutes = max(each.elapsed_s for each in samples) / 60
    top = max(each.resident_mib for each in samples) * 1.1

    def line(values: Sequence[float], color: str) -> str:
        points = " ".join(
            f"{_MARGIN + each.elapsed_s / 60 / minutes * _WIDTH:.1f},{_MARGIN + _HEIGHT - value / top * _HEIGHT:.1f}"
            for each, value in zip(samples, values, strict=True)
        )
        return f'<polyline fill="none" stroke="{color}" stroke-width="2" points="{points}"/>'

    def label(x: float, y: float, text: str, anchor: str = "middle") -> str:
        return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{text}</text>'

    bottom, right = _MARGIN + _HEIGHT, _MARGIN + _WIDTH
    marks = [label(_MARGIN - 6, bottom - part * _HEIGHT + 4, f"{part * top:.0f}", "end") for part in (0, 0.5, 1)]
    marks += [label(_MARGIN + part * _WIDTH, bottom + 18, f"{part * minutes:.0f} min") for part in (0, 0.5, 1)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{right + _MARGIN}" height="{bottom + _MARGIN}"',
            'font-family="sans-serif" font-size="12">',
            '<rect width="100%" height="100%" fill="white"/>',
            f'<path d="M{_MARGIN},{_MARGIN} V{bottom} H{right}" fill="none" stroke="black"/>',
            *marks,
            line([each.resident_mib for each in samples], "#1f77b4"),
            line([each.buffers_mib for each in samples], "#ff7f0e"),
            label(
                right, _MARGIN - 10, "memory of the server, MiB (blue); of it RocksDB's write buffers (orange)", "end"
            ),
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    main(sys.argv[1:])

"""Measures the memory of a server under a mixed load as fast as it goes, without deletions.

    python -m bench.growth --minutes 15 --svg docs/memory.svg

Memory rises while buffers and caches fill, and must then stay level however much is written. The soak (`bench.soak`)
tests the same with a steady load, for longer and among kills, while old records are removed. It samples and judges in
the same way.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.load.mixed import Load
from bench.results import LoadFailed
from bench.soak.charts import charts
from bench.soak.growth import MEASURES, Sample, judge
from bench.soak.sampling import WatchedServer, sampled

_MINUTES: Final = 10.0
_SAMPLE_S: Final = 5.0
_MEMORY: Final = MEASURES[:3]


def main(arguments: Sequence[str] = ()) -> None:
    """Measure and print; with `--svg` draw the curves, too."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=_MINUTES, help="how long (default: %(default)g)")
    parser.add_argument("--svg", type=Path, help="where to draw the curves")
    asked = parser.parse_args(arguments)
    samples = watch(asked.minutes * 60)
    print(table(samples))
    print(verdict(samples))
    if asked.svg is not None:
        asked.svg.write_text(charts(samples, _MEMORY))


def watch(seconds: float) -> list[Sample]:
    """Run a server and its load, and sample the server. Raises: LoadFailed."""
    with tempfile.TemporaryDirectory(prefix="bench-growth-") as directory:
        server = WatchedServer(Path(directory))
        server.start()
        try:
            load = Load(endpoint=server.endpoint, server_process_id=server.process_id, measured_s=seconds)
            fields = {name: getattr(load, name) for name in ("endpoint", "server_process_id", "measured_s")}
            command = [sys.executable, "-m", "bench.load", "mixed", json.dumps(fields)]
            began, samples = time.monotonic(), []
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as loading:
                while loading.poll() is None:
                    samples.append(sampled(server, time.monotonic() - began))
                    time.sleep(_SAMPLE_S)
                _, said = loading.communicate()
            if loading.returncode:
                raise LoadFailed(f"the load ended early: {' / '.join(said.strip().splitlines()[-3:])}")
            return samples
        finally:
            server.stop()


def table(samples: Sequence[Sample]) -> str:
    """Return a Markdown table with a row for each tenth of the time."""
    step = max(1, len(samples) // 10)
    rows = [
        f"| {each.elapsed_s / 60:.1f} | {each.memory_mib:.0f} | {each.buffers_mib:.0f} | {each.cache_mib:.0f} "
        f"| {each.disk_mib:,.0f} | {each.transactions:,} |"
        for each in samples[::step]
    ]
    head = "| minute | memory MiB | of it write buffers MiB | and block cache MiB | on disk MiB | transactions |"
    return "\n".join([head, "| --- | --- | --- | --- | --- | --- |", *rows])


def verdict(samples: Sequence[Sample]) -> str:
    """Return a verdict on the memory in the second half, when buffers and caches were full."""
    said = [
        f"{each.measure.name}: {each.early:.0f}, later {each.late:.0f}, {each.trend.per_hour:+.0f} ± "
        f"{each.trend.margin:.0f} an hour, {each.words}"
        for each in judge(samples)
        if each.measure in _MEMORY
    ]
    return "\n".join(said or ["too short to say how memory develops"])


if __name__ == "__main__":
    main(sys.argv[1:])

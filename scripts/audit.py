"""Looks up the locked packages in the database of known vulnerabilities: `make audit`.

Runs in its own environment, made from `requirements/ops.txt`. The database is not part of the project. Without a
network nothing can be looked up, which is reported and counts as a failure.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
LOCKS: Final = ("server.txt", "spark.txt", "dev.txt")


class Audited(NamedTuple):
    """Result of the audit of one lock."""

    looked_up: int
    unknown: int
    """Number of packages that could not be looked up."""
    weaknesses: tuple[str, ...]
    """Package, version, name of the vulnerability, and the versions that fix it."""


def audited(report: Mapping[str, Any]) -> Audited:
    """Read the report of pip-audit, which counts packages that it could not look up as fine."""
    packages = report["dependencies"]
    unknown = sum("skip_reason" in package for package in packages)
    weaknesses = tuple(
        f"{package['name']} {package['version']}: {found['id']}, mended in {', '.join(found['fix_versions']) or 'none'}"
        for package in packages
        for found in package.get("vulns", ())
    )
    return Audited(len(packages) - unknown, unknown, weaknesses)


def main() -> int:
    """Audit all locks. Returns the exit status: 1 if a vulnerability is known, 2 if a package could not be looked
    up."""
    status = 0
    for lock in LOCKS:
        command = [str(Path(sys.executable).parent / "pip-audit"), "--disable-pip", "--require-hashes"]
        command += ["--requirement", str(ROOT / "requirements" / lock)]
        ran = subprocess.run([*command, "--format", "json"], capture_output=True, text=True, check=False)
        if not ran.stdout.startswith("{"):
            print(f"{lock}: nothing could be looked up: {ran.stderr.strip()[-500:]}", file=sys.stderr)
            status = max(status, 2)
            continue
        found = audited(json.loads(ran.stdout))
        print(f"{lock}: {found.looked_up} packages looked up, {found.unknown} not, {len(found.weaknesses)} weaknesses")
        for weakness in found.weaknesses:
            print(f"  {weakness}")
        if found.unknown:
            print(f"{lock}: not every package could be looked up: is there a network?", file=sys.stderr)
            status = max(status, 2)
        status = 1 if found.weaknesses else status
    return status


if __name__ == "__main__":
    sys.exit(main())

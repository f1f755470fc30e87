"""Writes components/monitoring/prometheusrule.yaml for the Prometheus Operator, from the rules of ops/prometheus.

`make ops-files` runs this script; `make ops` runs it with --check, which only checks that the file is up to date."""

from __future__ import annotations

import argparse
import sys
import textwrap
from pathlib import Path
from typing import Final

OPS: Final = Path(__file__).resolve().parent.parent
TARGET: Final = OPS / "kubernetes/components/monitoring/prometheusrule.yaml"
RULES: Final = ("recording.rules.yml", "alert.rules.yml")

HEAD: Final = """\
# Written by `make ops-files` from ops/prometheus. Change the rules there, not this file.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: txn-coordinator
  labels:
    app.kubernetes.io/name: txn-coordinator
spec:
  groups:
"""


def built() -> str:
    """Return the content of prometheusrule.yaml."""
    return HEAD + "".join(textwrap.indent(groups(OPS / "prometheus" / name), "  ") for name in RULES)


def groups(rules: Path) -> str:
    """Return the text below `groups:` in the rules of Prometheus; the list is the same in both formats."""
    _, found, below = rules.read_text().partition("\ngroups:\n")
    if not found:
        raise ValueError(f"{rules} has no groups")
    return below


def main() -> int:
    """Write the file, or with `--check` check that it is up to date (exit status 1 if not)."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if anything would change")
    if not parser.parse_args().check:
        TARGET.write_text(built())
    elif TARGET.read_text() != built():
        print(f"{TARGET.name}: not fresh; run `make ops-files` and commit the result", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

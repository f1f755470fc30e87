"""Check histories of clients: `python -m tests.histories FILE...`; the exit code is 1 if any is broken."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.histories.checker import RULES, check
from tests.histories.form import read


def main(names: Sequence[str]) -> int:
    if not names:
        print("python -m tests.histories FILE...", file=sys.stderr)
        return 2
    broken = False
    for name in names:
        report = check(read(Path(name)))
        for each in report.violations:
            print(f"{name}:{each.line}: I{each.invariant} {RULES[each.invariant][0]}: {each.text}")
        counts = ", ".join(f"I{number} {count}" for number, count in report.counts.items()) or "none"
        silent = ", ".join(f"I{number}" for number in sorted(report.without_material)) or "none"
        print(f"{name}: {report.operations} operations; violations: {counts}; without material: {silent}")
        broken |= bool(report.violations)
    return int(broken)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Runs cases by their names, under a head that says where and with what they ran."""

from __future__ import annotations

import importlib
import pkgutil
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from bench.machine import describe_machine


def cases() -> dict[str, Callable[[], None]]:
    """Every module beside this one that has a `main`, by name."""
    names = [module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]) if module.name[0] != "_"]
    modules = {name: importlib.import_module(f"bench.{name}") for name in names}
    return {name: module.main for name, module in modules.items() if hasattr(module, "main")}


def main() -> None:
    known = cases()
    wanted = sys.argv[1:] or sorted(known)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        sys.exit(f"there is no case {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    for line in describe_machine():
        print(line)
    print(f"command: python -m bench {shlex.join(sys.argv[1:])}".rstrip())
    for name in wanted:
        print(f"\n## {name}\n", flush=True)
        known[name]()


if __name__ == "__main__":
    main()

"""Refuses import cycles: `python -m scripts.cycles`, part of `make check`.

Modules that import each other in a cycle can only be understood together, and one of them may be imported half
initialised. Cycles among modules are refused, and cycles among the folders of a package. So are cycles among packages,
even if it takes several modules to close one. A folder and the modules beside it may need each other, because those
modules hold values that folders share. Imports for type checkers (`if TYPE_CHECKING`) count, because a reader follows
them, too. So do imports inside a function.

The checked packages are those of the import law (`root_packages` in pyproject.toml), the benchmarks and the scripts.
The modules of the compiled transport are checked, too, as read by `scripts.rust_cycles`.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import grimp

from scripts.rust_cycles import imports_of_crate

ROOT: Final = Path(__file__).resolve().parent.parent
_OTHERS: Final = ("bench", "scripts")


def main() -> int:
    """Print every cycle. Returns 1 if there is one."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = [*settings["tool"]["importlinter"]["root_packages"], *_OTHERS]
    found = circles_of(packages)
    found += circles_in(imports_of_crate(ROOT / "native_transport" / "src"))
    for circle in found:
        print(f"import cycle: {' -> '.join(circle)}", file=sys.stderr)
    if found:
        print(
            "Move what both ends need into a module of its own, or hand it in as an argument.",
            file=sys.stderr,
        )
    return int(bool(found))


def circles_of(packages: Sequence[str]) -> list[Sequence[str]]:
    """Return the cycles among the modules of these packages, then those among folders, then those among the
    packages."""
    graph = grimp.build_graph(packages[0], *packages[1:], cache_dir=None)
    found = circles_in(graph)
    rooms = rooms_in(graph, packages)
    for room in rooms:
        graph.squash_module(room)
    found += (circle for knot, circle in knots_in(graph) if len(knot & rooms) > 1)
    for package in packages:
        graph.squash_module(package)
    return found + circles_in(graph)


def rooms_in(graph: grimp.ImportGraph, packages: Sequence[str]) -> set[str]:
    """Return the folders of modules directly below these packages."""
    below = [module for package in packages for module in graph.find_children(package)]
    return {module for module in below if graph.find_children(module)}


def circles_in(graph: grimp.ImportGraph) -> list[Sequence[str]]:
    """Return one cycle for each strongly connected component."""
    return [circle for _knot, circle in knots_in(graph)]


def knots_in(graph: grimp.ImportGraph) -> Iterator[tuple[set[str], Sequence[str]]]:
    """Yield the strongly connected components, each with a shortest cycle, whose first module is repeated at its
    end."""
    knotted: set[str] = set()
    for module in sorted(graph.modules):
        knot = graph.find_upstream_modules(module) & graph.find_downstream_modules(module)
        if knot and module not in knotted:
            ways = (
                graph.find_shortest_chain(importer=imported, imported=module)
                for imported in sorted(graph.find_modules_directly_imported_by(module))
            )
            yield knot | {module}, (module, *min((way for way in ways if way is not None), key=len))
        knotted |= knot


if __name__ == "__main__":
    sys.exit(main())

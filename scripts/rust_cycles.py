"""Reads the dependencies among the modules of the Rust crate, without cargo; `scripts.cycles` looks for cycles among
them.

A module uses another one if its code has a path to it or into it. Examples are `crate::calls::Calls`, `super::calls`,
several of them in braces, or `calls::REPLY` after the declaration `mod calls;`. The declaration alone does not count. A
path to an item of lib.rs leads to the top of the crate: lib.rs is a module like any other.

Test modules do not count: they are not in the product, and may use anything. They are recognised by `#[cfg(test)]` and
the layout of rustfmt. Other modules within a file count as the file's own code.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

import grimp

_TOP: Final = "crate"
_COMMENT_OR_TEXT: Final = re.compile(
    r"""//[^\n]*|/\*.*?\*/|\b[bc]?r(?P<hashes>#*)".*?"(?P=hashes)|"(?:\\.|[^"\\])*"|'(?:\\.[^'\n]*|[^'\\])'""",
    re.DOTALL,
)
_TESTS: Final = re.compile(r"^#\[cfg\(test\)\]\n(?:pub )?mod \w+ \{.*?^\}", re.DOTALL | re.MULTILINE)
_GROUP: Final = re.compile(r"(?P<start>(?:\w+::)+)\{(?P<ends>[^{}]*)\}")
_PATH: Final = re.compile(r"(?<![\w:])(?:\w+::)+\w*")

Module = tuple[str, ...]
"""Names on the path to a module, from the top of the crate."""


def imports_of_crate(sources: Path) -> grimp.ImportGraph:
    """Return the graph of module dependencies, with their paths in Rust (`crate::calls`), from the folder with
    lib.rs."""
    files = {_module_of(path.relative_to(sources)): path for path in sources.rglob("*.rs")}
    graph = grimp.ImportGraph()
    for module in files:
        graph.add_module("::".join(module))
    for module, path in files.items():
        for used in _used_by(module, path.read_text(), files.keys()):
            graph.add_import(importer="::".join(module), imported="::".join(used))
    return graph


def _module_of(path: Path) -> Module:
    names = path.with_suffix("").parts
    return (_TOP, *(names[:-1] if names[-1] in {"lib", "mod"} else names))


def _used_by(module: Module, source: str, modules: Collection[Module]) -> set[Module]:
    """Return the other modules that a source has paths to."""
    code = _TESTS.sub("", _COMMENT_OR_TEXT.sub("", source))
    return {_end_of(path, module, modules) for path in _paths_in(code)} - {module}


def _paths_in(code: str) -> Iterator[list[str]]:
    """Yield every path, with groups written out: `a::{b, c::{d, e}}` is `a::b`, `a::c::d` and `a::c::e`."""
    while group := _GROUP.search(code):
        ends = (group["start"] + end.strip() for end in group["ends"].split(",") if end.strip())
        code = f"{code[: group.start()]}{', '.join(ends)}{code[group.end() :]}"
    for path in _PATH.finditer(code):
        yield path[0].split("::")


def _end_of(path: list[str], module: Module, modules: Collection[Module]) -> Module:
    """Return the module that a path in this module ends at, or that has the item it ends at. Paths into other crates
    end where they begin."""
    at = module
    for name in path:
        if name == _TOP:
            at = (_TOP,)
        elif name == "super":
            at = at[:-1] or at
        elif name != "self":
            if (*at, name) not in modules:
                break
            at = (*at, name)
    return at

"""Count how the prose of the code reads: `python -m scripts.words`, whose totals `tests/tidy/test_words.py` bounds.

Prose is docstrings (of modules, classes and functions, and the strings below fields and constants), comments (a run of
comment lines is one comment), and the same in Rust and .proto files. Generated code, tests and other string literals
do not count: texts that users see keep their words.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

ROOT: Final = Path(__file__).resolve().parent.parent
PRODUCT: Final = (
    *("coordinator_client", "coordinator_core", "coordinator_protocol", "coordinator_runtime", "coordinator_server"),
    *("txnctl", "group_coordinator", "partition_log", "pyspark_txnlog", "txn_coordinator", "native_transport", "proto"),
)
TOOLS: Final = ("bench", "scripts", "ops", "examples")

CLAUSES: Final = frozenset({"What", "How", "Where", "Why", "Who", "Whoever", "Whose", "Whom", "Which", "That"})
"""Openings of a clause in place of a noun."""
DEMONSTRATIVE: Final = re.compile(
    r"That (is|was|of|one|way|much|many|takes|makes|has|goes|comes|would|may|can|could|must|will|does|costs|gives|says|"
    r"means|leaves|holds|keeps|needs|[a-z]+s) "
)
"""`That is ...` and `That takes ...`: a demonstrative, and no clause."""
DIALECT: Final = re.compile(
    r"\b(whoever|whomever|nobody|somebody|all the same|in vain|for good|told|stands? still|stood still)\b",
    re.IGNORECASE,
)
_LINKS: Final = re.compile(
    r"\b(who|whom|whose|which|what|that|where|whether|whoever|however|as far as|so that)\b", re.IGNORECASE
)
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])[\"')`]*\s+(?=[\"'(`]*[A-Z0-9`-])")
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z'_.-]*|\d[\d,._]*")
_ABBREVIATION: Final = re.compile(r"\b(e\.g|i\.e|etc|vs|cf)\.")
_PRAGMA: Final = re.compile(r"^(noqa|type:|pragma:|fmt:)\S*( ignore\[[^\]]*\])?( [A-Z]+\d+,?)*\s*#?\s*")

Kind = Literal["docstring", "comment"]


@dataclass(frozen=True)
class Prose:
    """One docstring or comment."""

    path: str
    line: int
    kind: Kind
    text: str

    @property
    def first_word(self) -> str:
        """Word that it opens with; "" where that is no word."""
        first = re.match(r"[\"'`(]*([A-Za-z]+)\b", self.text)
        return first[1] if first else ""

    @property
    def opens_with_clause(self) -> bool:
        word = self.first_word
        return word in CLAUSES and not (word == "That" and DEMONSTRATIVE.match(self.text + " "))

    @property
    def dialect_lines(self) -> int:
        """Number of lines with a word of the dialect."""
        return sum(DIALECT.search(line) is not None for line in self.text.splitlines())

    def sentences(self) -> Sequence[int]:
        """Words of each sentence. Indented blocks, code and tables do not count."""
        text = re.sub(r"```.*?(```|\Z)", ". ", self.text, flags=re.DOTALL)
        plain = [line for line in text.splitlines() if not re.match(r"\s{4,}\S", line) and "|" not in line]
        found = []
        for paragraph in re.split(r"\n\s*\n|\n\s*[-*]\s+", "\n".join(plain)):
            joined = _ABBREVIATION.sub(lambda short: short[0].replace(".", ""), " ".join(paragraph.split()))
            found += [len(_WORD.findall(each)) for each in _SENTENCE_END.split(joined) if _WORD.search(each)]
        return found

    @property
    def score(self) -> float:
        """Resistance to a reader: openings, dialect, the longest sentence, and links by word."""
        words = max(1, len(_WORD.findall(self.text)))
        return (
            2.0 * self.opens_with_clause
            + 2.0 * len(DIALECT.findall(self.text))
            + max(0, max(self.sentences(), default=0) - 20) / 5
            + 25 * len(_LINKS.findall(self.text)) / words * min(1, words / 25)
        )


def count(prose: Sequence[Prose]) -> Mapping[str, int]:
    """Return the totals over some prose.

    `clauses`: openings by a clause in place of a noun; `whether` and `when`: the nearest ways out of one; `over_25`:
    sentences of docstrings with more than 25 words."""
    docstrings = [each for each in prose if each.kind == "docstring"]
    comments = [each for each in prose if each.kind == "comment"]
    lengths = [length for each in docstrings for length in each.sentences()]
    return {
        "docstrings": len(docstrings),
        "comments": len(comments),
        "clauses_in_docstrings": sum(each.opens_with_clause for each in docstrings),
        "clauses_in_comments": sum(each.opens_with_clause for each in comments),
        "whether": sum(each.first_word == "Whether" for each in prose),
        "when": sum(each.first_word == "When" for each in prose),
        "dialect_lines": sum(each.dialect_lines for each in prose),
        "over_25": sum(length > 25 for length in lengths),
        "over_35": sum(length > 35 for length in lengths),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table by package, and what resists a reader most."""
    parser = argparse.ArgumentParser(prog="python -m scripts.words", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tools", action="store_true", help=f"count {', '.join(TOOLS)}, too")
    parser.add_argument("--worst", type=int, default=30, metavar="N", help="docstrings to list (default: %(default)s)")
    asked = parser.parse_args(arguments)
    found = prose_by_package(PRODUCT + (TOOLS if asked.tools else ()))
    everything = [each for prose in found.values() for each in prose]
    names = count([])
    print("| package | " + " | ".join(name.replace("_", " ") for name in names) + " |")
    print("|" + " --- |" * (1 + len(names)))
    for package, prose in (*found.items(), ("all", everything)):
        print(f"| {package} | " + " | ".join(map(str, count(prose).values())) + " |")
    print()
    for each in sorted(everything, key=lambda each: -each.score)[: asked.worst]:
        longest, text = max(each.sentences(), default=0), " ".join(each.text.split())
        print(f"{each.score:5.1f} {each.path}:{each.line} [{longest} words] {text:.170}")


def prose_by_package(packages: Iterable[str] = PRODUCT, root: Path = ROOT) -> Mapping[str, Sequence[Prose]]:
    """Return all prose of the packages of a tree."""
    return {
        package: [each for path in _sources(root / package) for each in prose_in(path, root)] for package in packages
    }


def prose_in(path: Path, root: Path = ROOT) -> Iterator[Prose]:
    """Yield the prose of one file."""
    shown, source = path.relative_to(root).as_posix(), path.read_text()
    if path.suffix in (".py", ".pyi"):
        yield from _docstrings(shown, source)
        yield from _comments(shown, source)
    else:
        yield from _in_slashes(shown, source, all_are_docstrings=path.suffix == ".proto")


def _sources(package: Path) -> Iterator[Path]:
    for path in sorted(package.rglob("*")):
        folders = path.relative_to(package).parts
        left_out = {"tests", "target", "__pycache__", "messages"} & set(folders) or "_pb2" in path.name
        if path.suffix in (".py", ".pyi", ".rs", ".proto") and not left_out:
            yield path


def _docstrings(shown: str, source: str) -> Iterator[Prose]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            first, _, rest = node.value.value.partition("\n")
            lines = rest.splitlines()
            margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
            yield Prose(shown, node.lineno, "docstring", "\n".join([first, *(line[margin:] for line in lines)]))


def _comments(shown: str, source: str) -> Iterator[Prose]:
    run: list[str] = []
    start = last = column = -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        text = _PRAGMA.sub("", re.sub(r"^#!?\s?", "", token.string))
        line, at = token.start
        is_alone = token.line[:at].strip() == ""
        if run and is_alone and (line, at) == (last + 1, column):
            run.append(text)
        else:
            yield from _comment(shown, start, run)
            run, start, column = [text], line, at if is_alone else -1
        last = line
    yield from _comment(shown, start, run)


def _in_slashes(shown: str, source: str, *, all_are_docstrings: bool) -> Iterator[Prose]:
    run: list[str] = []
    start, kind_of_run = 0, ""
    for number, line in enumerate(source.splitlines(), 1):
        mark = re.match(r"\s*(///|//!|//)\s?(.*)", line) or re.match(r".*;\s*(//)\s(.*)", line)
        is_docstring = mark is not None and (mark[1] != "//" or all_are_docstrings)
        kind = "" if mark is None else "docstring" if is_docstring else "comment"
        if mark and run and kind == kind_of_run:
            run.append(mark[2])
            continue
        yield from _comment(shown, start, run, "docstring" if kind_of_run == "docstring" else "comment")
        run, start, kind_of_run = [mark[2]] if mark else [], number, kind
    yield from _comment(shown, start, run, "docstring" if kind_of_run == "docstring" else "comment")


def _comment(shown: str, line: int, run: Sequence[str], kind: Kind = "comment") -> Iterator[Prose]:
    text = "\n".join(run).strip()
    if text:
        yield Prose(shown, line, kind, text)


if __name__ == "__main__":
    main(sys.argv[1:])

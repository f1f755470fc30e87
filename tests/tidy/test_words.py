"""Words: the glossary has each of them once, and a docstring begins with the thing that it describes."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from scripts.words import PRODUCT, Prose, count, prose_by_package, prose_in
from tests.tidy.tree import ROOT, found_by, judges_modules, nodes_of, shown

DANGLING = ("Of", "As", "So", "Or", "And", "Also", "Too", "Besides", "For whoever")
"""Beginnings of half a sentence whose subject is somewhere else."""
AT_MOST: Final = {
    "clauses_in_docstrings": 0,
    "clauses_in_comments": 0,
    "whether": 0,
    "when": 0,
    "dialect_lines": 1,
    "over_25": 37,
    "over_35": 2,
}
"""Upper limits of the counts of `python -m scripts.words`, over all packages. A number only ever goes down."""
CLAUSES_TOO: Final = frozenset({"Whether", "When", "Whatever", "Told", "Nobody", "Somebody"})
"""Openings that docstrings of tests may not have, beside those that `scripts.words` counts as clauses."""
TESTS_WITH_CLAUSES: Final = (
    *("tests/kafka_clients/", "tests/kafka_front/", "tests/lease/", "tests/simulation/", "tests/slate/"),
    *("tests/groups/share_partitions/", "tests/client/test_interrupted_share_consumer.py"),
    "tests/server/test_observation.py",
)
"""Folders and modules of tests in which docstrings may begin with a clause still."""
CLAUSES_IN_TESTS_MAX: Final = 114
"""Upper limit of the number of those docstrings. It only ever goes down."""
GLOSSARY_ROWS_MAX: Final = 40
ROW = re.compile(r"^\| ([a-z][^|]*?) \|", re.MULTILINE)


def test_the_glossary_has_each_word_once() -> None:
    glossary = (ROOT / "ARCHITECTURE.md").read_text().partition("\n## Glossary\n")[2].partition("\n## ")[0]
    words = Counter(word for row in ROW.findall(glossary) for word in row.split(", ") if row != "word")
    assert 20 < len(ROW.findall(glossary)) <= GLOSSARY_ROWS_MAX
    assert [word for word, count in words.items() if count > 1] == []


def test_no_docstring_begins_in_the_middle_of_a_sentence() -> None:
    """Those of constants and fields, too, which the interpreter throws away."""
    found = [f"{shown(path)}:{line}: {text}" for path, lines in found_by(dangling).items() for line, text in lines]
    assert found == [], "say first what the thing is: its subject"


@pytest.mark.parametrize("text", ["Of the transaction.", "As long as two rounds.", "For whoever has no loop."])
def test_half_sentences_are_found(text: str) -> None:
    source = f'"""A module."""\nclass One:\n    """One."""\n    size: int\n    """{text}"""\n'
    assert dangling(ast.parse(source)) == [(5, text)]


def test_whole_sentences_and_words_that_only_begin_alike_pass() -> None:
    source = '"""Offsets of a group."""\nSIZE = 1\n"""Sort order."""\nNAME = "Of no importance"\n'
    assert dangling(ast.parse(source)) == []


@judges_modules
def dangling(module: ast.Module) -> list[tuple[int, str]]:
    """Return line and text of every string statement that begins with half a sentence."""
    return [(line, text) for line, text in strings(module) if text.startswith(tuple(f"{word} " for word in DANGLING))]


def strings(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of every string statement: docstrings, and the strings below fields and constants."""
    for node in nodes_of(module):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


@judges_modules
def clauses(module: ast.Module) -> list[tuple[int, str]]:
    """Return line and text of every string statement that begins with a clause in place of a noun."""
    return [(line, text) for line, text in strings(module) if begins_with_clause(a_docstring(text))]


def begins_with_clause(docstring: Prose) -> bool:
    return docstring.opens_with_clause or docstring.first_word in CLAUSES_TOO


def test_no_docstring_of_tests_begins_with_a_clause() -> None:
    found = clauses_in_tests()
    cleaned = [each for each in found if not each.startswith(TESTS_WITH_CLAUSES)]
    assert cleaned == [], "say what it is by a noun, or what it does by an imperative"
    assert len(found) <= CLAUSES_IN_TESTS_MAX


def clauses_in_tests() -> list[str]:
    """Return place and text of each docstring in tests/ that begins with a clause."""
    return [
        f"{shown(path)}:{line}: {text}"
        for path, lines in found_by(clauses).items()
        for line, text in lines
        if path.is_relative_to(ROOT / "tests")
    ]


def test_the_prose_reads_no_worse_than_it_did() -> None:
    prose = [each for found in prose_by_package().values() for each in found]
    counted = count(prose)
    worse = {name: counted[name] for name, most in AT_MOST.items() if counted[name] > most}
    assert worse == {}, "python -m scripts.words --worst 50 lists what to rewrite"
    assert counted["docstrings"] > 7_000
    assert {each.path.partition("/")[0] for each in prose} == set(PRODUCT)


def a_docstring(text: str) -> Prose:
    return Prose("a.py", 1, "docstring", text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What a shard answers.", True),
        ("`How` it ends.", True),
        ("That the epoch is over.", True),
        ("That is the first offset.", False),
        ("Shards by name.", False),
        ("Whatever is left.", False),
    ],
)
def test_a_clause_in_place_of_a_noun_is_found(text: str, *, expected: bool) -> None:
    assert a_docstring(text).opens_with_clause is expected


@pytest.mark.parametrize("text", ["What is left.", "Whether it is so.", "Told if it fails.", "Nobody has joined."])
def test_a_clause_is_found_in_every_docstring(text: str) -> None:
    source = f'"""A module."""\nclass One:\n    """One."""\n    size: int\n    """{text}"""\n'
    assert clauses(ast.parse(source)) == [(5, text)]


def test_sentences_are_counted_by_their_words() -> None:
    prose = a_docstring(
        "Two words. See e.g. three more.\n\n    indented code here\n\n- one point\n- another\n| a | b |"
    )
    assert list(prose.sentences()) == [2, 4, 2, 1]
    assert a_docstring("Told to whoever asks.\nNobody does.\nA caller.").dialect_lines == 2


def test_a_tree_below_a_folder_of_tests_is_counted(tmp_path: Path) -> None:
    root = tmp_path / "tests"
    (root / "proto" / "tests").mkdir(parents=True)
    (root / "proto" / "a.py").write_text('"""One."""\n')
    (root / "proto" / "tests" / "b.py").write_text('"""Two."""\n')
    assert [each.text for each in prose_by_package(["proto"], root)["proto"]] == ["One."]


def test_prose_is_found_in_every_language(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text('"""One."""\nSIZE = 1  # Two\n"""Three."""\n# Four,\n# five.\nX = 2  # noqa: E501\n')
    (tmp_path / "a.rs").write_text("//! One.\n\n/// Two,\n/// three.\nfn main() {}  // not alone\n// Four.\n")
    (tmp_path / "a.proto").write_text("// One.\nmessage A {\n  int32 a = 1; // Two.\n}\n")
    found = {
        name: [(each.kind, each.text) for each in prose_in(tmp_path / name, tmp_path)]
        for name in ("a.py", "a.rs", "a.proto")
    }
    assert found == {
        "a.py": [("docstring", "One."), ("docstring", "Three."), ("comment", "Two"), ("comment", "Four,\nfive.")],
        "a.rs": [("docstring", "One."), ("docstring", "Two,\nthree."), ("comment", "Four.")],
        "a.proto": [("docstring", "One."), ("docstring", "Two.")],
    }

"""Words: the glossary has each of them once, and what documents a name says what that is."""

from __future__ import annotations

import ast
import re
from collections import Counter

import pytest

from tests.tidy.tree import ROOT, found_by, judges_modules, shown

DANGLING = ("Of", "As", "So", "Or", "And", "Also", "Too", "Besides", "For whoever")
"""Beginnings of half a sentence whose subject is somewhere else."""
ROW = re.compile(r"^\| ([a-z][^|]*?) \|", re.MULTILINE)


def test_the_glossary_has_each_word_once() -> None:
    glossary = (ROOT / "ARCHITECTURE.md").read_text().partition("\n## Glossary\n")[2].partition("\n## ")[0]
    words = Counter(word for row in ROW.findall(glossary) for word in row.split(", ") if row != "word")
    assert len(words) > 50
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
    strings = (
        (node.lineno, node.value.value)
        for node in ast.walk(module)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )
    return [(line, text) for line, text in strings if text.startswith(tuple(f"{word} " for word in DANGLING))]

"""The definition of dead code."""

from __future__ import annotations

from pathlib import Path

from scripts.dead_code import dead_code


def found_in(folder: Path, source: str) -> list[str]:
    """Return the dead names of a module, without their places."""
    (folder / "module.py").write_text(source)
    reports = dead_code([str(folder)], ignore_names=["wanted"], ignore_decorators=["@command"], confidence_min=60)
    return [report.split(": ", 1)[1].rsplit(" (", 1)[0] for report in reports]


def test_what_nothing_uses_is_dead(tmp_path: Path) -> None:
    source = (
        "class C:\n    def f(self):\n        self.a = 1\n\n    def g(self):\n        pass\n\nC().g()\ndef h(): pass\n"
    )
    assert found_in(tmp_path, source) == ["unused method 'f'", "unused attribute 'a'", "unused function 'h'"]


def test_what_others_use_by_its_name_is_not(tmp_path: Path) -> None:
    source = """
class S:
    def EndTxn(self, told):
        told.error_message = ""

def wanted(): pass

@command
def run(): pass

S()
"""
    assert found_in(tmp_path, source) == []


def test_a_name_of_the_wire_excuses_only_what_the_wire_can_use(tmp_path: Path) -> None:
    assert found_in(tmp_path, "def EndTxn(): pass\ndef error_message(): pass\n") == [
        "unused function 'EndTxn'",
        "unused function 'error_message'",
    ]

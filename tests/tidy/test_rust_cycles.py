"""The definition of a cycle among the modules of the compiled transport."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from scripts import cycles
from scripts.cycles import circles_in
from scripts.rust_cycles import imports_of_crate

CRATE = cycles.ROOT / "native_transport" / "src"
CIRCLE = ("crate::a", "crate::b", "crate::a")


def write(root: Path, sources: Mapping[str, str]) -> None:
    for name, source in sources.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)


def circles(root: Path, sources: Mapping[str, str]) -> list[Sequence[str]]:
    write(root, sources)
    return list(circles_in(imports_of_crate(root)))


def test_the_compiled_transport_has_no_circle() -> None:
    graph = imports_of_crate(CRATE)
    assert graph.direct_import_exists(importer="crate::calls", imported="crate::pieces")
    assert list(circles_in(graph)) == []


@pytest.mark.parametrize(
    "back",
    [
        "use crate::a;",
        "use crate::a::Thing;",
        "use super::a::Thing;",
        "use crate::{c, a::{Other, Thing}};",
        "use crate::{\n    c::{self, Other},\n    a::*,\n};",
        "pub(crate) use crate::a as other;",
        "fn late(thing: &crate::a::Thing) {}",
        "fn late<'a>(mark: char) -> bool { mark == '\"' || crate::a::is(mark) || mark == '\\'' }",
        'const TEXT: &str = r#" " "#; use crate::a; const OTHER: &str = "//";',
    ],
)
def test_modules_that_use_each_other_are_a_circle_however_they_do(back: str, tmp_path: Path) -> None:
    sources = {"lib.rs": "mod a;\nmod b;\nmod c;\n", "a.rs": "use crate::b::Thing;\n", "b.rs": back, "c.rs": ""}
    assert circles(tmp_path, sources) == [CIRCLE]


@pytest.mark.parametrize(
    "back",
    [
        "/// Like [`a`]: crate::a\n//! crate::a",
        "/* crate::a::Thing\n   crate::a */",
        'const TEXT: &str = "said \\" crate::a::Thing";',
        'const TEXT: &str = r#"said " crate::a::Thing"#;',
        "use std::a::Thing;",
        "pub(crate) const A: u8 = 1;",
        "#[cfg(test)]\nmod tests {\n    use super::*;\n    use crate::a::Thing;\n\n    fn one() {\n    }\n}\n",
        "#[cfg(test)]\npub mod tests {\n    use crate::a::Thing;\n}\n",
    ],
)
def test_what_is_no_code_of_the_product_is_no_use(back: str, tmp_path: Path) -> None:
    assert circles(tmp_path, {"lib.rs": "mod a;\nmod b;\n", "a.rs": "use crate::b::Thing;\n", "b.rs": back}) == []


def test_code_after_the_tests_of_a_module_counts(tmp_path: Path) -> None:
    after = "#[cfg(test)]\nmod tests {\n    use super::*;\n}\n\nuse crate::a::Thing;\n"
    assert circles(tmp_path, {"a.rs": "use crate::b::Thing;\n", "b.rs": after}) == [CIRCLE]


@pytest.mark.parametrize("back", ["use crate::Thing;", "use super::*;", "use crate::{Thing, b};"])
def test_the_top_of_the_crate_is_a_module_like_any_other(back: str, tmp_path: Path) -> None:
    top = "mod a;\nmod b;\npub struct Thing(a::Other);\n"
    assert circles(tmp_path, {"lib.rs": top, "a.rs": back, "b.rs": ""}) == [("crate", "crate::a", "crate")]


def test_folders_of_modules_are_read_as_rust_does(tmp_path: Path) -> None:
    sources = {
        "one/mod.rs": "mod a;\nuse self::a::Thing;\n",
        "one/a.rs": "use super::super::two::b::Thing;\n",
        "two.rs": "mod b;\n",
        "two/b.rs": "use crate::one;\n",
    }
    assert circles(tmp_path, sources) == [("crate::one", "crate::one::a", "crate::two::b", "crate::one")]


def test_a_circle_in_rust_is_said_like_one_in_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "native_transport" / "src"
    write(source, {"a.rs": "use crate::b;\n", "b.rs": "use crate::a;\n"})
    (tmp_path / "pyproject.toml").write_text("[tool.importlinter]\nroot_packages = []\n")
    monkeypatch.setattr(cycles, "ROOT", tmp_path)
    monkeypatch.setattr(cycles, "circles_of", lambda packages: [])
    assert cycles.main() == 1
    assert capsys.readouterr().err.startswith("import cycle: crate::a -> crate::b -> crate::a\n")

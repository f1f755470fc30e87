"""The tree: packages typed and shipped, no trace of the machine it was written on, a Makefile that explains itself."""

from __future__ import annotations

import re
import stat

from tests.tidy.tree import ROOT, project, shown, text_files

# Spelled in parts, because this file is searched as well.
HOMES = ("farm", "home", "root", "Users", "work", "workspace")
REGISTRIES = (("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("crates", "io"), ("maven", "org"))
MACHINE_PATH = re.compile(rf"(?<![\w.}}/-])/(?:{'|'.join(HOMES)})/\w")
REGISTRY_HOST = re.compile("|".join(rf"\b{name}\.{domain}\b" for name, domain in REGISTRIES))


def shipped_packages() -> list[str]:
    packages: list[str] = project()["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    return packages


def test_every_shipped_package_says_that_it_is_typed() -> None:
    missing = [package for package in shipped_packages() if not (ROOT / package / "py.typed").is_file()]
    assert not missing


def test_every_package_of_the_import_law_is_shipped() -> None:
    assert sorted(project()["tool"]["importlinter"]["root_packages"]) == sorted(
        package.removeprefix("proto/") for package in shipped_packages()
    )


def test_every_folder_of_product_modules_is_a_package() -> None:
    folders = {path.parent for package in shipped_packages() for path in (ROOT / package).rglob("*.py")}
    assert [shown(folder) for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []


def test_no_file_names_a_path_of_a_machine_or_the_host_of_a_registry() -> None:
    found = [
        f"{shown(path)}:{number}: {line.strip()}"
        for path in text_files()
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if MACHINE_PATH.search(line) or REGISTRY_HOST.search(line)
    ]
    assert not found


def test_only_two_modules_know_how_a_key_becomes_a_shard() -> None:
    """A transactional id that shares a shard (`coordinator_key`) is not found by hashing it as it stands."""
    knowing = {"coordinator_runtime/decision.py", "partition_log/catalog/shard.py"}
    tested = {"tests/protocol/test_hashing.py", "tests/conformance/groups/test_a_service_checks.py"}
    use = re.compile(r"^from coordinator_protocol\.hashing import .*\bshard_of\b|\bhashing\.shard_of\b", re.MULTILINE)
    python = [path for path in text_files() if path.suffix == ".py"]
    assert {shown(path) for path in python if use.search(path.read_text())} - tested == knowing


def test_make_help_explains_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    explained = set(re.findall(r"^([a-z][a-z-]*):.*## \S", makefile, re.MULTILINE))
    phony = set(re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[0].split())
    assert targets == explained == phony


def test_the_script_of_ci_can_be_run() -> None:
    assert (ROOT / ".ci" / "run").stat().st_mode & stat.S_IXUSR

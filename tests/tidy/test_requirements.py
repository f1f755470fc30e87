"""The requirement files: pinned, hashed, without addresses, and true to what pyproject.toml declares."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.tidy.tree import ROOT, project, requirement_files, shown

ADDRESS = re.compile(
    r"://|^\s*(?:-i|-f|--index-url|--extra-index-url|--find-links|--trusted-host)\b|\s@\s", re.MULTILINE
)
PIN = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>[^\s;\\]+)", re.MULTILINE)


CRATE_LOCK = tomllib.loads((ROOT / "native_transport" / "Cargo.lock").read_text())


def pins(name: str) -> dict[str, str]:
    """Package -> version of a lock file."""
    text = (ROOT / "requirements" / name).read_text()
    return {canonicalize_name(found["name"]): found["version"] for found in PIN.finditer(text)}


def declared(*extras: str) -> list[Requirement]:
    """Return the requirements in pyproject.toml, with these extras."""
    table = project()["project"]
    lines = [*table["dependencies"], *(line for extra in extras for line in table["optional-dependencies"][extra])]
    return [Requirement(line) for line in lines]


def test_no_requirement_file_contains_an_address() -> None:
    assert requirement_files()
    assert [shown(path) for path in requirement_files() if ADDRESS.search(path.read_text())] == []


@pytest.mark.parametrize("path", [path for path in requirement_files() if path.suffix == ".txt"], ids=shown)
def test_every_locked_package_has_a_version_and_a_hash(path: Path) -> None:
    entries = re.split(r"\\?\n(?=[^\s#])", re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE).strip())
    assert entries
    for entry in entries:
        assert PIN.match(entry), f"not pinned: {entry}"
        assert "--hash=sha256:" in entry, f"no hash: {entry}"


@pytest.mark.parametrize(
    ("lock", "extras"),
    [("dev.txt", ("server", "page", "spark", "dev")), ("server.txt", ("server",)), ("spark.txt", ("server", "spark"))],
)
def test_a_lock_holds_what_is_declared(lock: str, extras: tuple[str, ...]) -> None:
    text = (ROOT / "requirements" / lock).read_text()
    locked = [(canonicalize_name(found["name"]), found["version"]) for found in PIN.finditer(text)]
    for requirement in declared(*extras):
        # Several, where not every Python can have the same one.
        versions = [version for name, version in locked if name == canonicalize_name(requirement.name)]
        assert versions, f"{requirement.name} is not locked: run `make lock`"
        fits = any(requirement.specifier.contains(version) for version in versions)
        assert fits, f"{requirement} is locked at {', '.join(versions)}: run `make lock`"


def test_the_lowest_lock_holds_exactly_the_declared_lower_bounds() -> None:
    holds_lower_bounds("lowest.txt", declared("server", "page"))


def test_the_lowest_lock_with_spark_holds_its_declared_lower_bounds() -> None:
    # Not those of gRPC: Spark Connect, which a test reads over, wants a newer one.
    own = project()["project"]["optional-dependencies"]["spark"]
    holds_lower_bounds("lowest-spark.txt", map(Requirement, own))


def holds_lower_bounds(lock: str, requirements: Iterable[Requirement]) -> None:
    locked = pins(lock)
    for requirement in requirements:
        lowest = next(clause.version for clause in requirement.specifier if clause.operator == ">=")
        version = locked[canonicalize_name(requirement.name)]
        assert f"{version}.0.0".startswith(f"{lowest}."), f"{requirement} is tested at {version}: run `make lock`"


def test_generated_code_loads_on_the_lowest_runtimes() -> None:
    assert pins("generate.txt")["grpcio-tools"] == pins("lowest.txt")["grpcio"]


def test_the_lock_of_the_crate_names_one_registry_and_a_checksum_of_everything_else_no_address() -> None:
    text = (ROOT / "native_transport" / "Cargo.lock").read_text()
    # Cargo knows a registry by this name, wherever it gets the crates from.
    registry = "registry+https://github.com/rust-lang/" + "crates" + ".io-index"
    (own,) = (package for package in CRATE_LOCK["package"] if "source" not in package)
    assert own["name"] == "txn-native-transport"
    for package in CRATE_LOCK["package"]:
        assert package is own or (package["source"] == registry and re.fullmatch("[0-9a-f]{64}", package["checksum"]))
    assert text.count("://") == len(CRATE_LOCK["package"]) - 1


def test_the_lock_of_the_crate_has_what_its_manifest_names() -> None:
    manifest = tomllib.loads((ROOT / "native_transport" / "Cargo.toml").read_text())
    locked = {(package["name"], package["version"]) for package in CRATE_LOCK["package"]}
    named = {**manifest["dependencies"], **manifest["dev-dependencies"]}
    versions = {name: wish if isinstance(wish, str) else wish["version"] for name, wish in named.items()}
    assert all(version.startswith("=") for version in versions.values())
    wanted = {(name, version.removeprefix("=")) for name, version in versions.items()}
    assert wanted | {(manifest["package"]["name"], manifest["package"]["version"])} <= locked


def test_the_lock_of_the_crate_is_committed_and_every_build_holds_to_it() -> None:
    assert "Cargo.lock" not in (ROOT / ".gitignore").read_text()
    assert "Cargo.lock" not in (ROOT / "ops/docker/Dockerfile.dockerignore").read_text()
    for name in ("ops/docker/Dockerfile", "scripts/native.py"):
        builds = re.findall(r'maturin build .*|"build", "--release".*', (ROOT / name).read_text())
        assert builds
        assert all("--locked" in build for build in builds)


def test_the_native_extra_asks_for_the_crate_that_is_here() -> None:
    crate = tomllib.loads((ROOT / "native_transport" / "Cargo.toml").read_text())["package"]
    (requirement,) = (Requirement(line) for line in project()["project"]["optional-dependencies"]["native"])
    assert (requirement.name, requirement.specifier.contains(crate["version"])) == (crate["name"], True)

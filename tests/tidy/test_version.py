"""The release is in one place, whatever else names it agrees, and builds between releases differ."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
from pathlib import Path

import pytest
from packaging.version import Version

from coordinator_protocol.version import BASE, IS_RELEASE, Commit, version_at
from coordinator_runtime.running_version import PRODUCT, CommitUnknown, commit_of, running_version, version_of_tree
from tests.harness.tools import require_tool
from tests.tidy.tree import ROOT, project

FIRST_S, SECOND_S = 1_795_870_909, 1_795_870_910


class Checkout:
    """A tree of its own with the files that say which version it is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "coordinator_core").mkdir(parents=True)
        for name in (".gitattributes", ".git_archival.txt"):
            (path / name).write_bytes((ROOT / name).read_bytes())
        self.git("init", "--quiet")

    def git(self, *words: str, committed_s: int = FIRST_S) -> str:
        who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org", "-c", "commit.gpgSign=false"]
        when = {"GIT_AUTHOR_DATE": f"{committed_s} +0300", "GIT_COMMITTER_DATE": f"{committed_s} +0300"}
        done = subprocess.run(
            ["git", *who, *words], cwd=self.path, env=os.environ | when, check=True, capture_output=True, text=True
        )
        return done.stdout

    def commit(self, text: str, *, committed_s: int) -> str:
        """Commit a change of the product; return the version then."""
        (self.path / "coordinator_core" / "module.py").write_text(text)
        self.git("add", ".")
        self.git("commit", "--quiet", "--message", text, committed_s=committed_s)
        return version_of_tree(self.path)

    def archive(self, target: Path) -> Path:
        """Unpack what `git archive` makes."""
        packed = target / "archive.tar"
        self.git("archive", "--output", str(packed), "HEAD")
        with tarfile.open(packed) as opened:
            opened.extractall(target, filter="data")
        return target


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    require_tool("git")
    return Checkout(tmp_path / "checkout")


def test_the_package_has_the_version_of_the_code() -> None:
    assert project()["project"]["dynamic"] == ["version"]
    assert project()["tool"]["hatch"]["version"] == {
        "source": "code",
        "path": "coordinator_runtime/running_version.py",
        "expression": "running_version()",
        "search-paths": ["."],
    }
    assert Version(running_version()) >= Version(BASE)


def test_a_change_of_what_the_wheel_is_made_of_is_a_change_of_the_product() -> None:
    packages = project()["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert sorted(PRODUCT) == sorted([*packages, "LICENSE", "NOTICE", "README.md", "pyproject.toml"])


def test_each_commit_between_releases_is_newer_for_pip_than_the_one_before() -> None:
    versions = [
        version_at(commit, base=base, is_release=is_release)
        for base, commit, is_release in [
            ("1.0.0", Commit("f" * 40, FIRST_S), True),
            ("1.0.0", Commit("e" * 40, FIRST_S), False),
            ("1.0.0", Commit("e" * 40, FIRST_S, is_changed=True), False),
            ("1.0.0", Commit("d" * 40, SECOND_S), False),
            ("1.0.1", Commit("c" * 40, SECOND_S), True),
        ]
    ]
    assert versions == [
        "1.0.0",
        "1.0.0.post20261128130149+geeeeeeeeee",
        "1.0.0.post20261128130149+geeeeeeeeee.changed",
        "1.0.0.post20261128130150+gdddddddddd",
        "1.0.1",
    ]
    assert sorted(versions, key=Version) == versions
    # pip leaves pre-releases out where there is a release.
    assert not any(Version(version).is_prerelease for version in versions)
    assert all(str(Version(version)) == version for version in versions)


def test_a_release_that_was_changed_or_whose_commit_is_not_known_is_not_told_wrong() -> None:
    changed = Commit("f" * 40, FIRST_S, is_changed=True)
    assert version_at(changed, base="1.0.0", is_release=True) == "1.0.0+gffffffffff.changed"
    assert version_at(None, base="1.0.0", is_release=True) == "1.0.0"
    assert version_at(None, base="1.0.0", is_release=False) == "1.0.0+unknown"


def test_a_checkout_without_tags_is_at_its_commit(checkout: Checkout) -> None:
    first, second = checkout.commit("one", committed_s=FIRST_S), checkout.commit("two", committed_s=SECOND_S)
    assert Version(BASE) < Version(first) < Version(second)
    assert second == f"{BASE}.post20261128130150+g{checkout.git('rev-parse', 'HEAD')[:10]}"


@pytest.mark.parametrize("name", ["coordinator_core/module.py", "coordinator_core/new.py"])
def test_what_was_changed_and_not_committed_is_told(checkout: Checkout, name: str) -> None:
    clean = checkout.commit("one", committed_s=FIRST_S)
    (checkout.path / "a_note").write_text("no part of the product")
    assert version_of_tree(checkout.path) == clean
    (checkout.path / name).write_text("changed")
    assert version_of_tree(checkout.path) == f"{clean}.changed"


def test_an_archive_of_a_commit_has_its_version(checkout: Checkout, tmp_path: Path) -> None:
    told = checkout.commit("one", committed_s=FIRST_S)
    assert version_of_tree(checkout.archive(tmp_path)) == told


def test_a_shallow_clone_has_its_version(checkout: Checkout, tmp_path: Path) -> None:
    checkout.commit("one", committed_s=FIRST_S)
    told = checkout.commit("two", committed_s=SECOND_S)
    checkout.git("clone", "--quiet", "--depth", "1", checkout.path.as_uri(), str(tmp_path / "shallow"))
    assert version_of_tree(tmp_path / "shallow") == told


def test_a_source_archive_has_the_version_that_it_was_built_with(tmp_path: Path) -> None:
    (tmp_path / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: txn-coordinator\nVersion: 1.2.3.post4+gabc\n\nA\n")
    assert version_of_tree(tmp_path) == "1.2.3.post4+gabc"


def test_a_tree_that_says_nothing_is_of_an_unknown_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CommitUnknown, match="no checkout of git, and no archive"):
        commit_of(tmp_path)
    assert version_of_tree(tmp_path) == version_at(None)
    (tmp_path / ".git").mkdir()
    with pytest.raises(CommitUnknown, match="git says: fatal: not a git repository"):
        commit_of(tmp_path)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CommitUnknown, match="git cannot be run"):
        commit_of(tmp_path)


def test_only_the_commit_of_a_release_calls_itself_the_release() -> None:
    if IS_RELEASE and (ROOT / ".git").exists():
        made = ["git", "log", "-1", "--format=%H", "--", "coordinator_protocol/version.py"]
        released = subprocess.run(made, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
        assert released == commit_of(ROOT).hash, "set IS_RELEASE back: main goes on after the release"


def test_the_image_that_is_deployed_has_the_version_of_the_release() -> None:
    overlay = (ROOT / "ops/kubernetes/overlays/prod/kustomization.yaml").read_text()
    assert re.findall(r'newTag: "([^"]+)"', overlay) == [BASE]


def test_the_changelog_begins_with_what_is_not_released_and_its_newest_version_is_the_release() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    released = [tuple(map(int, heading.split(" ")[0].split("."))) for heading in headings[1:]]
    assert released == sorted(released, reverse=True)
    assert released[0] == tuple(map(int, BASE.split(".")))


def test_what_a_release_is_told_to_run_is_there() -> None:
    targets = re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = re.findall(r"`make ([a-z-]+)`", (ROOT / "docs/releasing.md").read_text())
    assert set(named) <= set(targets)

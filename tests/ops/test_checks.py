"""`make ops` finds what is wrong in a copy of ops/, and names the tools that are missing. That nothing is wrong in ops/
itself, CI asks `make ops`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs.fences import ROOT
from tests.harness.long_cases import long_but
from tests.harness.tools import require_ops_python, require_tool

pytestmark = pytest.mark.slow


class Flaw(NamedTuple):
    """A change that must be noticed, and where."""

    file: str
    before: str
    after: str
    check: str


FLAWS = (
    Flaw("docker/Dockerfile", "USER 10001\nVOLUME", "USER root\nRUN cd /tmp\nVOLUME", "the Dockerfile has no flaw"),
    Flaw("compose.yaml", "  read_only: true", "  read_onyl: true", "the files of Compose are of its schema"),
    Flaw("kubernetes/base/statefulset.yaml", "readinessProbe:", "readynessProbe:", "overlay dev: strictly valid"),
    Flaw(
        "kubernetes/base/statefulset.yaml", "enableServiceLinks: false\n", "", "overlay prod: its parts find each other"
    ),
    Flaw("kubernetes/txn-restore.yaml", "volumeMounts:", "volumeMount:", "the pod that restores"),
    Flaw(
        "kubernetes/base/networkpolicy.yaml",
        "    matchLabels: {app.kubernetes.io/name: txn-coordinator}",
        "    matchLabels: {app: txn}",
        "overlay dev: its parts find each other",
    ),
    Flaw(
        "kubernetes/components/monitoring/servicemonitor.yaml",
        "jobLabel:",
        "jobLable:",
        "overlay prod: strictly valid",
    ),
    Flaw(
        "prometheus/alert.rules.yml",
        "rate(txn_rpc_rejected_total[5m])",
        "rate(txn_rpc_rejected_total)",
        "rules and conf",
    ),
    Flaw(
        "prometheus/alert.rules.yml",
        "expr: txn_coordinator_markers_pending > 1000",
        "expr: vector(0) > 1",
        "every rule",
    ),
    Flaw(
        "prometheus/recording.rules.yml", "Producers that were fenced", "Who was fenced", "prometheusrule.yaml is fresh"
    ),
    Flaw("grafana/rows/health.py", '"Bugs met"', '"Bugs"', "dashboard.json is fresh"),
    Flaw("grafana/dashboard.json", '"min(up{', '"min(up{{', "every query of the dashboard"),
    Flaw("systemd/txn-coordinator.service", "ProtectSystem=strict", "ProtectSystm=strict", "systemd understands"),
    Flaw("systemd/txn-coordinator.service", "CapabilityBoundingSet=\n", "", "the services are exposed"),
)

LONG = {"every rule"}
"""Checks that take seconds. So do those of overlays: Go builds kustomize for them, in a minute and more."""


def is_short(flaw: Flaw) -> bool:
    return flaw.check not in LONG and not flaw.check.startswith("overlay ")


@pytest.fixture(scope="module")
def needs() -> None:
    require_ops_python()
    for tool in ("promtool", "systemd-analyze", "go"):
        require_tool(tool)


def check(tree: Path, *arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    """`make ops` on the tree, with the tools of this one."""
    return subprocess.run(
        [require_ops_python(), tree / "scripts/ops.py", *arguments],
        env=os.environ | ({} if path is None else {"PATH": path}),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for folder in ("ops", "scripts"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    return tmp_path


def results(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Return the result of each check."""
    found = {}
    for line in done.stdout.splitlines():
        for result in ("ok", "FAILED", "NOT CHECKED", "left out"):
            if line.startswith(f"{result:<12} "):
                found[line[13:]] = result
    return found


@pytest.mark.usefixtures("needs")
@pytest.mark.parametrize(
    "flaw",
    long_but(is_short, FLAWS),
    ids=lambda flaw: f"{flaw.check}: {flaw.after[:20]!r}",
)
def test_a_flaw_is_found_by_the_check_that_is_for_it(flaw: Flaw, tree: Path) -> None:
    file = tree / "ops" / flaw.file
    sound = file.read_text()
    file.write_text(sound.replace(flaw.before, flaw.after))
    assert file.read_text() != sound, f"{flaw.before!r} is not in {flaw.file}"
    done = check(tree, "--only", flaw.check)
    assert (done.returncode, list(results(done).values())) == (1, ["FAILED"]), done.stdout


@pytest.mark.long
def test_missing_tools_are_named_with_what_to_install(tree: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    done = check(tree, path=str(empty))
    assert done.returncode == 1
    assert "promtool: install Prometheus 2.42 or newer" in done.stdout
    assert "systemd-analyze: install systemd" in done.stdout
    assert "NOT CHECKED" in done.stdout
    without = check(tree, "--without", "promtool", "--without", "systemd-analyze", "--without", "go", path=str(empty))
    assert without.returncode == 0, without.stdout
    assert set(results(without).values()) == {"ok", "left out"}


def test_without_go_its_install_is_asked_for() -> None:
    from scripts.ops import INSTALL

    assert INSTALL["go"].startswith("install Go 1.")


def test_the_python_that_runs_the_tests_needs_none_of_it() -> None:
    source = "import scripts.ops, sys; assert not {'yaml', 'jsonschema', 'grafana_foundation_sdk'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", source], cwd=ROOT, check=True)

"""The rules and the dashboard, judged by promtool: they are valid, do what their unit tests say, and can be read."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.docs.fences import ROOT
from tests.harness.tools import require_ops_python, require_tool
from tests.ops.files import OPS, RULE_TESTS, dashboard_queries

pytestmark = pytest.mark.slow


def promtool(*arguments: str | Path) -> None:
    done = subprocess.run([require_tool("promtool"), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_every_rule_does_what_its_unit_tests_say() -> None:
    promtool("test", "rules", RULE_TESTS)


@pytest.mark.parametrize("name", ["scrape.yml", "compose.yml"])
def test_a_configuration_and_its_rules_are_valid(name: str) -> None:
    promtool("check", "config", OPS / "prometheus" / name)


def test_every_query_of_the_dashboard_can_be_read(tmp_path: Path) -> None:
    queries = [query for query in dashboard_queries() if not query.startswith("label_values(")]
    rules = [{"record": f"query:number:{at}", "expr": query} for at, query in enumerate(dict.fromkeys(queries))]
    file = tmp_path / "dashboard.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", file)


def test_the_dashboard_is_what_its_code_builds() -> None:
    build = [require_ops_python(), "-m", "ops.grafana.build", "--check"]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

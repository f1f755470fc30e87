"""Parts of the product are written down in full, and known facts about them are read right."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from scripts.audit import audited
from tests.harness.tools import ROOT, require_ops_python


@pytest.mark.slow
@pytest.mark.long
def test_a_bill_names_every_package_of_its_lock_with_its_hashes(tmp_path: Path) -> None:
    wrote = subprocess.run(
        [require_ops_python(), ROOT / "scripts" / "sbom.py", "--out", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert wrote.returncode == 0, wrote.stderr
    for lock in ("server", "spark"):
        pins = re.findall(r"^([\w.-]+)==([^\s;\\]+)", (ROOT / f"requirements/{lock}.txt").read_text(), re.MULTILINE)
        bill = json.loads((tmp_path / f"sbom-{lock}.cdx.json").read_text())
        assert bill["bomFormat"] == "CycloneDX"
        assert {(each["name"], each["version"]) for each in bill["components"]} >= set(pins)
        assert all("SHA-256" in json.dumps(each["externalReferences"]) for each in bill["components"])


def test_what_could_not_be_looked_up_is_not_taken_for_fine() -> None:
    weak = {"name": "b", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}]}
    report = {
        "dependencies": [
            {"name": "a", "version": "1", "vulns": []},
            weak,
            {"name": "c", "skip_reason": "no network"},
        ]
    }
    found = audited(report)
    assert (found.looked_up, found.unknown) == (2, 1)
    assert found.weaknesses == ("b 2: CVE-1, mended in 3",)

"""Writes the bills of materials of the product into dist/, as CycloneDX: `make sbom`. Needs no network.

Runs in its own environment, made from `requirements/ops.txt`. Each lock for an installation has a bill: the server, and
a Spark job. The third is the bill of the compiled transport, from its own lock, if cargo is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.dependency import Dependency
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

ROOT: Final = Path(__file__).resolve().parent.parent
LOCKS: Final = ("server", "spark")
MANIFEST: Final = ROOT / "native_transport" / "Cargo.toml"


def main() -> int:
    """Write the bills and print their names. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", metavar="DIR", help="where to (default: dist)")
    target: Path = parser.parse_args().out
    target.mkdir(parents=True, exist_ok=True)
    for lock in LOCKS:
        file = target / f"sbom-{lock}.cdx.json"
        _python(ROOT / "requirements" / f"{lock}.txt", file)
        _told(file)
    if shutil.which("cargo") is None:
        print("no bill of the compiled transport: cargo is not there", file=sys.stderr)
        return 0
    file = target / "sbom-native.cdx.json"
    file.write_text(JsonV1Dot6(_crate()).output_as_string(indent=2))
    _told(file)
    return 0


def _python(lock: Path, file: Path) -> None:
    command = [str(Path(sys.executable).parent / "cyclonedx-py"), "requirements", str(lock)]
    command += ["--pyproject", str(ROOT / "pyproject.toml"), "--short-PURLs"]
    command += ["--output-reproducible", "--output-file", str(file)]
    # The tool warns that the locks do not record dependencies among packages, which is true.
    subprocess.run(command, env=os.environ | {"PYTHONWARNINGS": "ignore"}, check=True)


def _crate() -> Bom:
    """Return the bill of a build of the compiled transport, from cargo."""
    asked = ["cargo", "metadata", "--format-version", "1", "--locked", "--manifest-path", str(MANIFEST)]
    told: dict[str, Any] = json.loads(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)
    components = {package["id"]: _component(package) for package in told["packages"]}
    root = components.pop(told["resolve"]["root"])
    bom = Bom(components=components.values(), metadata=BomMetaData(component=root))
    components[told["resolve"]["root"]] = root
    for node in told["resolve"]["nodes"]:
        needed = [Dependency(components[each].bom_ref) for each in node["dependencies"]]
        bom.dependencies.add(Dependency(components[node["id"]].bom_ref, needed))
    return bom


def _component(package: dict[str, Any]) -> Component:
    checksum = package.get("checksum")
    return Component(
        name=package["name"],
        version=package["version"],
        type=ComponentType.LIBRARY,
        bom_ref=f"{package['name']}@{package['version']}",
        purl=PackageURL("cargo", None, package["name"], package["version"]),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=checksum)] if checksum else [],
    )


def _told(file: Path) -> None:
    count = len(json.loads(file.read_text()).get("components", []))
    print(f"wrote {file}: {count} components")


if __name__ == "__main__":
    sys.exit(main())

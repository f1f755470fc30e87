"""Checks everything in ops/ without a network, a cluster or a container: `make ops`.

Runs in its own environment, made from `requirements/ops.txt`. Three tools are not Python packages: kustomize, which Go
builds here, promtool and systemd-analyze. A missing tool is reported with advice, and its checks count as not checked:
the exit status is 1. `--without TOOL` leaves out a tool on purpose.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
OPS: Final = ROOT / "ops"
PROGRAMS: Final = Path(sys.executable).parent

KUSTOMIZE: Final = "sigs.k8s.io/kustomize/kustomize/v5"
KUSTOMIZE_VERSION: Final = "v5.7.1"
EXPOSURE_MAX: Final = 15
"""Worst score of `systemd-analyze security` that passes, in tenths. A service without any hardening has 9.6."""
OVERLAYS: Final = ("dev", "prod", "bucket")
OPERATOR_KINDS: Final = ("ServiceMonitor", "PrometheusRule")
"""Kinds that Kubernetes does not know. Their schemas are copies of the Prometheus Operator's."""

INSTALL: Final = {
    "go": "install Go 1.24 or newer (Debian: golang-go from backports, else the archive of the Go project)",
    "kustomize": "Go could not build it; see above",
    "promtool": "install Prometheus 2.42 or newer (Debian and Ubuntu: apt-get install prometheus)",
    "systemd-analyze": "install systemd 250 or newer, which exists for Linux only",
}


class Failed(Exception):
    """A check failed. The message is the output of its tool."""


class Missing(Exception):
    """A tool is missing. The only argument is its name."""


@dataclass(frozen=True, slots=True)
class Check:
    """A condition in words, and the function that checks it."""

    what: str
    tool: str
    run: Callable[[], None]


def main() -> int:
    """Run all checks. Returns 1 if one failed or could not be run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--without", action="append", default=[], choices=list(INSTALL), help="a tool to do without; repeatable"
    )
    parser.add_argument("--only", default="", metavar="WORDS", help="run the checks with these words in their name")
    arguments = parser.parse_args()
    without = arguments.without
    counts = {"ok": 0, "FAILED": 0, "NOT CHECKED": 0, "left out": 0}
    for check in CHECKS:
        if arguments.only not in check.what:
            continue
        try:
            if check.tool in without:
                raise Missing(check.tool)
            check.run()
        except Failed as failure:
            result, said = "FAILED", str(failure).strip()
        except Missing as missing:
            tool = str(missing)
            result, said = ("left out", tool) if tool in without else ("NOT CHECKED", f"{tool}: {INSTALL[tool]}")
        else:
            result, said = "ok", ""
        counts[result] += 1
        print(f"{result:<12} {check.what}" + (f"\n{said}" if said else ""), flush=True)
    print("ops: " + ", ".join(f"{number} {result}" for result, number in counts.items() if number))
    return 1 if counts["FAILED"] or counts["NOT CHECKED"] else 0


def run(*command: str | Path, is_quiet: bool = False) -> str:
    """Run a command and return its stdout. Raises Failed if the command fails, or if it must be quiet and prints to
    stderr. Raises Missing if it does not exist."""
    program = shutil.which(command[0], path=f"{PROGRAMS}{os.pathsep}{os.environ.get('PATH', '')}")
    if program is None:
        raise Missing(str(command[0]))
    done = subprocess.run([program, *command[1:]], capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode != 0 or (is_quiet and done.stderr):
        raise Failed(done.stdout + done.stderr)
    return done.stdout


def fresh(module: str) -> None:
    run(sys.executable, "-m", module, "--check")


def image() -> None:
    run("hadolint", "--failure-threshold", "info", OPS / "docker/Dockerfile")


def compose() -> None:
    run("check-jsonschema", "--builtin-schema", "vendor.compose-spec", *sorted(OPS.glob("compose*.yaml")))


def kustomize() -> str:
    """Return the path of the pinned kustomize, which is built once. Raises Missing."""
    program = PROGRAMS / "kustomize"
    if not program.exists() or run(program, "version").strip() != KUSTOMIZE_VERSION:
        go = shutil.which("go")
        if go is None:
            raise Missing("go")
        print(f"building kustomize {KUSTOMIZE_VERSION}", file=sys.stderr)
        environment = {**os.environ, "GOBIN": str(PROGRAMS), "GOFLAGS": "-modcacherw"}
        command = [go, "install", "-ldflags", _version_flag(), f"{KUSTOMIZE}@{KUSTOMIZE_VERSION}"]
        if subprocess.run(command, env=environment, check=False).returncode != 0:
            raise Missing("kustomize")
    return str(program)


def _version_flag() -> str:
    return f"-X sigs.k8s.io/kustomize/api/provenance.version={KUSTOMIZE_VERSION}"


def manifests(overlay: str) -> list[dict[str, Any]]:
    """Return the manifests that a cluster would get for an overlay."""
    import yaml

    return list(yaml.safe_load_all(run(kustomize(), "build", OPS / "kubernetes/overlays" / overlay)))


def cluster(overlay: str) -> None:
    """Check the manifests against schemas. Kubernetes' own kinds are checked strictly, which finds misspelt fields. The
    operator's kinds are checked against copies of their schemas."""
    import jsonschema
    import yaml

    own: list[dict[str, Any]] = []
    foreign: list[dict[str, Any]] = []
    for manifest in manifests(overlay):
        (foreign if manifest["kind"] in OPERATOR_KINDS else own).append(manifest)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump_all(own, file)
        file.flush()
        run("kubernetes-validate", "--strict", "--quiet", file.name)
    for manifest in foreign:
        schema = json.loads((OPS / f"kubernetes/schemas/{manifest['kind'].lower()}.json").read_text())
        problems = [
            f"{each.json_path}: {each.message}" for each in jsonschema.Draft7Validator(schema).iter_errors(manifest)
        ]
        if problems:
            raise Failed("\n".join([f"{manifest['kind']}:", *problems]))


def restore_pod() -> None:
    run("kubernetes-validate", "--strict", "--quiet", OPS / "kubernetes/txn-restore.yaml")


def meets_itself(overlay: str) -> None:
    """Check conditions that no schema can express: the parts of an overlay must find each other."""
    found = {manifest["kind"]: manifest for manifest in manifests(overlay)}
    pod = found["StatefulSet"]["spec"]["template"]
    labels = pod["metadata"]["labels"]
    selectors = {
        "StatefulSet": found["StatefulSet"]["spec"]["selector"]["matchLabels"],
        "Service": found["Service"]["spec"]["selector"],
        "NetworkPolicy": found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
        "PodDisruptionBudget": found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
    }
    problems = [
        f"{kind} selects {selector}, and the pod has {labels}"
        for kind, selector in selectors.items()
        if not selector or not selector.items() <= labels.items()
    ]
    if pod["spec"].get("enableServiceLinks") is not False:
        problems.append("enableServiceLinks is not false: the variables would keep the server from starting")
    if "ServiceMonitor" in found:
        wanted = found["ServiceMonitor"]["spec"]["selector"]["matchLabels"]
        if not wanted.items() <= found["Service"]["metadata"]["labels"].items():
            problems.append(f"ServiceMonitor selects {wanted}, which the Service does not have")
    if problems:
        raise Failed("\n".join(problems))


def rules() -> None:
    run("promtool", "check", "rules", *sorted((OPS / "prometheus").glob("*.rules.yml")))
    for name in ("scrape.yml", "compose.yml"):
        run("promtool", "check", "config", OPS / "prometheus" / name)


def rule_tests() -> None:
    run("promtool", "test", "rules", OPS / "prometheus/alert.rules_test.yml")


def dashboard_queries() -> None:
    """Check every query of the dashboard, as a rule that records it, with a value for each of the dashboard's
    variables."""
    queries = sorted(set(_queries(json.loads((OPS / "grafana/dashboard.json").read_text()))))
    recorded = [
        {"record": f"query:number:{number}", "expr": query.replace("$instance", "a")}
        for number, query in enumerate(queries)
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        json.dump({"groups": [{"name": "dashboard", "rules": recorded}]}, file)
        file.flush()
        run("promtool", "check", "rules", file.name)


def _queries(node: object) -> Iterator[str]:
    match node:
        case {"expr": str(query), **rest}:
            yield query
            yield from _queries(rest)
        case dict():
            for value in node.values():
                yield from _queries(value)
        case list():
            for value in node:
                yield from _queries(value)


def units(pattern: str, *verb: str, is_quiet: bool = False) -> None:
    """Run systemd-analyze on these units, with an existing program in place of the real one, which is not installed
    here."""
    with tempfile.TemporaryDirectory() as directory:
        for path in (OPS / "systemd").iterdir():
            text = path.read_text().replace("/opt/txn-coordinator/bin/txnctl", sys.executable)
            (Path(directory) / path.name).write_text(text)
        run("systemd-analyze", *verb, *sorted(Path(directory).glob(pattern)), is_quiet=is_quiet)


CHECKS: Final = (
    Check("dashboard.json is fresh", "python", partial(fresh, "ops.grafana.build")),
    Check("prometheusrule.yaml is fresh", "python", partial(fresh, "ops.kubernetes.build")),
    Check("the Dockerfile has no flaw that hadolint knows", "hadolint", image),
    Check("the files of Compose are of its schema", "check-jsonschema", compose),
    *(Check(f"overlay {overlay}: strictly valid", "go", partial(cluster, overlay)) for overlay in OVERLAYS),
    *(
        Check(f"overlay {overlay}: its parts find each other", "go", partial(meets_itself, overlay))
        for overlay in OVERLAYS
    ),
    Check("the pod that restores is strictly valid", "kubernetes-validate", restore_pod),
    Check("rules and configurations of Prometheus are valid", "promtool", rules),
    Check("every rule does what its unit tests say", "promtool", rule_tests),
    Check("every query of the dashboard can be read", "promtool", dashboard_queries),
    Check("systemd understands the units", "systemd-analyze", partial(units, "*", "verify", "--man=no", is_quiet=True)),
    Check(
        f"the services are exposed by {EXPOSURE_MAX / 10} of 10 at most",
        "systemd-analyze",
        partial(units, "*.service", "security", "--offline=yes", f"--threshold={EXPOSURE_MAX}"),
    ),
)

if __name__ == "__main__":
    sys.exit(main())

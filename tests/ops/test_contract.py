"""The files of ops/ fit the server: the metrics that they use exist, every alert has its runbook and its unit tests,
generated files are fresh."""

from __future__ import annotations

import re
import tomllib

import pytest

from coordinator_server.metrics.families import FAMILIES, Kind
from coordinator_server.metrics.probe import PROBE_FAMILIES
from coordinator_server.security.tls import ClientAuth
from coordinator_server.settings.config_sources import ConfigRefused, load_config
from ops.kubernetes import build as prometheusrule
from scripts.native import rust_version
from tests.docs.fences import ROOT
from tests.docs.test_references import LINK
from tests.ops.files import (
    ALERT_RULES,
    ALERTS,
    DASHBOARD,
    OPS,
    RECORDED,
    RECORDING_RULES,
    RULE_TESTS,
    RUNBOOKS,
    dashboard_queries,
    documents,
)

BY_NAME = {family.name: family for family in (*FAMILIES, *PROBE_FAMILIES)}
PUBLISHED = set(BY_NAME) | {
    f"{family.name}_{part}"
    for family in BY_NAME.values()
    if family.kind is Kind.HISTOGRAM
    for part in ("bucket", "count", "sum")
}
NAME = re.compile(r"(?<![\w:./-])(?:instance:|topic:)?txn_\w+(?::\w+)?")
SELECTOR = re.compile(r"(txn_\w+)\{([^}]*)\}")
ADDED_BY_PROMETHEUS = {"job", "instance", "le"}


def unknown(text: str) -> set[str]:
    """Names of metrics that neither the server nor a rule gives."""
    return {name for name in NAME.findall(text) if name not in PUBLISHED | RECORDED}


@pytest.mark.parametrize("path", [ALERT_RULES, RECORDING_RULES, RULE_TESTS, DASHBOARD], ids=lambda path: path.name)
def test_every_metric_that_is_asked_for_exists(path) -> None:
    text = "\n".join(dashboard_queries()) if path is DASHBOARD else path.read_text()
    assert NAME.search(text)
    assert unknown(text) == set()


@pytest.mark.parametrize("path", [ALERT_RULES, RECORDING_RULES, DASHBOARD], ids=lambda path: path.name)
def test_every_label_that_is_asked_for_exists(path) -> None:
    text = "\n".join(dashboard_queries()) if path is DASHBOARD else path.read_text()
    for name, selector in SELECTOR.findall(text):
        family = BY_NAME.get(name) or BY_NAME[name.rpartition("_")[0]]
        labels = set(re.findall(r"(\w+) *[=!]", selector)) - ADDED_BY_PROMETHEUS
        assert labels <= set(family.labels), f"{name}{{{selector}}}"


@pytest.mark.parametrize("document", documents())
def test_what_people_read_names_no_other_metric(document: str) -> None:
    # A pattern for grep names the beginnings of several.
    text = re.sub(r"grep -E '[^']*'", "", (OPS / document).read_text())
    assert unknown(text) == set()


@pytest.mark.parametrize("document", documents())
def test_links_lead_somewhere(document: str) -> None:
    path = OPS / document
    assert [target for target in LINK.findall(path.read_text()) if not (path.parent / target).exists()] == []


def test_every_alert_has_a_page_that_it_names() -> None:
    assert sorted(path.stem for path in RUNBOOKS.glob("*.md")) == sorted(ALERTS)
    named = re.findall(r"runbook: (\S+)", ALERT_RULES.read_text())
    assert set(named) == {f"ops/runbooks/{alert}.md" for alert in ALERTS}
    for alert in ALERTS:
        severities = set(re.findall(rf"alert: {alert}\n.*?severity: (\w+)", ALERT_RULES.read_text(), re.DOTALL))
        (severity,) = severities
        assert (RUNBOOKS / f"{alert}.md").read_text().startswith(f"# {alert} ({severity})\n")


def test_the_list_of_alerts_has_all_of_them_and_says_which_ones_wake() -> None:
    listed = re.findall(
        r"^\| \[(\w+)\]\(runbooks/\1\.md\) \| (page|ticket) \|", (OPS / "README.md").read_text(), re.MULTILINE
    )
    assert sorted(alert for alert, _ in listed) == sorted(set(ALERTS))
    for alert, severity in listed:
        assert (RUNBOOKS / f"{alert}.md").read_text().startswith(f"# {alert} ({severity})\n"), alert


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_has_a_unit_test_that_fires_and_one_that_does_not(alert: str) -> None:
    names = re.findall(r'name: "([^"]+)"', RULE_TESTS.read_text())
    for what in ("fires", "stays silent"):
        assert [name for name in names if name.startswith(f"{alert} {what}: ")], what


@pytest.mark.parametrize("case", re.split(r"\n\n", RULE_TESTS.read_text())[1:], ids=lambda case: case.split('"')[1])
def test_a_unit_test_expects_what_its_name_says(case: str) -> None:
    name = case.split('"')[1]
    match name.partition(":")[0].split(" ", 1):
        case [alert, "fires"]:
            assert f"""exp_samples: [{{labels: '{{alertname="{alert}"}}', value: 1}}]""" in case
        case [_, "stays silent"]:
            assert "exp_samples: []" in case
        case _:
            assert name == "what is recorded"


def test_every_rule_that_records_is_used() -> None:
    used = "\n".join([*dashboard_queries(), ALERT_RULES.read_text()])
    assert [name for name in RECORDED if name not in used] == []


def test_the_rules_of_the_operator_are_fresh() -> None:
    assert prometheusrule.TARGET.read_text() == prometheusrule.built(), "run `make ops-files`"


def test_the_environment_may_not_hold_what_kubernetes_would_put_there() -> None:
    """The reason for enableServiceLinks: false, which `make ops` demands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TXN_COORDINATOR_SERVICE_HOST", "10.0.0.1")
        with pytest.raises(ConfigRefused, match="TXN_COORDINATOR_SERVICE_HOST is unknown"):
            load_config(None, {"data_dir": "data"})
    assert "enableServiceLinks: false" in (OPS / "kubernetes/base/statefulset.yaml").read_text()


def test_what_starts_a_server_without_tls_says_that_it_is_open() -> None:
    """Only what is for trying things out does so."""
    starts = [
        "compose.bucket.yaml",
        "compose.yaml",
        "kubernetes/overlays/dev/kustomization.yaml",
        "kubernetes/overlays/bucket/kustomization.yaml",
        "kubernetes/overlays/prod/kustomization.yaml",
    ]
    insecure = [name for name in starts if re.search(r"^[^#]*--insecure", (OPS / name).read_text(), re.MULTILINE)]
    assert insecure == starts[:3]
    assert [name for name in insecure if "OPEN: " not in (OPS / name).read_text()] == []
    assert not any("OPEN" in (OPS / name).read_text() for name in starts[3:])


def test_the_lines_that_a_start_refuses_are_those_of_the_program() -> None:
    _before, _head, table = (OPS / "bucket.md").read_text().partition("| line | do |\n| --- | --- |\n")
    lines = [row.split(" | ")[0].removeprefix("| ") for row in table.splitlines()]
    assert len(lines) > 4
    program = "".join(path.read_text() for path in (ROOT / "coordinator_runtime").rglob("*.py"))
    said = re.sub(r'"\s+f?"', "", program)
    assert [line for line in lines if line not in said] == []


@pytest.mark.parametrize("overlay", ["prod", "bucket"])
def test_production_has_tls_on_every_listener(overlay: str) -> None:
    """The settings of the container, as the overlay gives them, are a configuration without `insecure`."""
    given = (OPS / f"kubernetes/overlays/{overlay}/kustomization.yaml").read_text()
    variables = dict(re.findall(r'\{name: (TXN_\w+), value: "?([^"}\s]+)"?\}', given))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        config = load_config(OPS / "kubernetes/base/server.toml", {}).config
    assert config.insecure_listeners() == ()
    assert config.tls_client_auth is ClientAuth.REQUIRED
    assert config.core_config().enforces_acls
    assert config.super_user_names() == ("User:CN=txn-admin",)
    assert config.lease is (config.store is not None) is (overlay == "bucket")
    assert set(re.findall(r"mountPath: (\S+),", given)) == {
        str(file.parent) for file in (config.tls_key_file, config.metrics_tls_key_file) if file is not None
    }


@pytest.mark.parametrize(
    ("asks", "listens"),
    [("docker/Dockerfile", "docker/server.toml"), ("kubernetes/base/statefulset.yaml", "kubernetes/base/server.toml")],
)
def test_health_is_asked_for_where_the_server_listens(asks: str, listens: str) -> None:
    asked = set(re.findall(r'"(unix:[^"]+)"', (OPS / asks).read_text()))
    settings = tomllib.loads((OPS / listens).read_text())
    assert asked == {listener["listen"] for listener in settings["listeners"]}


def test_the_image_copies_what_is_there() -> None:
    ignored = (OPS / "docker/Dockerfile.dockerignore").read_text().splitlines()
    for line in ignored:
        if line.startswith("!"):
            assert (ROOT / line[1:]).exists() or line == "!.git", line
    copied = re.findall(r"^COPY (?!--from|\. )(.+) \S+$", (OPS / "docker/Dockerfile").read_text(), re.MULTILINE)
    assert copied
    for path in " ".join(copied).split():
        assert (ROOT / path).exists(), path
        assert any(path == line[1:] or path.startswith(f"{line[1:]}/") for line in ignored if line.startswith("!")), (
            path
        )


def test_the_image_builds_the_compiled_transport_with_a_rust_and_a_libc_that_fit() -> None:
    """No container is built here, so what would keep the wheel from being built or loaded there is looked for."""
    dockerfile = (OPS / "docker/Dockerfile").read_text()
    bases = re.findall(r"^FROM (\w+):(\S+)-slim-(\w+)", dockerfile, re.MULTILINE)
    assert {debian for _image, _version, debian in bases} == {"bookworm"}, "what is linked with a glibc needs it"
    (rust,) = (version for image, version, _debian in bases if image == "rust")
    crate = tomllib.loads((ROOT / "native_transport/Cargo.toml").read_text())["package"]
    assert rust_version(f"cargo {rust}") >= rust_version(f"cargo {crate['rust-version']}")  # type: ignore[operator]  # both are there
    assert "COPY --from=native /wheels /wheels" in dockerfile
    assert '-c "import coordinator_server.grpc_front.native_transport"' in dockerfile


def test_the_image_names_the_published_transport_as_the_package_does() -> None:
    (named,) = re.findall(r'"(txn-native-transport[^"]+)"', (OPS / "docker/Dockerfile").read_text())
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["native"] == [named]

"""`txnctl acl` and the calls of the SDK below it, against a server that goes by rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator_client import (
    Acl,
    AclFilter,
    Admin,
    Misconfigured,
    PatternType,
    Permission,
    PermissionType,
    Rejected,
    ResourceType,
)
from coordinator_protocol.acls import ANONYMOUS
from tests.cli.terminal import Terminal
from tests.harness.guarded_server import SUPER_USERS
from tests.harness.server_process import ServerProcess

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Callers are not authenticated, so all are one principal, which is a superuser here."""
    data_dir = tmp_path_factory.mktemp("acl") / "data"
    with guarded(data_dir, ANONYMOUS) as server:
        yield server


def guarded(data_dir: Path, super_user: str) -> ServerProcess:
    return ServerProcess(data_dir, module="tests.harness.guarded_server", environment={SUPER_USERS: super_user})


@pytest.fixture
def ask(server: ServerProcess, txnctl: Terminal, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("TXNCTL_SERVER", server.address)
    yield txnctl
    txnctl("acl", "remove", "--every", "--yes").well()


def test_rules_are_added_listed_asked_for_and_removed(ask: Terminal) -> None:
    added = ask("acl", "add", "User:till", "write", "read", "--topic", "or", "--prefix", "-o", "json").well().document
    one = {
        "resource_type": "topic",
        "resource_name": "or",
        "pattern_type": "prefixed",
        "principal": "User:till",
        "host": "*",
        "operation": "write",
        "permission_type": "allow",
    }
    assert added == [one, one | {"operation": "read"}]
    again = ask("acl", "add", "User:till", "write", "--topic", "or", "--prefix").well()
    assert (again.stdout, again.stderr.strip()) == ("", "txnctl: nothing to add: these rules are there already")
    ask("acl", "add", "User:*", "all", "--topic", "orders", "--deny", "--host", "10.0.0.9").well()
    listed = ask("acl", "list", "--topic", "orders", "-o", "json").well().document
    assert [each["operation"] for each in listed] == ["read", "write", "all"]
    assert ask("acl", "list", "--topic", "payments", "-o", "json").well().document == []
    assert "allow" in ask("acl", "list", "--principal", "User:till").well().stdout
    may = ask("acl", "check", "User:till", "describe", "--topic", "orders")
    assert (may.status, may.lines[2].split()[:2]) == (0, ["yes", "allow"])
    assert "allow User:till write topic 'or'..." in may.stdout
    for words, why in (
        (["User:till", "delete", "--topic", "orders"], "no rule allows it"),
        (["User:till", "read", "--topic", "orders", "--host", "10.0.0.9"], "deny User:* all topic 'orders' from"),
    ):
        refused = ask("acl", "check", *words)
        assert refused.status == 1
        assert refused.lines[2].split()[0] == "no"
        assert why in refused.stdout
    assert "it is a superuser" in ask("acl", "check", ANONYMOUS, "alter", "--cluster").well().stdout
    would = ask("acl", "remove", "--principal", "User:till", "--dry-run", "-o", "json").well().document
    assert len(would) == 2
    assert len(ask("acl", "list", "-o", "json").document) == 3
    gone = ask("acl", "remove", "--principal", "User:till", "--yes", "-o", "json").well().document
    assert gone == would
    assert [each["principal"] for each in ask("acl", "list", "-o", "json").document] == ["User:*"]
    assert "no rule is like that" in ask("acl", "remove", "--principal", "User:till", "--yes").well().stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["add", "till", "read", "--topic", "t"], "'till' is no principal: write User:NAME"),
        (["add", "User:till", "read"], "name a resource: --topic, --group"),
        (["add", "User:till", "read", "--topic", "t", "--group", "g"], "name one resource"),
        (["add", "User:till", "cluster_action", "--topic", "t"], "cluster_action is no operation on a topic"),
        (["add", "User:till", "fly", "--topic", "t"], "'fly' is not one of"),
        (["add", "User:till", "read", "--topic", "*", "--prefix"], "the prefix is *"),
        (["add", "User:till", "read", "--topic", ""], "--topic is empty"),
        (["remove"], "say which rules to remove"),
        (["check", "User:till", "write", "--group", "g"], "write is no operation on a group"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(ask: Terminal, words: list[str], why: str) -> None:
    ended = ask("acl", *words)
    assert ended.status in (1, 2)
    assert why in ended.stderr
    assert ask("acl", "list", "-o", "json").document == []


def test_the_sdk_makes_rules_and_strangers_do_not(tmp_path: Path) -> None:
    with (
        guarded(tmp_path / "data", "User:root") as server,
        Admin(server.address) as admin,
    ):
        rule = Acl(
            principal=ANONYMOUS,
            resource_type=ResourceType.CLUSTER,
            resource_name="cluster",
            operation=Permission.ALTER,
        )
        for act in (
            lambda: admin.create_acls([rule]),
            lambda: admin.delete_acls([AclFilter()]),
            admin.describe_acls,
            lambda: admin.create_topic("t"),
        ):
            with pytest.raises(Misconfigured, match="AUTHORIZATION_FAILED"):
                act()
        found = admin.check_permission(ANONYMOUS, Permission.ALTER, ResourceType.CLUSTER, "cluster")
        assert (found.is_allowed, found.rule, found.is_super_user, found.is_enforced) == (False, None, False, True)


def test_the_sdk_says_what_it_did(server: ServerProcess) -> None:
    rule = Acl(
        principal="User:a",
        resource_type=ResourceType.TRANSACTIONAL_ID,
        resource_name="till-",
        operation=Permission.TWO_PHASE_COMMIT,
        permission_type=PermissionType.DENY,
        pattern_type=PatternType.PREFIXED,
        host="10.0.0.1",
    )
    with Admin(server.address) as admin:
        assert admin.create_acls([rule], dry_run=True) == [rule]
        assert admin.describe_acls() == []
        assert admin.create_acls([rule, rule]) == [rule]
        assert admin.create_acls([rule]) == []
        matching = AclFilter(
            resource_type=ResourceType.TRANSACTIONAL_ID,
            resource_name="till-7",
            matches_name=True,
            operation=Permission.TWO_PHASE_COMMIT,
            permission_type=PermissionType.DENY,
        )
        assert admin.describe_acls(matching) == [rule]
        assert admin.describe_acls(AclFilter(resource_name="till-7")) == []
        denied = admin.check_permission(
            "User:a", Permission.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, "till-7", host="10.0.0.1"
        )
        assert (denied.is_allowed, denied.rule) == (False, rule)
        with pytest.raises(Rejected, match="read is no operation on a transactional_id"):
            admin.check_permission("User:a", Permission.READ, ResourceType.TRANSACTIONAL_ID, "till-7")
        assert admin.delete_acls([matching, AclFilter(pattern_type=PatternType.LITERAL)]) == [rule]


# Files


def declare(tmp_path: Path, text: str) -> str:
    path = tmp_path / "acls.toml"
    path.write_text(text)
    return str(path)


def test_rules_go_into_a_file_and_come_back(ask: Terminal, tmp_path: Path) -> None:
    ask("acl", "add", "User:till", "write", "read", "--topic", "or", "--prefix").well()
    ask("acl", "add", "User:till", "write", "--transactional-id", "till-1", "--host", "10.0.0.7").well()
    ask("acl", "add", "User:*", "alter", "--cluster", "--deny").well()
    text = ask("acl", "export").well().stdout
    assert text.split("\n\n")[0].splitlines() == [
        *("[[acls]]", 'principal = "User:*"', 'operations = ["alter"]', "cluster = true", 'permission = "deny"')
    ]
    assert text.count("[[acls]]") == 3, "both operations on one resource are one table"
    bring = ("acl", "import", declare(tmp_path, text))
    assert "nothing to do" in ask(*bring, "--prune", "--check").well().stderr
    ask("acl", "remove", "--every", "--yes").well()
    assert ask(*bring, "--check").status == 1
    assert ask(*bring, "--yes").well().stdout.count("added") == 4
    assert ask("acl", "export").well().stdout == text
    assert ask("acl", "export", "--principal", "User:till").well().stdout.count("[[acls]]") == 2


def test_other_rules_are_removed_only_if_the_import_prunes(ask: Terminal, tmp_path: Path) -> None:
    ask("acl", "add", "User:old", "read", "--topic", "*").well()
    declared = "[[acls]]\nprincipal = 'User:new'\noperations = ['read']\ngroup = 'g'\n"
    bring = ("acl", "import", declare(tmp_path, declared))
    ask(*bring, "--yes").well()
    asked = ask(*bring, "--prune", stdin="n\n")
    assert (asked.status, asked.stdout.strip()) == (2, "")
    assert "txnctl: remove allow User:old read topic '*'\n" in asked.stderr
    (row,) = ask(*bring, "--prune", "--dry-run", "-o", "json").well().document
    assert (row["result"], row["principal"]) == ("would be removed", "User:old")
    (row,) = ask(*bring, "--prune", "--yes", "-o", "json").well().document
    assert (row["result"], row["action"]) == ("removed", "remove")
    assert [row["principal"] for row in ask("acl", "list", "-o", "json").well().document] == ["User:new"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "declares no acls: it has no table [[acls]]"),
        ("[[acls]]\nprincipal = 'User:a'\noperations = ['reed']\ntopic = 't'", "acls.0.operations.0: must be 'all'"),
        ("[[acls]]\nprincipal = 'User:a'\noperations = ['read']", "acls.0: name one resource: topic, group"),
        (
            "[[acls]]\nprincipal = 'User:a'\noperations = ['read']\ntopic = 't'\ngroup = 'g'",
            "acls.0: name one resource: topic, group",
        ),
        ("[[acls]]\nprincipal = 'a'\noperations = ['read']\ntopic = 't'", "acls.0: 'a' is no principal"),
        (
            "[[acls]]\nprincipal = 'User:a'\noperations = ['backup']\ntopic = 't'",
            "acls.0: backup is no operation on a topic",
        ),
        (
            "[[acls]]\nprinciple = 'User:a'\noperations = ['read']\ntopic = 't'",
            "acls.0.principal: is not set",
        ),
    ],
)
def test_a_wrong_file_of_rules_is_refused_with_the_place(
    txnctl: Terminal, tmp_path: Path, text: str, said: str
) -> None:
    ended = txnctl("acl", "import", declare(tmp_path, text), "--yes")
    ended.refused(2, said)
    assert len(ended.stderr.splitlines()) == 1

"""`txnctl topic export` and `import`: topics as a file declares them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator_client import Admin
from coordinator_server.exits import CommandFailed
from tests.cli.terminal import Terminal
from tests.harness.threaded_server import threaded_server
from txnctl.commands.declarations import DeclaredTopic, Placed, read_topics, topic_tables
from txnctl.commands.importing import PlanAction
from txnctl.commands.topic_import import ExistingTopic, plan_topics

# The plan

FOUND = {
    "same": ExistingTopic(partitions=2, settings={"retention_ms": "1000"}),
    "grown": ExistingTopic(partitions=1, settings={}),
    "set": ExistingTopic(partitions=1, settings={"retention_ms": "5", "batch_bytes_max": "9000"}),
    "extra": ExistingTopic(partitions=4, settings={}),
}


def declared(*topics: tuple[str, int, dict[str, str]]) -> list[Placed]:
    return [
        Placed(f"f.toml: topics.{at}", DeclaredTopic(name=name, partitions=partitions, settings=settings))
        for at, (name, partitions, settings) in enumerate(topics)
    ]


FILE = declared(
    ("new", 3, {"retention_ms": "7d"}),
    ("grown", 4, {}),
    ("same", 2, {"retention_ms": "1s"}),
    ("set", 1, {"retention_ms": "6"}),
)


def test_a_plan_adds_changes_and_leaves_alone() -> None:
    new, grown, changed = plan_topics(FILE, FOUND, is_pruning=False)
    assert (new.name, new.action, new.partitions, new.set_to) == (
        "new",
        PlanAction.ADD,
        3,
        {"retention_ms": "604800000"},
    )
    assert (grown.name, grown.action, grown.partitions_before, grown.partitions) == ("grown", PlanAction.CHANGE, 1, 4)
    assert (changed.name, changed.set_to, changed.unset) == ("set", {"retention_ms": "6"}, ["batch_bytes_max"])


def test_a_plan_removes_only_if_it_prunes() -> None:
    last = plan_topics(FILE, FOUND, is_pruning=True)[-1]
    assert (last.name, last.action, last.partitions) == ("extra", PlanAction.REMOVE, 4)


def test_partitions_are_never_removed() -> None:
    with pytest.raises(CommandFailed) as caught:
        plan_topics(declared(("extra", 3, {})), FOUND, is_pruning=False)
    assert caught.value.message.startswith("f.toml: topics.0.partitions: extra has 4 partitions, and 3 are declared")


# The file


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "declares no topics: it has no table [[topics]]"),
        ("[[topics]\n", "is no TOML: "),
        ("[topics]\nname = 'a'", "topics: write a list, with [ ] around it, or tables with [[ ]] around their name"),
        ("[[topics]]\nname = 'a'", "topics.0.partitions: is not set"),
        ("[[topics]]\nname = 'a'\npartitions = 0", "topics.0.partitions: must be at least 1"),
        ("[[topics]]\nname = 'a'\npartitions = '1'", "topics.0.partitions: write a whole number"),
        ("[[topics]]\nname = 'a b'\npartitions = 1", "topics.0.name: 'a b'"),
        ("[[topics]]\nname = 'a'\npartitions = 1\nsetting = {}", "topics.0.setting is unknown; did you mean settings?"),
        ("[[topic]]\nname = 'a'", "topic is unknown; did you mean topics?"),
        (
            "[[topics]]\nname = 'a'\npartitions = 1\n[[topics]]\nname = 'a'\npartitions = 1",
            "topics.1: a is declared twice",
        ),
        (
            "[[topics]]\nname = 'a'\npartitions = 1\nsettings = { retention_ms = 'soon' }",
            "topics.0.settings: retention_ms: 'soon' is no time span",
        ),
        (
            "[[topics]]\nname = 'a'\npartitions = 1\nsettings = { x = [1] }",
            "topics.0.settings: write text, in quotes",
        ),
    ],
)
def test_a_wrong_file_is_refused_in_one_line_with_the_place(
    txnctl: Terminal, tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "f.toml"
    path.write_text(text)
    ended = txnctl("topic", "import", str(path), "--yes")
    ended.refused(2, said)
    assert len(ended.stderr.splitlines()) == 1


def test_a_file_that_is_not_there_is_refused(txnctl: Terminal, tmp_path: Path) -> None:
    txnctl("topic", "import", str(tmp_path / "none.toml")).refused(2, "cannot be read: No such file")


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    topics = [topic for _, topic in FILE]
    path = tmp_path / "f.toml"
    path.write_text(topic_tables(topics))
    assert [topic for _, topic in read_topics(path)] == topics


# The server


@pytest.fixture
def ask(txnctl: Terminal, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    with threaded_server(default_retention_ms=86_400_000) as address:
        monkeypatch.setenv("TXNCTL_SERVER", address)
        yield txnctl


def test_topics_go_into_a_file_and_come_back(ask: Terminal, tmp_path: Path) -> None:
    ask("topic", "create", "orders", "-p", "3", "--retention-ms", "5000").well()
    ask("topic", "create", "refunds").well()
    exported = ask("topic", "export").well().stdout
    assert tomllib.loads(exported) == {
        "topics": [
            {"name": "orders", "partitions": 3, "settings": {"retention_ms": "5000"}},
            {"name": "refunds", "partitions": 1},
        ]
    }
    assert tomllib.loads(ask("topic", "export", "refunds").well().stdout)["topics"][0]["name"] == "refunds"
    ask("topic", "export", "refund").refused(1, "did you mean refunds?")
    path = tmp_path / "topics.toml"
    path.write_text(exported)
    same = ask("topic", "import", str(path), "--prune", "--check").well()
    assert (same.stdout, same.stderr) == ("", "txnctl: nothing to do: the server is as the file declares\n")


def test_an_import_shows_its_plan_asks_and_can_be_repeated(ask: Terminal, tmp_path: Path) -> None:
    for name in ("orders", "old"):
        ask("topic", "create", name, "--retention-ms", "5000").well()
    path = tmp_path / "topics.toml"
    path.write_text(
        "[[topics]]\nname = 'new'\npartitions = 2\n"
        "[[topics]]\nname = 'orders'\npartitions = 3\nsettings = { batch_bytes_max = 9000 }\n"
    )
    bring = ("topic", "import", str(path))
    before = ask("topic", "export").well().stdout
    planned = ask(*bring, "--dry-run", "-o", "json").well().document
    assert [(row["topic"], row["result"]) for row in planned] == [
        ("new", "would be added"),
        ("orders", "would be changed"),
    ]
    assert (planned[1]["set"], planned[1]["unset"]) == ({"batch_bytes_max": "9000"}, ["retention_ms"])
    assert ask(*bring, "--check").status == 1
    asked = ask(*bring, "--prune", stdin="n\n")
    assert (asked.status, asked.stdout.strip()) == (2, "")
    for line in (
        "add new: 2 partitions",
        "change orders: 1 -> 3 partitions, batch_bytes_max=9000, retention_ms as the server",
        "remove old with all its records, 1 partitions",
        "nothing was changed; say --yes to apply the plan without being asked",
    ):
        assert f"txnctl: {line}\n" in asked.stderr
    assert ask("topic", "export").well().stdout == before
    done = ask(*bring, "--yes").well()
    assert [line.split()[:2] for line in done.lines[-2:]] == [["new", "added"], ["orders", "changed"]]
    assert "nothing to do" in ask(*bring, "--yes").well().stderr
    (removed,) = ask(*bring, "--prune", "--yes", "-o", "json").well().document
    assert (removed["topic"], removed["result"]) == ("old", "removed")
    assert "nothing to do" in ask(*bring, "--prune", "--check").well().stderr


def test_what_the_server_refuses_changes_nothing_and_is_named_with_its_place(ask: Terminal, tmp_path: Path) -> None:
    path = tmp_path / "topics.toml"
    path.write_text(
        "[[topics]]\nname = 'good'\npartitions = 1\n"
        "[[topics]]\nname = 'bad'\npartitions = 1\nsettings = { retentions_ms = '5' }\n"
    )
    ended = ask("topic", "import", str(path), "--yes")
    ended.refused(1, "did you mean retention_ms?", "topics.1")
    assert len(ended.stderr.splitlines()) == 1
    assert ask("topic", "export").well().stdout == ""


def test_settings_of_all_topics_come_in_one_answer() -> None:
    with threaded_server() as address, Admin(address) as admin:
        admin.create_topic("a", 1, config={"retention_ms": "5"})
        admin.create_topic("b", 1)
        found = admin.configs_of_topics()
        assert found == {name: admin.topic_configs(name) for name in ("a", "b")}

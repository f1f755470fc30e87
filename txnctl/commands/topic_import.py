"""`txnctl topic export` and `topic import`: the topics of a server as a file, and a server as a file declares it.

The plan is computed from the file and the server, and the server checks all of it before the first change. A second
import of the same file finds nothing to do. So an import that failed halfway can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final

import typer

from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.commands.importing import (
    Check,
    ImportFile,
    PlanAction,
    Prune,
    make_sure_of_plan,
    print_plan,
    result_of,
)
from txnctl.commands.late import remote, sdk
from txnctl.commands.options import (
    DEFAULT_PATIENCE_MS,
    DEFAULT_SERVER,
    DryRun,
    Output,
    Patience,
    Server,
    Yes,
)
from txnctl.output import NOTHING, Column, OutputFormat, Row, write

if TYPE_CHECKING:
    from txnctl.commands.declarations import DeclaredTopic, Placed


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingTopic:
    """A topic of the server, with the settings that were set for it."""

    partitions: int
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTopic:
    """Change of one topic."""

    name: str
    action: PlanAction
    partitions: int
    """Partitions afterwards; of a removed topic, those that it has."""
    partitions_before: int | None = None
    set_to: Mapping[str, str] = field(default_factory=dict)
    unset: Sequence[str] = ()
    place: str = ""
    """Place in the file; empty for a removed topic."""

    def row(self, result: str) -> Row:
        """Return the change as a row."""
        return {
            "topic": self.name,
            "action": self.action,
            "result": result,
            "partitions": self.partitions,
            "partitions_before": self.partitions_before,
            "set": dict(self.set_to),
            "unset": list(self.unset),
        }


def plan_topics(
    declared: Sequence[Placed], found: Mapping[str, ExistingTopic], *, is_pruning: bool
) -> list[PlannedTopic]:
    """Return the changes that make a server what a file declares: additions, changes, removals.

    Raises CommandFailed if a topic has more partitions than declared, because partitions are never removed."""
    added, changed = [], []
    for place, topic in declared:
        known = found.get(topic.name)
        if known is None:
            added.append(_addition(place, topic))
        elif (change := _change(place, topic, known)) is not None:
            changed.append(change)
    names = {topic.name for _, topic in declared}
    removed = [
        PlannedTopic(name=name, action=PlanAction.REMOVE, partitions=each.partitions, partitions_before=each.partitions)
        for name, each in sorted(found.items())
        if is_pruning and name not in names
    ]
    return [*added, *changed, *removed]


def _addition(place: str, topic: DeclaredTopic) -> PlannedTopic:
    return PlannedTopic(
        name=topic.name, action=PlanAction.ADD, partitions=topic.partitions, set_to=topic.settings, place=place
    )


def _change(place: str, topic: DeclaredTopic, known: ExistingTopic) -> PlannedTopic | None:
    if topic.partitions < known.partitions:
        raise CommandFailed(
            ExitStatus.PROBLEM,
            f"{place}.partitions: {topic.name} has {known.partitions} partitions, and {topic.partitions} are declared:"
            " partitions are never removed",
        )
    set_to = {name: value for name, value in topic.settings.items() if known.settings.get(name) != value}
    unset = sorted(known.settings.keys() - topic.settings.keys())
    if topic.partitions == known.partitions and not set_to and not unset:
        return None
    return PlannedTopic(
        name=topic.name,
        action=PlanAction.CHANGE,
        partitions=topic.partitions,
        partitions_before=known.partitions,
        set_to=set_to,
        unset=unset,
        place=place,
    )


def export_topics(
    names: Annotated[list[str] | None, typer.Argument(metavar="TOPIC", help="Only these topics.")] = None,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
) -> None:
    """Print topics with their own settings as TOML, for import."""
    from txnctl.commands.declarations import DeclaredTopic, topic_tables

    with remote.connected(server) as connection, sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
        for name in names or ():
            remote.topic_there(connection, name, timeout_ms)
        found = _found(admin, names or ())
    declared = (
        # These settings are valid, as the server has them.
        DeclaredTopic.model_construct(name=name, partitions=each.partitions, settings=dict(each.settings))
        for name, each in sorted(found.items())
    )
    write(topic_tables(declared))


def import_topics(
    path: ImportFile,
    prune: Prune = False,
    check: Check = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Create and change topics as a file declares them.

    Shows the plan, asks, and does it. Settings that the file does not name return to the server's. Topics that it does
    not name stay, unless --prune is given. It can be repeated: what is as declared is left alone."""
    from txnctl.commands.declarations import read_topics

    declared = read_topics(path)
    with remote.connected(server) as connection, sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
        planned = plan_topics(declared, _found(admin), is_pruning=prune)
        for each in planned:
            with _placed(each):
                _apply(admin, each, is_trial=True)
        is_trial = dry_run or check
        if planned and not is_trial and not yes:
            make_sure_of_plan(map(_words, planned))
        for each in [] if is_trial else planned:
            with _placed(each):
                _apply(admin, each, is_trial=False)
    rows = [each.row(result_of(each.action, is_trial=is_trial)) for each in planned]
    print_plan([*map(_with_words, rows)] if output is OutputFormat.TABLE else rows, _COLUMNS, output, check=check)


def _found(admin: sdk.Admin, names: Sequence[str] = ()) -> dict[str, ExistingTopic]:
    configs = admin.configs_of_topics(names)
    return {
        topic.name: ExistingTopic(
            partitions=len(topic.partitions),
            settings={
                name: each.value for name, each in configs.get(topic.name, {}).items() if each.origin == _TOPIC_ORIGIN
            },
        )
        for topic in admin.describe_topics(names)
    }


def _apply(admin: sdk.Admin, planned: PlannedTopic, *, is_trial: bool) -> None:
    """Make a change, or only let the server check that it can be made."""
    name, settings = planned.name, planned.set_to
    if planned.action is PlanAction.ADD:
        create = admin.would_create_topic if is_trial else admin.create_topic
        create(name, planned.partitions, config=settings)
    elif planned.action is PlanAction.CHANGE:
        if planned.partitions != planned.partitions_before:
            admin.add_partitions(name, planned.partitions, validate_only=is_trial)
        if settings or planned.unset:
            admin.alter_topic_configs(name, settings, unset=planned.unset, validate_only=is_trial)
    elif not is_trial:
        admin.delete_topic(name)


@contextmanager
def _placed(planned: PlannedTopic) -> Iterator[None]:
    """Name the place in the file in errors of the server."""
    try:
        yield
    except sdk.TransactionError as error:
        if planned.place:
            error.add_note(planned.place)
        raise


def _words(planned: PlannedTopic) -> str:
    row = planned.row("")
    if planned.action is PlanAction.REMOVE:
        return f"remove {planned.name} with all its records, {planned.partitions} partitions"
    settings = _setting_words(row)
    return f"{planned.action} {planned.name}: {_partition_words(row)} partitions" + (
        "" if settings == NOTHING else f", {settings}"
    )


def _partition_words(row: Row) -> str:
    before, after = row["partitions_before"], row["partitions"]
    return str(after) if before in (None, after) else f"{before} -> {after}"


def _setting_words(row: Row) -> str:
    set_to, unset = row["set"], row["unset"]
    assert isinstance(set_to, dict)
    assert isinstance(unset, list)
    named = [f"{name}={value}" for name, value in set_to.items()]
    return ", ".join([*named, *(f"{name} as the server" for name in unset)]) or NOTHING


def _with_words(row: Row) -> Row:
    """Return a row with the two cells that are made of several fields."""
    return {**row, "partition_words": _partition_words(row), "setting_words": _setting_words(row)}


_TOPIC_ORIGIN: Final = "topic"
_COLUMNS: Final = (
    Column("TOPIC", "topic"),
    Column("RESULT", "result"),
    Column("PARTITIONS", "partition_words", is_number=True),
    Column("SETTINGS", "setting_words"),
)

"""`txnctl explain`: why committed readers of a partition or a topic see no more."""

from __future__ import annotations

import re
from typing import Annotated, Final

import typer

from coordinator_protocol.errors import ErrorCode
from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.commands.explain_topic import explain_topic
from txnctl.commands.explained_partition import print_explained
from txnctl.commands.late import remote, sdk
from txnctl.commands.options import (
    DEFAULT_PATIENCE_MS,
    DEFAULT_SERVER,
    Output,
    PartitionPlace,
    Patience,
    Server,
    parse_partition,
)
from txnctl.commands.watching import watched
from txnctl.output import (
    OutputFormat,
)

_STEPS: Final = 20

_PARTITION: Final = re.compile(r".+-[0-9]+")
"""Names of partitions, and of topics that end like one."""


@watched
def explain(
    name: Annotated[str, typer.Argument(metavar="TOPIC[-PARTITION]", help="A topic, or a partition as in orders-0.")],
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Explain why committed readers do not advance.

    For a partition: the blocking transaction, its owner, and the next event. For a topic: also the partitions that are
    not served, sizes and retention, and the command to run next."""
    with remote.connected(server) as connection:
        explained = _ask(connection, parse_partition(name), timeout_ms) if _PARTITION.fullmatch(name) else name
        if isinstance(explained, str):
            explain_topic(connection, explained, timeout_ms, output)
            return
    print_explained(explained, output)


def _ask(connection: sdk.Connection, place: PartitionPlace, timeout_ms: int) -> sdk.PartitionExplanation | str:
    """Return the explanation of a partition. A topic whose name ends in a dash and a number is returned by its name."""
    with sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
        try:
            return admin.explain_partition(*place, history_limit=_STEPS)
        except sdk.Rejected as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            if admin.list_partitions([str(place)], limit=1).partitions:
                return str(place)
            topic = remote.topic_there(connection, place.topic, timeout_ms)
            raise CommandFailed(
                ExitStatus.PROBLEM,
                f"{place.topic} has the partitions 0 to {len(topic.partitions) - 1}, and {place.partition} was asked"
                " for",
            ) from error

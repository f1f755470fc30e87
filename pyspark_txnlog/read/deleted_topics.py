"""Topics of a read that still exist.

Topics are known by their ids: a topic that was deleted and created again under its name is a different topic.

A topic may be deleted between any two requests, so a request with its id is refused. The caller then finds the topics
that are left and asks again without the others. `failOnDataLoss` decides what that means for the read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from coordinator_client.admin.admin import Admin, TopicDescription
from coordinator_client.errors import TOPIC_GONE, TransactionError
from coordinator_client.transport.connection import Connection
from pyspark_txnlog.options import SourceOptions


class OfTopic(Protocol):
    """Anything that belongs to one partition."""

    @property
    def topic(self) -> str:
        """Name of the topic."""
        ...

    @property
    def topic_id(self) -> bytes:
        """Id of the topic."""
        ...


_Found = TypeVar("_Found", bound=OfTopic)


def existing_topics(connection: Connection, options: SourceOptions, names: Sequence[str]) -> list[TopicDescription]:
    """Return those of the topics that exist, in this order. Takes one call, and a second one if a topic is missing.

    Raises: TransactionError if the server refuses or stays out of reach.
    """
    admin = Admin(connection, deadline_ms=options.rpc_timeout_ms)
    try:
        return admin.describe_topics(names) if names else []
    except TransactionError as error:
        if error.code not in TOPIC_GONE:
            raise
    there = {topic.name: topic for topic in admin.describe_topics()}
    return [there[name] for name in names if name in there]


def existing(connection: Connection, options: SourceOptions, found: Sequence[_Found]) -> list[_Found]:
    """Return the items whose topics exist, compared by id. Raises the errors of `existing_topics`."""
    names = tuple(dict.fromkeys(each.topic for each in found))
    ids = {topic.name: topic.topic_id for topic in existing_topics(connection, options, names)}
    return [each for each in found if ids.get(each.topic) == each.topic_id]


def without_deleted(
    connection: Connection, options: SourceOptions, found: Sequence[_Found], error: TransactionError
) -> list[_Found]:
    """Return the items left after a request about `found` failed because a topic was deleted; never all of them.

    Raises the given error if it has another cause, and the errors of `existing_topics`.
    """
    if error.code not in TOPIC_GONE:
        raise error
    left = existing(connection, options, found)
    if len(left) == len(found):
        raise error
    return left

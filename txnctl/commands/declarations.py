"""Files that declare topics and access rules, as `topic export` and `acl export` write them and `import` reads them.

[[topics]]
name = "orders"
partitions = 2
settings = { retention_ms = "7d" }

[[acls]]
principal = "User:till"
operations = ["read", "write"]
topic = "orders"
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Final, NamedTuple, TypeVar

import typer
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
    ValidationError,
)

from coordinator_protocol.acls import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    PatternType,
    Permission,
    PermissionType,
    ResourceType,
    check_acl,
)
from coordinator_protocol.errors import Refused
from coordinator_protocol.names import check_topic_name
from coordinator_server.exits import CommandFailed, ExitStatus
from coordinator_server.validation import first_problem
from txnctl.commands.options import parse_duration_ms

_TABLES: Final = ("topics", "acls")
_NAMES: Final = (
    *_TABLES,
    *("name", "partitions", "settings"),
    *("principal", "operations", "topic", "group", "transactional_id", "cluster", "prefix", "permission", "host"),
)
"""Names that may be in a file."""

_STRICT: Final = ConfigDict(extra="forbid", frozen=True)

ItemT = TypeVar("ItemT")


def _topic_name(name: str) -> str:
    try:
        check_topic_name(name)
    except Refused as refusal:
        raise ValueError(refusal.message) from None
    return name


def _setting_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _plain_spans(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings whose time spans, such as 7d, are milliseconds. Raises ValueError."""
    return {name: _milliseconds(name, value) for name, value in settings.items()}


def _milliseconds(name: str, value: str) -> str:
    if not name.endswith("_ms") or not value[-1:].isalpha():
        return value
    try:
        return str(parse_duration_ms(value))
    except typer.BadParameter as why:
        raise ValueError(f"{name}: {why.message}, or milliseconds") from None


_Settings = Annotated[dict[str, Annotated[StrictStr, BeforeValidator(_setting_text)]], AfterValidator(_plain_spans)]


class DeclaredTopic(BaseModel):
    """A topic as a file declares it. Settings that it does not name follow the server's."""

    model_config = _STRICT

    name: Annotated[StrictStr, AfterValidator(_topic_name)]
    partitions: Annotated[StrictInt, Field(ge=1)]
    settings: _Settings = {}


class DeclaredAcl(BaseModel):
    """Rules of one principal on one resource, as a file declares them."""

    model_config = _STRICT

    principal: StrictStr
    operations: Annotated[list[Permission], Field(min_length=1)]
    topic: StrictStr | None = None
    group: StrictStr | None = None
    transactional_id: StrictStr | None = None
    cluster: bool = False
    prefix: bool = False
    permission: PermissionType = PermissionType.ALLOW
    host: StrictStr = WILDCARD

    def rules(self) -> list[Acl]:
        """Return a rule for each operation. Raises Refused for a rule that can have no effect, and ValueError unless
        one resource is named."""
        named = {
            ResourceType.TOPIC: self.topic,
            ResourceType.GROUP: self.group,
            ResourceType.TRANSACTIONAL_ID: self.transactional_id,
            ResourceType.CLUSTER: CLUSTER_NAME if self.cluster else None,
        }
        resources = [(kind, name) for kind, name in named.items() if name is not None]
        if len(resources) != 1:
            raise ValueError("name one resource: topic, group, transactional_id, or cluster = true")
        ((resource_type, name),) = resources
        rules = [
            Acl(
                principal=self.principal,
                resource_type=resource_type,
                resource_name=name,
                operation=operation,
                permission_type=self.permission,
                pattern_type=PatternType.PREFIXED if self.prefix else PatternType.LITERAL,
                host=self.host,
            )
            for operation in self.operations
        ]
        for rule in rules:
            check_acl(rule)
        return rules


class _DeclarationFile(BaseModel):
    model_config = _STRICT

    topics: list[DeclaredTopic] = []
    acls: list[DeclaredAcl] = []


class Placed(NamedTuple):
    """A declared topic and its place in the file."""

    place: str
    topic: DeclaredTopic


def read_topics(path: Path) -> list[Placed]:
    """Return the topics of a file. Raises CommandFailed for a file that cannot be read, with the place of its first
    defect, and for one without topics."""
    found = [Placed(f"{path}: topics.{at}", topic) for at, topic in enumerate(_read(path).topics)]
    names: set[str] = set()
    for place, topic in _some(path, found, "topics"):
        if topic.name in names:
            raise CommandFailed(ExitStatus.USAGE, f"{place}: {topic.name} is declared twice; leave one of them out")
        names.add(topic.name)
    return found


def read_acls(path: Path) -> list[Acl]:
    """Return the rules of a file, each once. Raises CommandFailed as `read_topics`."""
    rules: dict[Acl, None] = {}
    for at, declared in enumerate(_some(path, _read(path).acls, "acls")):
        try:
            rules.update(dict.fromkeys(declared.rules()))
        except (Refused, ValueError) as error:
            why = error.message if isinstance(error, Refused) else error
            raise CommandFailed(ExitStatus.USAGE, f"{path}: acls.{at}: {why}") from error
    return list(rules)


def _some(path: Path, items: Sequence[ItemT], name: str) -> Sequence[ItemT]:
    if not items:
        raise CommandFailed(ExitStatus.USAGE, f"{path} declares no {name}: it has no table [[{name}]]")
    return items


def _read(path: Path) -> _DeclarationFile:
    try:
        return _DeclarationFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise CommandFailed(ExitStatus.USAGE, f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CommandFailed(ExitStatus.USAGE, f"{path} is no TOML: {error}") from error
    except ValidationError as error:
        known = _TABLES if len(error.errors()[0]["loc"]) == 1 else _NAMES
        raise CommandFailed(ExitStatus.USAGE, f"{path}: {first_problem(error, known)}") from error


def topic_tables(topics: Iterable[DeclaredTopic]) -> str:
    """Return topics as tables of a file."""
    return "\n".join(map(_topic_table, topics))


def _topic_table(topic: DeclaredTopic) -> str:
    lines = ["[[topics]]", f"name = {_text(topic.name)}", f"partitions = {topic.partitions}"]
    if topic.settings:
        settings = ", ".join(f"{name} = {_text(value)}" for name, value in sorted(topic.settings.items()))
        lines.append(f"settings = {{ {settings} }}")
    return _lines(lines)


def acl_tables(acls: Iterable[Acl]) -> str:
    """Return rules as tables of a file, one for all operations of a principal on a resource."""
    ordered = sorted(acls, key=lambda acl: (*_table_key(acl), acl.operation))
    return "\n".join(_lines(_acl_table([*found])) for _, found in groupby(ordered, _table_key))


def _table_key(acl: Acl) -> tuple[str, ...]:
    """Return all that the rules of a table have in common."""
    return (acl.principal, acl.resource_type, acl.resource_name, acl.pattern_type, acl.permission_type, acl.host)


def _acl_table(rules: Sequence[Acl]) -> Iterator[str]:
    first = rules[0]
    yield "[[acls]]"
    yield f"principal = {_text(first.principal)}"
    yield f"operations = [{', '.join(_text(rule.operation) for rule in rules)}]"
    if first.resource_type is ResourceType.CLUSTER:
        yield "cluster = true"
    else:
        yield f"{first.resource_type} = {_text(first.resource_name)}"
    if first.pattern_type is PatternType.PREFIXED:
        yield "prefix = true"
    if first.permission_type is not PermissionType.ALLOW:
        yield f"permission = {_text(first.permission_type)}"
    if first.host != WILDCARD:
        yield f"host = {_text(first.host)}"


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _text(value: str) -> str:
    # JSON's escapes are TOML's, but TOML wants this one too.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

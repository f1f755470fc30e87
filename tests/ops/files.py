"""The files of ops/ as the tests read them: as text, so that nothing but the standard library is needed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.docs.fences import ROOT

OPS: Final = ROOT / "ops"
ALERT_RULES: Final = OPS / "prometheus/alert.rules.yml"
RECORDING_RULES: Final = OPS / "prometheus/recording.rules.yml"
RULE_TESTS: Final = OPS / "prometheus/alert.rules_test.yml"
DASHBOARD: Final = OPS / "grafana/dashboard.json"
RUNBOOKS: Final = OPS / "runbooks"
UNIT: Final = OPS / "systemd/txn-coordinator.service"

ALERTS: Final = tuple(dict.fromkeys(re.findall(r"- alert: (\w+)", ALERT_RULES.read_text())))
RECORDED: Final = frozenset(re.findall(r"- record: (\S+)", RECORDING_RULES.read_text()))
_FENCE: Final = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)(?: (?P<world>\w+))?\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """Commands of a document, and where they can be run: in the world of that name, or not here (language bash)."""

    document: str
    line: int
    language: str
    world: str
    commands: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


def blocks(document: str) -> Iterator[Block]:
    """All fenced blocks of a document of ops/."""
    text = (OPS / document).read_text()
    for found in _FENCE.finditer(text):
        lines = tuple(line.strip() for line in found["text"].splitlines() if line.strip())
        line = text.count("\n", 0, found.start()) + 1
        yield Block(document, line, found["language"], found["world"] or "", lines)


def documents() -> list[str]:
    """Everything in ops/ that a person reads."""
    return [path.relative_to(OPS).as_posix() for path in sorted(OPS.rglob("*.md"))]


def dashboard_queries() -> list[str]:
    """Every query of the dashboard, and what its variables ask."""

    def walk(node: object) -> Iterator[str]:
        match node:
            case dict():
                for key, value in node.items():
                    if key in {"expr", "query"} and isinstance(value, str):
                        yield value
                    else:
                        yield from walk(value)
            case list():
                for value in node:
                    yield from walk(value)

    return list(walk(json.loads(DASHBOARD.read_text())))

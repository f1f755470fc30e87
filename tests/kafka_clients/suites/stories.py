"""A story of ours for each client library: transactions, groups, offsets in transactions, fencing."""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path
from typing import Final

from tests.kafka_clients.cache import TOOLCHAINS, Cache, build_step, program
from tests.kafka_clients.results import Case
from tests.kafka_clients.suite import Place, Suite, story_cases

_PROGRAMS: Final = Path(__file__).parent.parent / "programs"
_REQUIREMENTS: Final = TOOLCHAINS / "python" / "requirements.txt"
_NODE: Final = TOOLCHAINS / "node"
_GO: Final = TOOLCHAINS / "go"
_STORY_S_MAX: Final = 300


def python(cache: Cache) -> Path:
    """Return a Python with the client libraries. Raises: CannotRunError."""

    def build(target: Path) -> None:
        build_step([sys.executable, "-m", "venv", target / "venv"])
        pip: list[str | Path] = [target / "venv" / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-input"]
        build_step([*pip, "-r", _REQUIREMENTS])

    return cache.once("python", [_REQUIREMENTS], build) / "venv" / "bin" / "python"


def node_modules(cache: Cache) -> Path:
    def build(target: Path) -> None:
        (target / "package.json").write_bytes((_NODE / "package.json").read_bytes())
        build_step([program("npm"), "install", "--no-audit", "--no-fund", "--ignore-scripts"], target)

    return cache.once("node", [_NODE], build) / "node_modules"


def _go_story(place: Place) -> list[Case]:
    def build(target: Path) -> None:
        build_step([program("go"), "build", "-o", target / "sarama_story", "."], _GO)

    command: list[str | Path] = [place.cache.once("go", [_GO], build) / "sarama_story", place.address]
    return story_cases(place.run(command, timeout_s=_STORY_S_MAX))


def _python_story(script: str, place: Place) -> list[Case]:
    command: list[str | Path] = [python(place.cache), _PROGRAMS / script, place.address]
    return story_cases(place.run(command, timeout_s=_STORY_S_MAX))


def _node_story(script: str, place: Place) -> list[Case]:
    environment = {"NODE_PATH": str(node_modules(place.cache))}
    command: list[str | Path] = [program("node"), _PROGRAMS / script, place.address]
    return story_cases(place.run(command, timeout_s=_STORY_S_MAX, environment=environment))


def _pinned(package: str) -> str:
    (version,) = re.findall(rf"^{package}==(\S+)$", _REQUIREMENTS.read_text(), re.MULTILINE)
    return str(version)


def npm_pinned(package: str) -> str:
    (version,) = re.findall(rf'"{package}": "(\S+)"', (_NODE / "package.json").read_text())
    return str(version)


def _go_pinned(module: str) -> str:
    (version,) = re.findall(rf"^require {module} v(\S+)$", (_GO / "go.mod").read_text(), re.MULTILINE)
    return str(version)


SUITES: Final = (
    Suite(
        "confluent-kafka",
        "confluent-kafka (librdkafka)",
        _pinned("confluent-kafka"),
        "story of ours: transactions, groups, offsets in transactions, fencing, consumer protocol, share groups",
        partial(_python_story, "confluent_story.py"),
    ),
    Suite(
        "kafka-python",
        "kafka-python",
        _pinned("kafka-python"),
        "story of ours: transactions, groups, offsets in transactions",
        partial(_python_story, "kafka_python_story.py"),
    ),
    Suite(
        "aiokafka",
        "aiokafka",
        _pinned("aiokafka"),
        "story of ours: transactions, groups, offsets in transactions",
        partial(_python_story, "aiokafka_story.py"),
    ),
    Suite(
        "kafkajs",
        "kafkajs",
        npm_pinned("kafkajs"),
        "story of ours: transactions, groups, offsets in transactions",
        partial(_node_story, "kafkajs_story.js"),
    ),
    Suite(
        "sarama",
        "sarama",
        _go_pinned("github.com/IBM/sarama"),
        "story of ours: transactions, groups, offsets in transactions, fencing",
        _go_story,
    ),
)

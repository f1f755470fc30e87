"""Refuses unused code: `python -m scripts.dead_code`, part of `make check`.

vulture looks for names that are defined and never used, with the settings in pyproject.toml. It does not read the
tests: code that only tests use counts as dead. Two kinds of names come from the .proto files and never count as dead.
The dispatcher looks up RPCs by name, and fields are set for the readers of a message. The codecs of Kafka's messages
are generated: they may use names, and none of theirs counts as dead. The templates of the page use values by name.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Final

from vulture import Vulture

from coordinator_api.v1 import admin_pb2, common_pb2, group_pb2, log_pb2, session_pb2, share_pb2, transaction_pb2
from scripts.tree_files import KAFKA_MESSAGES

ROOT: Final = Path(__file__).resolve().parent.parent
_FILES: Final = tuple(
    module.DESCRIPTOR for module in (admin_pb2, common_pb2, group_pb2, log_pb2, share_pb2, session_pb2, transaction_pb2)
)
_NAMES_OF_MESSAGES: Final = {
    "method": {
        method.name for file in _FILES for service in file.services_by_name.values() for method in service.methods
    },
    "attribute": {
        field.name for file in _FILES for message in file.message_types_by_name.values() for field in message.fields
    },
}
_OF_PAGE: Final = ROOT / "txnctl/page"
_NAMES_IN_TEMPLATES: Final = frozenset(
    name
    for template in (_OF_PAGE / "templates").glob("*.html")
    for block in re.findall(r"{[{%].*?[%}]}", template.read_text(), re.DOTALL)
    for name in re.findall(r"\w+", block)
)


def main() -> int:
    """Print dead code. Returns 1 if there is any."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["vulture"]
    found = dead_code(
        settings["paths"],
        ignore_names=settings["ignore_names"],
        ignore_decorators=settings["ignore_decorators"],
        confidence_min=settings["min_confidence"],
    )
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    return int(bool(found))


def dead_code(
    paths: list[str], *, ignore_names: list[str], ignore_decorators: list[str], confidence_min: int
) -> list[str]:
    """Return the dead code below these paths, one line each."""
    finder = Vulture(ignore_names=ignore_names, ignore_decorators=ignore_decorators)
    finder.scavenge([ROOT / path for path in paths])
    return [
        item.get_report()
        for item in finder.get_unused_code(min_confidence=confidence_min)
        if not item.filename.is_relative_to(ROOT / KAFKA_MESSAGES)
        and item.name not in _NAMES_OF_MESSAGES.get(item.typ, ())
        and not (item.filename.is_relative_to(_OF_PAGE) and item.name in _NAMES_IN_TEMPLATES)
    ]


if __name__ == "__main__":
    sys.exit(main())

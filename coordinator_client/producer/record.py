"""Checks of the parts of a record that an application sends."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import Final

from coordinator_client.errors import rejected
from coordinator_client.values import Headers
from coordinator_protocol.errors import ErrorCode

_PAIR: Final = 2

_ENCODED: Final = {
    str: "encode it first, as in text.encode()",
    bytearray | memoryview: "copy it, as in bytes(view)",
    # A datetime is a date, too.
    datetime.date | datetime.time: "encode it first, as in moment.isoformat().encode()",
    dict | list | tuple: "encode it first, as in json.dumps(value).encode()",
    int | float: "encode it first, as in str(number).encode()",
}
"""Advice by the type of a value that is no bytes."""


def checked_headers(headers: Iterable[tuple[str, bytes | None]]) -> Headers:
    """Return the headers of a record. Raises: TypeError or Rejected for wrong ones."""
    if isinstance(headers, Mapping | str | bytes):
        raise TypeError(
            f"headers must be pairs, as in [('name', b'content')], not {type(headers).__name__}; names may repeat. "
            "Of a dict write list(headers.items())"
        )
    checked = tuple(headers)
    for pair in checked:
        if not isinstance(pair, tuple | list) or len(pair) != _PAIR:
            raise TypeError(f"a header must be a pair, as in ('name', b'content'), not {pair!r}")
        name, content = pair
        if not isinstance(name, str):
            raise TypeError(f"the name of a header must be str, not {type(name).__name__}")
        if not name.isascii() and not name.isprintable():
            _check_unicode(name)
        if content is not None and type(content) is not bytes:
            raise not_bytes(f"the content of the header {name!r}", content)
    return checked


def _check_unicode(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise rejected(
            ErrorCode.INVALID_RECORD, f"the name of a header {name!a} is not valid Unicode: half a character"
        ) from None


def not_bytes(what: str, found: object) -> TypeError:
    """Return the error for a part of a record that is no bytes, with advice."""
    kind = type(found)
    advice = next((advice for known, advice in _ENCODED.items() if isinstance(found, known)), "encode it first")
    return TypeError(f"{what} must be bytes or None, not {kind.__name__}; {advice}")

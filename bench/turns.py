"""Measures the longest turn of the server's loop, by the request of a session or a call: `python -m bench.turns`.

    python -m bench.turns                          every shape: ten minutes
    python -m bench.turns --only 'call: Produce'   those whose names match this
    python -m bench.turns --product ../before      the same of another working tree

The server runs in this process, without a network. While it serves one request, another callback runs in every turn of
the loop and records the longest one. All other callers wait that long. A *call* has as many parts as one request may
have. A *message* is one of a session, as large as it may be: many calls, or parts. The elements of lists are empty, or
the smallest of their kind that name something. A turn is measured in the processor time of the loop's thread, which
other processes hardly lengthen. The lowest of the rounds counts.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import re
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.inside import HERE, Inside, run_inside, use_product

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

_TOPIC: Final = "t"
_PARTITIONS: Final = 1_000
_PARTS_MAX: Final = 29_900
"""Number of elements in a single call: a few less than `REQUEST_PARTS_MAX` of the server."""
_MESSAGE_PARTS: Final = 15_000
"""Number of elements in each call of a message."""
_MESSAGE_BYTES: Final = 1_048_000
_CALLS_MAX: Final = 4_096
_CALL_BYTES: Final = 64
"""Bytes of a call in a message besides its body, at most."""
_ANSWERED_S: Final = 300
_ROUNDS: Final = 2
_SMALL: Final = ("Transact", "EndTxn", "Produce", "InitProducerId", "JoinGroup", "OffsetCommit", "Fetch")
_LEFT_OUT: Final = ("CreateBackup", "LoadShard", "UnloadShard")

Call = tuple[str, bytes]


def main(arguments: Sequence[str] = ()) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.turns", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--product", type=Path, default=HERE, metavar="DIR", help="another working tree")
    parser.add_argument("--only", default="", help="shapes whose names match this expression")
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help="of each shape (default: %(default)s)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the server")
    asked = parser.parse_args(arguments)
    # The product is chosen in a process that has imported nothing of it.
    program = "import sys; from bench.turns import live; live(*sys.argv[1:])"
    told = [asked.only, str(asked.rounds), str(asked.product.resolve()), *asked.set]
    command = [sys.executable, "-u", "-c", program, *told]
    print("| what is sent | bytes | calls | longest turn | until all is answered |\n| --- | --- | --- | --- | --- |")
    return subprocess.run(command, cwd=HERE, check=False).returncode


def live(only: str, rounds: str, product: str, *settings: str) -> None:
    """Run the server, and print the rows."""
    use_product(Path(product))

    async def story(inside: Inside) -> None:
        await _create_topic(inside)
        for name, calls, is_message in _shapes():
            if re.search(only, name):
                await _print_row(inside, name, calls, int(rounds), is_message=is_message)

    run_inside(story, **dict(each.split("=", 1) for each in settings))


async def _create_topic(inside: Inside) -> None:
    from coordinator_api.v1 import log_pb2 as log

    topic = log.NewTopic(name=_TOPIC, partition_count=_PARTITIONS)
    await inside.ask("CreateTopics", log.CreateTopicsRequest(topics=[topic]).SerializeToString())


async def _print_row(inside: Inside, name: str, calls: list[Call], rounds: int, *, is_message: bool) -> None:
    longest_s, whole_s = [], []
    for _ in range(rounds):
        begun = time.perf_counter()
        longest_s.append(await longest_turn_s(lambda: _begin(inside, calls, is_message=is_message)))
        whole_s.append(time.perf_counter() - begun)
    size = sum(len(body) for _method, body in calls)
    times = f"{1_000 * min(longest_s):,.0f} ms | {1_000 * min(whole_s):,.0f} ms"
    print(f"| {name} | {size:,} | {len(calls):,} | {times} |", flush=True)


def _begin(inside: Inside, calls: list[Call], *, is_message: bool) -> Sequence[Awaitable[bytes]]:
    return inside.message(calls) if is_message else [inside.call(*each) for each in calls]


async def longest_turn_s(begin: Callable[[], Sequence[Awaitable[object]]]) -> float:
    """Begin calls, and return the longest time between two turns of the loop until they are answered (s)."""
    gc.collect()
    gc.disable()
    loop, longest_s = asyncio.get_running_loop(), 0.0
    last, is_over = time.thread_time(), False

    def look() -> None:
        nonlocal last, longest_s
        now = time.thread_time()
        # A list of millions of turns would be copied now and then, in a turn that is longer for it.
        longest_s = max(longest_s, now - last)
        last = now
        if not is_over:
            loop.call_soon(look)

    loop.call_soon(look)
    await asyncio.sleep(0)
    answers = begin()
    with suppress(TimeoutError):
        async with asyncio.timeout(_ANSWERED_S):
            await asyncio.gather(*(_answered(each) for each in answers), return_exceptions=True)
    is_over = True
    await asyncio.sleep(0)
    gc.enable()
    return longest_s


async def _answered(reply: Awaitable[object]) -> object:
    return await reply


def _shapes() -> Iterator[tuple[str, list[Call], bool]]:
    """Yield name, calls, and True if they are one message of a session."""
    requests = _requests()
    for method in _SMALL:
        yield f"message: smallest calls of {method}", [(method, b"")] * _CALLS_MAX, True
    yield "message: calls of no method", [("", b"")] * _CALLS_MAX, True
    yield "message: malformed small calls", [("Produce", b"\xff")] * _CALLS_MAX, True
    for method, kind in requests.items():
        for path in _lists(kind):
            for style, fill in (("empty", False), ("named", True)):
                name = f"{method}.{'.'.join(path)}, {style}"
                body = _body(kind, path, _PARTS_MAX, fill=fill)
                if body is None:
                    continue
                yield f"call: {name}", [(method, body)], False
                body = _body(kind, path, _MESSAGE_PARTS, fill=fill)
                assert body is not None, "fewer parts fit too"
                number = max(1, _MESSAGE_BYTES // (len(body) + _CALL_BYTES))
                if len(body) * number <= _MESSAGE_BYTES:
                    yield f"message: {name}", [(method, body)] * number, True
                    if fill:
                        continue
                    yield f"message: {name}, malformed", [(method, body + b"\xff")] * number, True


def _requests() -> Mapping[str, Descriptor]:
    from coordinator_server.build import SERVICES

    return {
        method.name: method.input_type
        for service in SERVICES
        for method in service.methods
        if method.name not in _LEFT_OUT and not method.client_streaming
    }


def _lists(kind: Descriptor, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the paths to all lists in messages of this kind."""
    for field in kind.fields:
        path = (*above, field.name)
        if field.is_repeated:
            yield path
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            yield from _lists(field.message_type, path)


def _body(kind: Descriptor, path: tuple[str, ...], parts: int, *, fill: bool) -> bytes | None:
    """Return a request whose list at this path has `parts` elements. None if they cannot name anything."""
    from google.protobuf.message_factory import GetMessageClass

    request: Any = GetMessageClass(kind)()
    holder = request
    for name in path[:-1]:
        field = getattr(holder, name)
        holder = field.add() if hasattr(field, "add") else field
        _name(holder, 0)
    _name(request, 0)
    field = holder.DESCRIPTOR.fields_by_name[path[-1]]
    elements = getattr(holder, path[-1])
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return None
    for number in range(parts):
        if field.message_type is not None:
            element = elements.add()
            if fill:
                _name(element, number)
        elif field.cpp_type == field.CPPTYPE_STRING:
            is_text = field.type == field.TYPE_STRING
            elements.append((f"{number}" if is_text else b"%d" % number) if fill else "" if is_text else b"")
        elif field.cpp_type == field.CPPTYPE_ENUM:
            elements.append(0)
        else:
            elements.append(number % _PARTITIONS if fill else 0)
    body: bytes = request.SerializeToString()
    return body


def _name(message: Any, number: int) -> None:  # noqa: ANN401  of any kind
    """Fill in the names in a message: partitions of the existing topic, and other things that do not exist."""
    for field in message.DESCRIPTOR.fields:
        if field.is_repeated or field.message_type is not None:
            continue
        if field.name == "topic":
            message.topic = _TOPIC
        elif field.name in {"partition", "partition_index"}:
            setattr(message, field.name, number % _PARTITIONS)
        elif field.name.endswith(("_id", "name")) and field.type == field.TYPE_STRING:
            setattr(message, field.name, f"n{number}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""An S3 store in memory whose conditional writes are atomic: one loop serves one request at a time.

`with ObjectServer() as server:` serves on a port of its own, on a thread. `server.environment()` has what a client
needs. `server.delay_seconds`, `fail_next`, `lose_next_answer` and `weather` make it slow and unreliable.
`server.requests` counts by method. A test that races writers can rest on it, which no emulator that checks first and
writes later allows.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import threading
import time
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate
from types import TracebackType
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.harness.store_weather import Fault, Weather

BUCKET: Final = "tests"
_REASONS: Final = {
    200: "OK",
    204: "No Content",
    206: "Partial Content",
    304: "Not Modified",
    403: "Forbidden",
    404: "Not Found",
    409: "Conflict",
    412: "Precondition Failed",
    416: "Range Not Satisfiable",
    500: "Internal Server Error",
}


@dataclass(slots=True)
class StoredObject:
    """One object, with the headers that a reader gets back."""

    content: bytes
    e_tag: str
    modified: float
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Asked:
    method: str
    key: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class _Answered:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class ObjectServer:
    """The store. All of its state belongs to its loop, except what a test sets between two requests."""

    def __init__(
        self, wall_seconds: float | None = 1_800_000_000.0, host: str = "127.0.0.1", delay_s: float = 0.0
    ) -> None:
        """`host`: the address to serve at; 0.0.0.0 for all addresses of this machine. `delay_s`: delay of all
        answers."""
        self.objects: dict[str, StoredObject] = {}
        self.requests: Counter[str] = Counter()
        self.delay_seconds = dict.fromkeys(("PUT", "GET", "HEAD", "DELETE"), delay_s)
        """Delay of the answers by method."""
        self.fail_next: dict[str, int] = {}
        """Number of the next requests, by method, that get the status 500 and do nothing."""
        self.lose_next_answer: set[str] = set()
        """Methods whose next request is done, and whose connection then ends without an answer."""
        self.refusal: int | None = None
        """A status that every request gets, such as 403 for wrong credentials."""
        self.weather: Weather | None = None
        """Faults of requests at rates; None for none."""
        self.is_atomic = True
        """False: a conditional write checks first and writes later, as stores do that must be refused."""
        self.keeps_metadata = True
        self.wall_seconds: float | None = wall_seconds
        """The clock of the store; None for the one of this machine."""
        self._uploads: dict[str, dict[int, bytes]] = {}
        self._loop = asyncio.new_event_loop()
        self._host = host
        self._port: int = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="objects", daemon=True)

    def __enter__(self) -> ObjectServer:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def environment(self, host: str = "127.0.0.1") -> dict[str, str]:
        """The variables of the usual chain of credentials, for this store at one of its addresses."""
        return {
            "AWS_ENDPOINT": f"http://{host}:{self._port}",
            "AWS_ENDPOINT_URL": f"http://{host}:{self._port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, self._host, 0))
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        with warnings.catch_warnings():
            # A connection that was accepted last may have a task that never begins, and closes nothing.
            warnings.simplefilter("ignore", ResourceWarning)
            self._end_connections()
            self._loop.close()
            gc.collect()

    def _end_connections(self) -> None:
        connections = asyncio.all_tasks(self._loop)
        for connection in connections:
            connection.cancel()
        self._loop.run_until_complete(asyncio.gather(*connections, return_exceptions=True))
        # A transport lets its socket go a turn after its end.
        self._loop.run_until_complete(asyncio.sleep(0))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (asked := await _read(reader)) is not None:
                self.requests[asked.method] += 1
                if self.refusal is not None:
                    answered = _Answered(self.refusal)
                elif self.fail_next.get(asked.method, 0) > 0:
                    self.fail_next[asked.method] -= 1
                    answered = _Answered(500)
                else:
                    in_weather = await self._answered_in_weather(asked)
                    if in_weather is None:
                        return
                    answered = in_weather
                    if asked.method in self.lose_next_answer:
                        self.lose_next_answer.discard(asked.method)
                        return
                if delay := self.delay_seconds.get(asked.method):
                    await self._later(delay)
                _write(writer, asked, answered)
                await writer.drain()
        except asyncio.CancelledError:
            # Without what the client has not taken yet: it may never do so.
            writer.transport.abort()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answered_in_weather(self, asked: _Asked) -> _Answered | None:
        """Return None if the answer is lost."""
        is_conditional = "if-match" in asked.headers or "if-none-match" in asked.headers
        weather = self.weather
        fault = None if weather is None else weather.fault(is_conditional=is_conditional)
        match fault:
            case Fault.CONFLICT:
                return _Answered(409)
            case Fault.ERROR:
                return _Answered(500)
            case Fault.TWICE:
                await self._answered(asked)
            case Fault.LATE:
                assert weather is not None, "it is late"
                await self._later(weather.late_seconds())
        answered = await self._answered(asked)
        return None if fault is Fault.LOST else answered

    async def _later(self, seconds: float) -> None:
        """Serve other requests meanwhile."""
        over: asyncio.Future[None] = self._loop.create_future()
        self._loop.call_later(seconds, over.set_result, None)
        await over

    async def _answered(self, asked: _Asked) -> _Answered:
        match asked.method:
            case "GET" if "list-type" in asked.query:
                return self._listed(asked)
            case "GET" | "HEAD":
                return self._read_object(asked)
            case "PUT" if "uploadId" in asked.query:
                self._uploads[asked.query["uploadId"]][int(asked.query["partNumber"])] = asked.body
                return _Answered(200, headers={"ETag": f'"{hashlib.md5(asked.body).hexdigest()}"'})
            case "PUT":
                return await self._put(asked, asked.body)
            case "POST" if "uploads" in asked.query:
                name = f"upload-{len(self._uploads)}"
                self._uploads[name] = {}
                return _Answered(200, f"<R><UploadId>{name}</UploadId></R>".encode())
            case "POST" if "uploadId" in asked.query:
                parts = self._uploads.pop(asked.query["uploadId"])
                answered = await self._put(asked, b"".join(parts[number] for number in sorted(parts)))
                body = f"<R><ETag>{answered.headers.get('ETag', '')}</ETag></R>".encode()
                return _Answered(answered.status, body, answered.headers)
            case "POST" if "delete" in asked.query:
                return self._delete_many(asked)
            case "DELETE":
                self.objects.pop(asked.key, None)
                return _Answered(204)
        return _Answered(500)

    async def _put(self, asked: _Asked, content: bytes) -> _Answered:
        before = self.objects.get(asked.key)
        if asked.headers.get("if-none-match") == "*" and before is not None:
            return _Answered(412)
        wanted = asked.headers.get("if-match")
        if wanted is not None and (before is None or before.e_tag != wanted):
            return _Answered(412)
        if not self.is_atomic:
            await self._later(0.002)
        e_tag = f'"{hashlib.md5(content).hexdigest()}"'
        metadata = {name: value for name, value in asked.headers.items() if name.startswith("x-amz-meta-")}
        self.objects[asked.key] = StoredObject(content, e_tag, self._now(), metadata if self.keeps_metadata else {})
        return _Answered(200, headers={"ETag": e_tag})

    def _now(self) -> float:
        return time.time() if self.wall_seconds is None else self.wall_seconds

    def _read_object(self, asked: _Asked) -> _Answered:
        found = self.objects.get(asked.key)
        if found is None:
            return _Answered(404)
        headers = {
            "ETag": found.e_tag,
            "Last-Modified": formatdate(found.modified, usegmt=True),
            "Accept-Ranges": "bytes",
            **found.metadata,
        }
        span = asked.headers.get("range")
        if span is None:
            return _Answered(200, found.content, headers)
        first, last = span.removeprefix("bytes=").split("-")
        size = len(found.content)
        start = int(first) if first else max(0, size - int(last))
        end = min(size, int(last) + 1) if first and last else size
        if start >= size:
            return _Answered(416)
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        return _Answered(206, found.content[start:end], headers)

    def _listed(self, asked: _Asked) -> _Answered:
        prefix, delimiter = asked.query.get("prefix", ""), asked.query.get("delimiter", "")
        after = max(asked.query.get("start-after", ""), asked.query.get("continuation-token", ""))
        contents, common = [], []
        for key in sorted(self.objects):
            if not key.startswith(prefix) or key <= after:
                continue
            inner = key[len(prefix) :]
            if delimiter and delimiter in inner:
                folder = prefix + inner.split(delimiter)[0] + delimiter
                if folder not in common:
                    common.append(folder)
                continue
            found = self.objects[key]
            contents.append(
                f"<Contents><Key>{escape(key)}</Key><LastModified>{_iso(found.modified)}</LastModified>"
                f"<ETag>{escape(found.e_tag)}</ETag><Size>{len(found.content)}</Size></Contents>"
            )
        folders = [f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in common]
        body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(contents + folders)}</ListBucketResult>"
        return _Answered(200, body.encode())

    def _delete_many(self, asked: _Asked) -> _Answered:
        text = asked.body.decode()
        for part in text.split("<Key>")[1:]:
            self.objects.pop(part.split("</Key>")[0], None)
        return _Answered(200, b"<DeleteResult></DeleteResult>")


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


async def _read(reader: asyncio.StreamReader) -> _Asked | None:
    line = await reader.readline()
    if not line.strip():
        return None
    method, target, _version = line.decode().split(" ", 2)
    headers: dict[str, str] = {}
    while (line := await reader.readline()).strip():
        name, _, value = line.decode().partition(":")
        headers[name.strip().lower()] = value.strip()
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while size := int((await reader.readline()).split(b";")[0], 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    else:
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    parts = urlsplit(target)
    key = unquote(parts.path).removeprefix(f"/{BUCKET}").removeprefix("/")
    query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    return _Asked(method, key, query, headers, body)


def _write(writer: asyncio.StreamWriter, asked: _Asked, answered: _Answered) -> None:
    headers = {"Content-Length": str(len(answered.body)), **answered.headers}
    head = f"HTTP/1.1 {answered.status} {_REASONS[answered.status]}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
    writer.write(head.encode() + (b"" if asked.method == "HEAD" else answered.body))

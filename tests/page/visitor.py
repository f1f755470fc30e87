"""A visitor of a page without a browser: requests straight to the application."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.cookies import SimpleCookie
from typing import Final
from urllib.parse import urlencode, urlsplit

from starlette.types import ASGIApp, Message

HOST: Final = "127.0.0.1:7080"


@dataclass
class Visit:
    """One answer."""

    status: int
    headers: dict[str, str]
    body: str
    cookies: SimpleCookie = field(default_factory=SimpleCookie)


@dataclass
class Visitor:
    """Keeps its cookies, and does not follow redirections."""

    app: ASGIApp
    host: str = HOST
    cookies: dict[str, str] = field(default_factory=dict)

    async def get(self, path: str, **parameters: object) -> Visit:
        query = urlencode(parameters)
        return await self.ask("GET", f"{path}?{query}" if query else path)

    async def post(self, path: str, *, origin: str = f"http://{HOST}", **fields: str) -> Visit:
        return await self.ask("POST", path, urlencode(fields).encode(), {"origin": origin} if origin else {})

    async def ask(self, method: str, address: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Visit:
        split = urlsplit(address)
        sent = {"host": self.host, **(headers or {})}
        if self.cookies:
            sent["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": split.path,
            "raw_path": split.path.encode(),
            "query_string": split.query.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
            "server": ("127.0.0.1", 7080),
            "client": ("127.0.0.1", 1),
        }
        answer: list[Message] = []
        asked = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            return asked.pop() if asked else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            answer.append(message)

        await self.app(scope, receive, send)
        start, *parts = answer
        found, set_cookies = {}, SimpleCookie()
        for name, value in start["headers"]:
            found[name.decode()] = value.decode()
            if name == b"set-cookie":
                set_cookies.load(value.decode())
        for name, cookie in set_cookies.items():
            if cookie.value and cookie["max-age"] != "0":
                self.cookies[name] = cookie.value
            else:
                self.cookies.pop(name, None)
        body = b"".join(part.get("body", b"") for part in parts)
        return Visit(start["status"], found, body.decode(), set_cookies)


class Seen(HTMLParser):
    """A page as a browser would read it: elements, attributes, visible text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def tags(self) -> set[str]:
        return {tag for tag, _attributes in self.elements}

    @property
    def attributes(self) -> set[str]:
        return {name for _tag, attributes in self.elements for name in attributes}

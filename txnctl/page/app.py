"""The web application: routes, logins, headers and errors around the views."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlencode, urlsplit

import jinja2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from txnctl.page import groups, operations, overview, topics, transactions, words
from txnctl.page.logins import Login, LoginRefused, Logins, drop
from txnctl.page.request import NotThere, PageRequest, PageView, View
from txnctl.page.source import CredentialsRefused, ServerAway
from txnctl.page.timeline import kind_of

HERE: Final = Path(__file__).parent
COOKIE: Final = "txn_page"
PACE_COOKIE: Final = "txn_page_pace"
PACES: Final = ("off", "5", "15", "60")
"""Seconds between two refreshes of a page, as its user may choose."""
PACE: Final = "15"
BODY_BYTES_MAX: Final = 256 * 1_024
SECTIONS: Final = (
    ("overview", "/", "Overview"),
    ("transactions", "/transactions", "Transactions"),
    ("topics", "/topics", "Topics"),
    ("groups", "/groups", "Groups"),
    ("sinks", "/sinks", "Sinks"),
    ("events", "/events", "Events"),
    ("quotas", "/quotas", "Quotas"),
    ("backups", "/backups", "Backups"),
    ("configuration", "/configuration", "Configuration"),
)
"""Navigation: name, path and title of each section. A new capability gets a line here and a view."""
VIEWS: Final[Mapping[str, View]] = {
    "/": overview.overview,
    "/transactions": transactions.listed,
    "/transaction": transactions.one,
    "/topics": topics.listed,
    "/topic": topics.one,
    "/records": topics.records,
    "/groups": groups.listed,
    "/group": groups.one,
    "/sinks": operations.sinks,
    "/events": operations.events,
    "/quotas": operations.quotas,
    "/backups": operations.backups,
    "/configuration": operations.configuration,
}
HEADERS: Final = {
    "content-security-policy": "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""Headers of every answer. The policy allows no script, no style in a page, and nothing from elsewhere."""
_FILES: Final = {"page.css": "text/css", "icon.svg": "image/svg+xml"}


class Page:
    """The application for one server."""

    def __init__(self, logins: Logins, endpoint: str, hosts: frozenset[str], *, is_secure: bool = False) -> None:
        """`hosts` are the names by which browsers may call this page; empty for any name. `is_secure`: it is served
        over TLS."""
        self.on_start: Callable[[], None] = lambda: None
        """Called on the loop once it runs."""
        self._logins = logins
        self._endpoint = endpoint
        self._is_secure = is_secure
        self._files = {name: (HERE / "static" / name).read_bytes() for name in _FILES}
        self._templates = environment(hashlib.sha256(self._files["page.css"]).hexdigest()[:12])
        routes = [Route(path, self._of(view)) for path, view in VIEWS.items()]
        routes += [
            Route("/login", self._login, methods=["GET", "POST"]),
            Route("/logout", self._logout, methods=["POST"]),
            Route("/pace", self._pace),
            Route("/static/{name}", self._file),
        ]
        self.app: ASGIApp = Guard(
            Starlette(routes=routes, lifespan=self._lifespan, exception_handlers={404: self._nowhere}), hosts
        )

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        self.on_start()
        yield
        await self._logins.close()

    def _of(self, view: View) -> Callable[[Request], object]:
        async def answer(request: Request) -> Response:
            login = self._logins.find(request.cookies.get(COOKIE, ""))
            if login is None:
                return RedirectResponse(f"/login?{urlencode({'next': _here(request)})}", 303)
            try:
                shown = await view(PageRequest(login.source, request.query_params))
            except NotThere as error:
                return self._problem(request, 404, "There is no such page", str(error), login)
            except ServerAway as error:
                return self._problem(request, 503, "The server does not answer", str(error), login)
            except CredentialsRefused:
                await self._logins.end(request.cookies.get(COOKIE, ""))
                if not self._logins.is_needed:
                    text = "It asks its callers for credentials, and this page was started without --tls-ca-file."
                    return self._problem(request, 503, "The server does not know this page", text, login)
                gone = RedirectResponse(f"/login?{urlencode({'next': _here(request), 'ended': 'yes'})}", 303)
                gone.delete_cookie(COOKIE)
                return gone
            return self._rendered(request, shown, login)

        return answer

    def _rendered(self, request: Request, shown: PageView, login: Login | None, status: int = 200) -> Response:
        pace = request.cookies.get(PACE_COOKIE, PACE)
        pace = pace if pace in PACES else PACE
        text = self._templates.get_template(shown.template).render(
            **shown.values,
            title=shown.title,
            section=shown.section,
            sections=SECTIONS if login is not None else (),
            login=login if self._logins.is_needed else None,
            endpoint=self._endpoint,
            pace=pace if shown.refreshes else "",
            paces=PACES,
            here=_here(request),
        )
        headers = {"cache-control": "no-store"}
        if shown.refreshes and pace != "off":
            # In a header: the page then has no element that moves the focus of a screen reader.
            headers["refresh"] = pace
        return HTMLResponse(text, status, headers)

    def _problem(self, request: Request, status: int, title: str, text: str, login: Login | None) -> Response:
        values = {"text": words.visible(text)}
        return self._rendered(
            request, PageView("problem.html", title, "", values, refreshes=status == 503), login, status
        )

    async def _nowhere(self, request: Request, _error: Exception) -> Response:
        login = self._logins.find(request.cookies.get(COOKIE, ""))
        return self._problem(request, 404, "There is no such page", "The navigation has all pages.", login)

    async def _login(self, request: Request) -> Response:
        following = _inside(request.query_params.get("next", "/"))
        if not self._logins.is_needed:
            return RedirectResponse(following, 303)
        refusal, status = "", 200
        if request.method == "POST":
            fields = parse_qs((await _body(request)).decode("utf-8", "replace"), keep_blank_values=True)
            given = [fields.get(name, [""])[0].strip() for name in ("token", "certificate", "key")]
            following = _inside(fields.get("next", ["/"])[0])
            try:
                cookie = await self._opened(*given, is_anonymous="anonymous" in fields)
            except LoginRefused as error:
                refusal, status = str(error), 403
            else:
                entered = RedirectResponse(following, 303)
                entered.set_cookie(COOKIE, cookie, httponly=True, samesite="strict", secure=self._is_secure)
                return entered
        elif "ended" in request.query_params:
            refusal = "The server no longer accepts these credentials. Log in again."
        values = {"following": following, "refusal": words.visible(refusal)}
        return self._rendered(request, PageView("login.html", "Log in", "", values, refreshes=False), None, status)

    async def _opened(self, token: str, certificate: str, key: str, *, is_anonymous: bool) -> str:
        """Log in, and return the cookie. Raises LoginRefused."""
        login = self._logins.prepare(token, certificate, key, is_anonymous=is_anonymous)
        try:
            answer = await login.source.limits()
        except CredentialsRefused:
            await drop(login)
            raise LoginRefused("the server does not accept these credentials") from None
        except ServerAway as error:
            await drop(login)
            raise LoginRefused(f"the server does not answer: {error}") from None
        if answer.value is None:
            await drop(login)
            raise LoginRefused(answer.refusal)
        return await self._logins.open(login)

    async def _logout(self, request: Request) -> Response:
        await self._logins.end(request.cookies.get(COOKIE, ""))
        left = RedirectResponse("/login", 303)
        left.delete_cookie(COOKIE)
        return left

    async def _pace(self, request: Request) -> Response:
        back = RedirectResponse(_inside(request.query_params.get("back", "/")), 303)
        every = request.query_params.get("every", "")
        if every in PACES:
            back.set_cookie(PACE_COOKIE, every, httponly=True, samesite="strict", secure=self._is_secure)
        return back

    async def _file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _FILES:
            return Response("", 404)
        return Response(self._files[name], media_type=_FILES[name], headers={"cache-control": "max-age=3600"})


class Guard:
    """Refuses requests under a foreign name and from foreign pages, and gives every answer its headers."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message["headers"],
                    *((name.encode(), value.encode()) for name, value in HEADERS.items()),
                ]
            await send(message)

        problem = self._problem(Request(scope))
        app: ASGIApp = self._app if problem is None else Response(problem, 403, media_type="text/plain")
        await app(scope, receive, send_with_headers)

    def _problem(self, request: Request) -> str | None:
        host = request.headers.get("host", "")
        name = urlsplit(f"//{host}").hostname or ""
        if self._hosts and name not in self._hosts:
            # Another site may have given its name our address, to read this page in the name of the user.
            return "this page is not served under that name: start it with --name to allow it"
        if request.method == "GET":
            return None
        origin = request.headers.get("origin", "")
        if origin and urlsplit(origin).netloc != host:
            return "this form was sent by another page"
        return None


def environment(version: str) -> jinja2.Environment:
    """Return the templates, which escape every value. `version` is that of the style sheet."""
    templates = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    templates.filters |= {
        "visible": words.visible,
        "number": words.number,
        "size": words.size,
        "duration": words.duration,
        "moment": words.moment,
        "iso": words.iso,
        "content": words.content,
        "kind": kind_of,
        "facts": words.facts,
    }
    templates.globals |= {"style_version": version, "query": lambda **values: urlencode(values)}
    return templates


def _here(request: Request) -> str:
    query = request.url.query
    return f"{request.url.path}?{query}" if query else request.url.path


def _inside(address: str) -> str:
    """Return an address of this page; that of the overview in place of any other."""
    is_ours = address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()
    return address if is_ours else "/"


async def _body(request: Request) -> bytes:
    """Return the body of a form, or nothing if it is too large."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > BODY_BYTES_MAX:
            return b""
    return body

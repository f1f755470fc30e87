"""Logins with tokens and certificates: the view of each principal, and the end of a login."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from coordinator_client import Acl, Admin, Permission, ResourceType, Tls
from coordinator_server.security.tokens import new_token
from tests.harness.certificates import Authority
from tests.harness.in_process import InProcessServer, in_process_server
from tests.harness.manual_clock import ManualClock
from tests.page.visitor import Visitor
from txnctl.page.app import COOKIE, Page
from txnctl.page.logins import IDLE_MS_MAX, LoginRefused, Logins, ServerAddress
from txnctl.page.serving import LOOPBACK


class Secured:
    """A server that demands tokens, the tokens of its callers, and a page."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority(directory, "ca")
        self.tokens_file = directory / "tokens.toml"
        self.tokens: dict[str, str] = {}
        for number, (name, principal) in enumerate((("root", "User:root"), ("clerk", "User:clerk"))):
            token, table = new_token(name, bytes([number + 1]) * 32, principal, None)
            self.tokens[name] = token
            with self.tokens_file.open("a") as file:
                file.write(table + "\n")
        pair = self.authority.issue("server")
        self.settings: dict[str, object] = {
            "tls_certificate_file": pair.certificate,
            "tls_key_file": pair.key,
            "authentication": "token",
            "tokens_file": self.tokens_file,
            "super_users": "User:root",
        }
        self.clock = ManualClock()

    def fill(self, endpoint: str) -> None:
        token_file = self.directory / "root.token"
        token_file.write_text(self.tokens["root"])
        with Admin(endpoint, tls=Tls(ca_file=self.authority.ca_file, token_file=token_file)) as admin:
            admin.create_topic("orders")
            admin.create_topic("secrets")
            rule = Acl(
                principal="User:clerk",
                resource_type=ResourceType.TOPIC,
                resource_name="orders",
                operation=Permission.READ,
            )
            admin.create_acls([rule])

    @asynccontextmanager
    async def page(self) -> AsyncIterator[tuple[InProcessServer, Visitor, Logins]]:
        async with in_process_server(None, **self.settings) as server:
            endpoint = f"localhost:{server.address.port}"
            await asyncio.to_thread(self.fill, endpoint)
            logins = Logins(ServerAddress(endpoint, str(self.authority.ca_file)), self.clock)
            try:
                yield server, Visitor(Page(logins, endpoint, LOOPBACK).app), logins
            finally:
                await logins.close()


@pytest.fixture
def secured(tmp_path: Path) -> Secured:
    return Secured(tmp_path)


async def test_without_a_login_there_is_only_the_form(secured: Secured) -> None:
    async with secured.page() as (_server, visitor, _logins):
        visit = await visitor.get("/topics", q="x")
        assert (visit.status, visit.headers["location"]) == (303, "/login?next=%2Ftopics%3Fq%3Dx")
        form = await visitor.get("/login", next="/topics?q=x")
        assert form.status == 200
        assert 'value="/topics?q=x"' in form.body
        assert "Configuration" not in form.body, "no navigation"


async def test_each_user_sees_what_that_user_may_see(secured: Secured) -> None:
    async with secured.page() as (_server, visitor, logins):
        entered = await visitor.post("/login", token=secured.tokens["clerk"], next="/topics")
        assert (entered.status, entered.headers["location"]) == (303, "/topics")
        cookie = entered.cookies[COOKIE]
        assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "strict", "/")
        topics = await visitor.get("/topics")
        assert "orders" in topics.body
        assert "secrets" not in topics.body
        assert "token clerk" in topics.body
        overview = await visitor.get("/")
        assert overview.status == 200
        assert "Not shown" in overview.body
        for path in ("/events", "/quotas", "/configuration", "/backups"):
            refused = await visitor.get(path)
            assert (refused.status, "Not shown" in refused.body) == (200, True), path
        assert "Not shown" in (await visitor.get("/records", name="secrets")).body
        root = Visitor(visitor.app)
        await root.post("/login", token=secured.tokens["root"])
        assert "secrets" in (await root.get("/topics")).body
        assert "User:clerk" in (await root.get("/quotas")).body
        assert len(logins) == 2


async def test_a_wrong_token_is_refused_and_not_kept(secured: Secured) -> None:
    async with secured.page() as (_server, visitor, logins):
        for token in ("nonsense", secured.tokens["clerk"] + "x", "two words"):
            visit = await visitor.post("/login", token=token)
            assert visit.status == 403
            assert COOKIE not in visit.cookies
            assert token not in visit.body, "a token is shown nowhere"
        assert len(logins) == 0
        assert not list(logins.directory.iterdir())


@pytest.mark.parametrize(
    "fields",
    [{}, {"token": "a", "certificate": "b"}, {"certificate": "no PEM", "key": "no PEM"}, {"token": "x" * 70_000}],
)
async def test_a_form_without_usable_credentials_is_refused(secured: Secured, fields: dict[str, str]) -> None:
    async with secured.page() as (_server, visitor, logins):
        visit = await visitor.post("/login", **fields)
        assert visit.status == 403
        assert str(logins.directory) not in visit.body
        assert not list(logins.directory.iterdir())


async def test_a_login_is_gone_once_its_token_is_revoked(secured: Secured) -> None:
    async with secured.page() as (server, visitor, logins):
        await visitor.post("/login", token=secured.tokens["clerk"])
        assert (await visitor.get("/topics")).status == 200
        secured.tokens_file.write_text("# nobody\n")
        for kept in server.listeners.identities.reloading:
            kept.look()
        server.listeners.check_credentials()
        visit = await visitor.get("/topics")
        while visit.status == 200:
            # The session of the login is open until its calls are answered.
            visit = await visitor.get("/topics")
        assert (visit.status, visit.headers["location"].startswith("/login?next=%2Ftopics&ended")) == (303, True)
        assert COOKIE not in visitor.cookies
        assert len(logins) == 0
        assert not list(logins.directory.iterdir())


async def test_a_login_ends_when_its_user_goes_or_sleeps(secured: Secured) -> None:
    async with secured.page() as (_server, visitor, logins):
        await visitor.post("/login", token=secured.tokens["clerk"])
        cookie = visitor.cookies[COOKIE]
        assert (await visitor.post("/logout")).status == 303
        assert (len(logins), logins.find(cookie)) == (0, None)
        await visitor.post("/login", token=secured.tokens["clerk"])
        secured.clock.advance(IDLE_MS_MAX + 1)
        assert (await visitor.get("/topics")).status == 303
        await visitor.post("/login", token=secured.tokens["clerk"])
        assert len(logins) == 1, "the one before is forgotten"


async def test_a_certificate_logs_in(secured: Secured) -> None:
    secured.settings |= {
        "authentication": "certificate",
        "principal_source": "cn",
        "tls_client_ca_file": secured.authority.ca_file,
        "tls_client_auth": "required",
        "super_users": "User:root",
    }
    del secured.settings["tokens_file"]
    pair = secured.authority.issue("root", is_server=False)
    async with in_process_server(None, **secured.settings) as server:
        endpoint = f"localhost:{server.address.port}"
        logins = Logins(ServerAddress(endpoint, str(secured.authority.ca_file)), secured.clock)
        visitor = Visitor(Page(logins, endpoint, LOOPBACK).app)
        visit = await visitor.post(
            "/login", certificate=pair.certificate.read_text(), key=pair.key.read_text(), next="/configuration"
        )
        assert visit.status == 303
        assert "super_users" in (await visitor.get("/configuration")).body
        await logins.close()
        assert not logins.directory.exists()


async def test_a_foreign_form_does_not_log_in(secured: Secured) -> None:
    async with secured.page() as (_server, visitor, _logins):
        visit = await visitor.post("/login", origin="https://evil.example", token=secured.tokens["clerk"])
        assert visit.status == 403
        assert COOKIE not in visit.cookies


async def test_a_server_that_is_away_is_a_page_that_tries_again(secured: Secured) -> None:
    logins = Logins(ServerAddress("localhost:1", deadline_ms=50))
    visitor = Visitor(Page(logins, "localhost:1", LOOPBACK).app)
    visit = await visitor.get("/topics")
    assert visit.status == 503
    assert visit.headers["refresh"] == "15"
    assert "does not answer" in visit.body
    await logins.close()


def test_credentials_are_for_this_user_alone(secured: Secured) -> None:
    logins = Logins(ServerAddress("localhost:1", str(secured.authority.ca_file)))
    login = logins.prepare(secured.tokens["clerk"], "", "")
    assert login.directory is not None
    (file,) = login.directory.iterdir()
    assert (logins.directory.stat().st_mode & 0o077, file.stat().st_mode & 0o077) == (0, 0)
    with pytest.raises(LoginRefused):
        logins.prepare("", "certificate without a key", "")
    asyncio.run(logins.close())


async def test_only_a_server_that_asks_for_none_lets_users_in_without_credentials(secured: Secured) -> None:
    async with secured.page() as (_server, visitor, logins):
        assert (await visitor.post("/login", anonymous="yes")).status == 403
        assert (await visitor.post("/login", anonymous="yes", token=secured.tokens["clerk"])).status == 403
        assert len(logins) == 0
    open_to_all = {name: secured.settings[name] for name in ("tls_certificate_file", "tls_key_file")}
    async with in_process_server(None, **open_to_all) as server:
        endpoint = f"localhost:{server.address.port}"
        others = Logins(ServerAddress(endpoint, str(secured.authority.ca_file)))
        guest = Visitor(Page(others, endpoint, LOOPBACK).app)
        assert (await guest.post("/login", anonymous="yes")).status == 303
        assert (await guest.get("/events")).status == 200
        await others.close()

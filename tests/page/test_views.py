"""Every view of a filled server: what it shows, and that nothing of what it shows is taken for markup."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from tests.page.filled import HOSTILE_GROUP, HOSTILE_ID
from tests.page.visitor import Seen, Visitor
from txnctl.page.app import HEADERS, SECTIONS, VIEWS
from txnctl.page.groups import one
from txnctl.page.request import PageRequest
from txnctl.page.source import PageAnswer
from txnctl.page.words import visible

PAGES = [
    "/",
    "/transactions",
    "/topics",
    "/topics?only=blocked",
    "/topic?name=orders",
    "/topic?name=audit-log",
    "/records?name=orders",
    "/records?name=orders&partition=2&as=json",
    "/records?name=audit-log&as=text",
    "/records?name=audit-log&as=json",
    "/records?name=audit-log&as=hex",
    "/groups",
    "/group?id=billing-readers",
    "/group?id=packers",
    "/sinks",
    "/events",
    "/events?kind=fences",
    "/quotas",
    "/backups",
    "/configuration",
]
ALLOWED = {
    *("html", "head", "meta", "title", "link", "body", "a", "header", "div", "img", "span", "nav", "ul", "li", "main"),
    *("h1", "h2", "section", "dl", "dt", "dd", "p", "br", "figure", "figcaption", "b", "svg", "polygon", "polyline"),
    *(
        "table",
        "caption",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "time",
        "code",
        "pre",
        "form",
        "label",
        "input",
        "select",
    ),
    *("option", "button", "footer", "rect", "text", "line", "path", "circle"),
}


def harmless(seen: Seen) -> None:
    """No element that a template does not have, no handler, no style, no address of elsewhere."""
    assert seen.tags <= ALLOWED, seen.tags - ALLOWED
    assert not [name for name in seen.attributes if name.startswith("on") or name == "style"]
    for _tag, attributes in seen.elements:
        for name in ("href", "src", "action"):
            address = attributes.get(name)
            assert address is None or address.startswith(("/", "#")), address
            assert address is None or not address.startswith("//"), address


@pytest.mark.parametrize("path", PAGES)
async def test_a_view_shows_its_page_and_no_markup_of_others(visitor: Visitor, path: str) -> None:
    visit = await visitor.ask("GET", path)
    assert visit.status == 200
    harmless(Seen(visit.body))
    for name, value in HEADERS.items():
        assert visit.headers[name] == value
    assert visit.headers["cache-control"] == "no-store"
    assert "Not shown" not in visit.body or path == "/backups", "everyone may see everything here"


def test_every_view_is_looked_at() -> None:
    looked_at = {path.partition("?")[0] for path in PAGES} | {"/transaction"}
    assert looked_at == set(VIEWS)
    assert {path for _name, path, _title in SECTIONS} <= set(VIEWS)


@pytest.mark.parametrize("name", [HOSTILE_ID, HOSTILE_ID + " open"])
async def test_a_hostile_id_is_shown_as_text(visitor: Visitor, name: str) -> None:
    visit = await visitor.get("/transaction", id=name)
    seen = Seen(visit.body)
    harmless(seen)
    assert visit.status == 200
    assert visible(name) in seen.text
    assert "\u202e" not in visit.body, "it would turn the text after it around"


async def test_a_hostile_group_and_record_are_shown_as_text(visitor: Visitor) -> None:
    group = Seen((await visitor.get("/group", id=HOSTILE_GROUP)).body)
    harmless(group)
    assert HOSTILE_GROUP in group.text
    records = Seen((await visitor.get("/records", name="audit-log")).body)
    harmless(records)
    assert '<script>document.title="owned"</script>' in records.text


async def test_hostile_parameters_are_shown_as_text(visitor: Visitor) -> None:
    for path in ("/transactions", "/topics", "/groups", "/configuration"):
        harmless(Seen((await visitor.get(path, q=HOSTILE_ID)).body))
    for parameters in (
        {"name": HOSTILE_ID},
        {"name": "orders", "key": HOSTILE_ID},
        {"name": "orders", "at": HOSTILE_ID},
    ):
        harmless(Seen((await visitor.get("/records", **parameters)).body))


async def test_records_are_told_apart(visitor: Visitor) -> None:
    text = Seen((await visitor.get("/records", name="orders", partition=0)).body).text
    for fate in ("committed", "aborted", "commit marker", "abort marker", "open"):
        assert fate in text
    assert "Committed readers stop at offset" in text
    one_key = Seen((await visitor.get("/records", name="orders", partition=0, key="customer-9")).body).text
    assert "2000" in one_key
    assert "1012" not in one_key
    assert "No record there" in (await visitor.get("/records", name="orders", at="2999-01-01")).body


async def test_the_timeline_has_both_phases_and_causes(visitor: Visitor) -> None:
    visit = await visitor.get("/transaction", id="shipping-2")
    text = Seen(visit.body).text
    for part in (
        "Phase 1: decision",
        "Phase 2: markers",
        "PrepareCommit",
        "CompleteCommit",
        "a producer initialised the id",
    ):
        assert part in text
    opened = Seen((await visitor.get("/transaction", id="checkout-web-01")).body).text
    assert "The open transaction" in opened
    assert "orders-0" in opened


async def test_the_list_of_transactions_says_who_holds_readers_up(visitor: Visitor) -> None:
    text = Seen((await visitor.get("/transactions", q="web-01")).body).text
    assert "checkout-web-01" in text
    assert "orders-0" in text
    assert "checkout-web-02" not in text
    assert "No transactional id matches" in (await visitor.get("/transactions", state="PrepareCommit")).body


async def test_a_share_group_is_shown_with_its_start_offsets_and_lag(visitor: Visitor) -> None:
    body = (await visitor.get("/group", id="packers")).body
    text = " ".join(Seen(body.replace("<", " <")).text.split())
    for part in ("Lag, records that are not done 4", "Start offsets and lag", "parcels-0 0 4"):
        assert part in text
    assert "No offset is committed" not in text


async def test_acknowledgements_are_participants_of_their_transaction(visitor: Visitor) -> None:
    text = " ".join(Seen((await visitor.get("/transaction", id="packer-1")).body).text.split())
    assert "Records of parcels-0 for the share group packers" in text
    assert "None now" not in text


class WithoutOffsets:
    """A source whose user may see groups, and no offsets."""

    def __init__(self, group_type: str) -> None:
        self._group = PageAnswer(SimpleNamespace(group_type=group_type))

    async def group(self, _group_id: str) -> PageAnswer[SimpleNamespace]:
        return self._group

    async def events(self, _limit: int, _kinds: Sequence[str]) -> PageAnswer[list[object]]:
        return PageAnswer([])

    async def group_lag(self, _group_id: str) -> PageAnswer[list[object]]:
        return PageAnswer(None, "not allowed")

    share_group_offsets = group_lag


@pytest.mark.parametrize(("group_type", "lags"), [("consumer", ["to_stable", "to_end"]), ("share", ["lag"])])
async def test_a_lag_that_is_refused_is_not_zero(group_type: str, lags: list[str]) -> None:
    view = await one(PageRequest(WithoutOffsets(group_type), {"id": "g"}))
    assert [view.values[name] for name in lags] == [None] * len(lags)


async def test_a_sink_is_shown_with_its_members(visitor: Visitor) -> None:
    text = Seen((await visitor.get("/sinks")).body).text
    for part in ("spark/late-orders", "run 1", "1 open", "orders", "payments"):
        assert part in text


async def test_the_overview_has_the_shards_and_the_disk(visitor: Visitor) -> None:
    text = Seen((await visitor.get("/")).body).text
    assert " active" in text
    assert "Disk, free" in text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nothing", 404),
        ("/transactions?state=Odd", 404),
        ("/transactions?page=x", 404),
        ("/transaction", 404),
        ("/records?name=orders&at=soon", 404),
        ("/records?name=orders&as=odd", 404),
        ("/static/app.py", 404),
        ("/static/page.css", 200),
        ("/static/icon.svg", 200),
        ("/transaction?id=nobody", 200),
        ("/topic?name=nothing", 200),
        ("/records?name=orders&partition=99", 200),
    ],
)
async def test_an_address_that_makes_no_sense_is_no_defect(visitor: Visitor, path: str, status: int) -> None:
    assert (await visitor.ask("GET", path)).status == status


async def test_a_page_refreshes_itself_as_often_as_its_user_wants(visitor: Visitor) -> None:
    assert (await visitor.get("/")).headers["refresh"] == "15"
    chosen = await visitor.get("/pace", every="off", back="/topics")
    assert (chosen.status, chosen.headers["location"]) == (303, "/topics")
    assert "refresh" not in (await visitor.get("/")).headers
    assert "refresh" not in (await visitor.get("/records", name="orders")).headers


@pytest.mark.parametrize(
    "back", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", ""]
)
async def test_no_address_leads_elsewhere(visitor: Visitor, back: str) -> None:
    assert (await visitor.get("/pace", every="5", back=back)).headers["location"] == "/"


async def test_a_foreign_name_is_refused(visitor: Visitor) -> None:
    visitor.host = "evil.example:7080"
    visit = await visitor.get("/")
    assert (visit.status, "orders" in visit.body) == (403, False)
    assert visit.headers["content-security-policy"] == HEADERS["content-security-policy"]


async def test_a_foreign_form_is_refused(visitor: Visitor) -> None:
    assert (await visitor.post("/logout", origin="https://evil.example")).status == 403

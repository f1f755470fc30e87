"""The endpoint: it answers scrapes, fails them in words, and never stands in the server's way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest
import structlog

from coordinator_runtime.store import StoreFailed
from coordinator_runtime.store_statistics import StoreStatistics
from coordinator_server.connection_numbers import ConnectionNumbers
from coordinator_server.metrics.collector import ReadingsCollector, registry_of
from coordinator_server.metrics.endpoint import MetricsEndpoint, listen_for_scrapes
from coordinator_server.metrics.instruments import Readings, single
from tests.harness.patience import DEADLINE_SECONDS

HOST = "127.0.0.1"


class Answer(NamedTuple):
    status: int
    text: str


class Scraped:
    """An endpoint over numbers that the test makes up."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, reading_ms_max: int = 30_000) -> None:
        self.taken = 0
        self.failure: Exception | None = None
        self.store_failure: Exception | None = None
        collector = ReadingsCollector(
            loop, self._take, self._statistics, self._connections, reading_ms_max=reading_ms_max
        )
        self.endpoint: MetricsEndpoint = listen_for_scrapes(HOST, 0)
        self.endpoint.publish(registry_of(collector))

    def _take(self) -> Readings:
        self.taken += 1
        if self.failure is not None:
            raise self.failure
        return {"txn_coordinator_parked_calls": single(self.taken)}

    def _statistics(self) -> StoreStatistics:
        if self.store_failure is not None:
            raise self.store_failure
        return StoreStatistics(1, 6, 2, 3, 4, 5)

    def _connections(self) -> ConnectionNumbers:
        return ConnectionNumbers(connections_max=9, open_connections=2)

    def get(self, path: str = "/metrics") -> Answer:
        """Called from another thread than the loop's."""
        try:
            with urlopen(f"http://{HOST}:{self.endpoint.port}{path}", timeout=DEADLINE_SECONDS) as response:
                return Answer(response.status, response.read().decode())
        except HTTPError as error:
            with error:
                return Answer(error.code, error.read().decode())


@pytest.fixture
async def scraped() -> AsyncIterator[Scraped]:
    scraped = Scraped(asyncio.get_running_loop(), reading_ms_max=200)
    yield scraped
    await asyncio.to_thread(scraped.endpoint.close)


@pytest.fixture(autouse=True)
def nothing_on_stderr(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """A stream for log lines alone."""
    yield
    assert "Traceback" not in capfd.readouterr().err


async def test_a_scrape_is_taken_on_the_loop_and_holds_what_the_store_says(scraped: Scraped) -> None:
    answer = await asyncio.to_thread(scraped.get)
    assert answer.status == 200
    assert "txn_coordinator_parked_calls 1.0\n" in answer.text
    assert "txn_store_write_stalls_total 5.0\n" in answer.text


async def test_scrapes_at_the_same_time_are_all_answered(scraped: Scraped) -> None:
    answers = await asyncio.gather(*(asyncio.to_thread(scraped.get) for _ in range(20)))
    assert {answer.status for answer in answers} == {200}


async def test_other_paths_say_where_the_metrics_are(scraped: Scraped) -> None:
    assert await asyncio.to_thread(scraped.get, "/") == (404, "the metrics are at /metrics\n")


async def test_a_loop_that_is_held_up_fails_the_scrape_in_words_and_is_not_asked_later(scraped: Scraped) -> None:
    answers: list[Answer] = []
    with structlog.testing.capture_logs() as lines:
        scraper = threading.Thread(target=lambda: answers.append(scraped.get()))
        scraper.start()
        scraper.join()  # The loop is this thread, and it waits here.
    assert answers == [(503, "no metrics: the server did not come to it within 200 ms\n")]
    assert [line["event"] for line in lines] == ["scrape_failed"]
    await asyncio.sleep(0)
    assert scraped.taken == 0
    assert (await asyncio.to_thread(scraped.get)).status == 200


@pytest.mark.parametrize("where", ["failure", "store_failure"])
async def test_a_failure_fails_the_scrape_and_nothing_else(scraped: Scraped, where: str) -> None:
    setattr(scraped, where, StoreFailed("the disk"))
    with structlog.testing.capture_logs() as lines:
        assert await asyncio.to_thread(scraped.get) == (503, "no metrics: the disk\n")
    assert [(line["event"], line["failure"]) for line in lines] == [("scrape_failed", "StoreFailed: the disk")]
    setattr(scraped, where, None)
    assert (await asyncio.to_thread(scraped.get)).status == 200


def test_after_the_loop_has_ended_a_scrape_says_so() -> None:
    loop = asyncio.new_event_loop()
    scraped = Scraped(loop)
    loop.close()
    assert scraped.get() == (503, "no metrics: the server has stopped\n")
    scraped.endpoint.close()


async def test_a_closed_endpoint_answers_no_scrape_and_frees_its_port(scraped: Scraped) -> None:
    port = scraped.endpoint.port
    await asyncio.to_thread(scraped.endpoint.close)
    with pytest.raises(URLError):
        await asyncio.to_thread(scraped.get)
    again = listen_for_scrapes(HOST, port)
    await asyncio.to_thread(again.close)


async def test_a_port_that_is_taken_is_refused(scraped: Scraped) -> None:
    with pytest.raises(OSError, match="in use"):
        listen_for_scrapes(HOST, scraped.endpoint.port)


def test_before_there_is_a_server_a_scrape_says_what_it_waits_for() -> None:
    endpoint = listen_for_scrapes(HOST, 0)
    with pytest.raises(HTTPError) as failed:
        urlopen(f"http://{HOST}:{endpoint.port}/metrics", timeout=DEADLINE_SECONDS)
    with failed.value as error:
        assert (error.code, error.read()) == (503, b"no metrics yet: the store is being opened\n")
    endpoint.close()

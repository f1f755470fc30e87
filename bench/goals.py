"""Goals compared with Kafka, and the part of them that a run reached.

Goals of throughput are ratios to Kafka in the same run, so they mean the same on every machine. Goals in milliseconds
and microseconds were set on a machine on which Kafka's broker took 555 us of processor time for a transaction of 64
producers. Compare them with Kafka's figure in the table, or use the last goal of processor time, which is a ratio.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from bench.cases import kafka_front, share
from bench.cases.spark_read import CEILING, STREAM
from bench.contenders import JAVA, RAW
from bench.kafka_clients import LIBRDKAFKA
from bench.load.transactions import UNARY_TRANSACT
from bench.results import Result, Side, ratio

STOCK: Final = "Java, stock"
Figures = Callable[[Result, Sequence[Result]], float | None]


@dataclass(frozen=True, slots=True)
class Goal:
    """Goal of one contender of ours in one quantity."""

    case: str
    row: str
    """Beginning of the row's label."""
    contender: str
    quantity: str
    figure: Figures
    must: float
    """Figure that must be reached, because it is certainly possible."""
    aim: float
    is_less_better: bool = False

    def is_reached(self, figure: float, wanted: float) -> bool:
        """Return True if a figure is as good as this goal."""
        return figure <= wanted if self.is_less_better else figure >= wanted


def _times(rival: str, side: Side = Side.KAFKA) -> Figures:
    def figure(result: Result, results: Sequence[Result]) -> float | None:
        found = _find(results, result.case, result.row, side, rival)
        return None if found is None else ratio(result, found)

    return figure


def _field_times(field: str, rival: str) -> Figures:
    def figure(result: Result, results: Sequence[Result]) -> float | None:
        found = _find(results, result.case, result.row, Side.KAFKA, rival)
        mine, other = result.median_of(field), None if found is None else found.median_of(field)
        return None if mine is None or not other else mine / other

    return figure


def _median(field: str) -> Figures:
    return lambda result, _: result.median_of(field)


def _errors(result: Result, _: Sequence[Result]) -> float:
    return result.errors


def _faster(case: str, row: str, contender: str, must: float, aim: float, rival: str = STOCK) -> Goal:
    return Goal(case, row, contender, f"times {rival}", _times(rival), must, aim)


def _share(case: str, row: str, contender: str, ceiling: str, must: float, aim: float) -> Goal:
    """Return a goal relative to another contender of ours, which does less of the work."""
    return Goal(case, row, contender, f"share of {ceiling}", _times(ceiling, Side.OURS), must, aim)


def _less(case: str, row: str, contender: str, field: str, must: float, aim: float) -> Goal:
    return Goal(case, row, contender, field, _median(field), must, aim, is_less_better=True)


def _server_time(case: str, row: str, contender: str, must: float, aim: float, rival: str = STOCK) -> Goal:
    """Return a goal for the server's processor time, as a multiple of a rival's."""
    times = _field_times("server_us", rival)
    return Goal(case, row, contender, f"server_us, times {rival}", times, must, aim, is_less_better=True)


def _p99(case: str, row: str, contender: str, must: float, aim: float, rival: str) -> Goal:
    """Return a goal for a latency, as a multiple of a rival's."""
    times = _field_times("p99_ms", rival)
    return Goal(case, row, contender, f"p99_ms, times {rival}", times, must, aim, is_less_better=True)


def _front_goals() -> Iterable[Goal]:
    """Yield the goals of Kafka's own clients. Source: kafka-front 6."""
    front, stock = kafka_front.CASE.name, {JAVA: STOCK, LIBRDKAFKA: f"{LIBRDKAFKA}, stock"}
    for client, producers, must, aim in (
        (JAVA, "1 producer", 1.2, 2),
        (JAVA, "16 producers", 1.5, 2.5),
        (JAVA, "64 producers", 1.5, 2.5),
        (LIBRDKAFKA, "1 producer", 0.8, 1),
        (LIBRDKAFKA, "16 producers", 1.2, 1.5),
    ):
        yield _faster(front, f"{client}, 3 x 100 B, {producers}", client, must, aim, stock[client])
    for client, rival in stock.items():
        row = f"{client}, 3 x 100 B, 16 producers"
        yield _server_time(front, row, client, 0.5, 0.25 if client == JAVA else 0.33, rival)
        yield _p99(front, row, client, 1, 0.5, rival)
        row = f"{client} reads"
        yield _faster(front, row, client, 0.8, 1, rival)
        yield _server_time(front, row, client, 0.7, 0.4, rival)
        yield _share(front, row, kafka_front.converted(client), client, 0.3, 0.6)
    for row in (kafka_front.BULK, kafka_front.BULK_TRANSACTIONS):
        yield _faster(front, row, JAVA, 0.7, 0.9)
    yield _less(front, kafka_front.CODEC, JAVA, "figure", 10, 5)
    yield Goal(front, kafka_front.POLLS, RAW, "times gRPC", _times(kafka_front.GRPC, Side.OURS), 1, 1.5)
    yield _less(front, kafka_front.IDLE, RAW, "figure", 8_192, 4_096)


_TXN: Final = "transactions"
GOALS: Final = (
    _faster(_TXN, "3 x 1 KiB, 1 producer, commit", "SDK", 4, 5),
    _less(_TXN, "3 x 1 KiB, 1 producer, commit", "SDK", "p99_ms", 4, 3),
    _faster(_TXN, "3 x 1 KiB, 16 producers, commit", "SDK", 2.3, 3),
    _faster(_TXN, "3 x 1 KiB, 64 producers, commit", "SDK", 3, 4),
    _less(_TXN, "3 x 1 KiB, 64 producers, commit", "SDK", "p99_ms", 30, 20),
    _less(_TXN, "3 x 1 KiB, 64 producers, commit", "SDK", "server_us", 180, 140),
    _server_time(_TXN, "3 x 1 KiB, 64 producers, commit", "SDK", 0.27, 0.16),
    _faster(_TXN, "3 x 1 KiB, 256 producers, commit", "SDK", 5, 6),
    _less(_TXN, "3 x 1 KiB, 256 producers, commit", "SDK", "p99_ms", 110, 80),
    _faster(_TXN, "3 x 1 KiB, 64 producers, commit", "stubs", 1, 1.5),
    _faster(_TXN, "3 x 1 KiB, 64 producers, commit", "stubs, three calls", 0.6, 1),
    _faster(_TXN, "3 x 1 KiB, 64 producers, abort", "SDK", 1.3, 2),
    _faster("init_producer_id", "new ids, 64 at a time", "session", 1, 1.5, "raw, stock"),
    _less("back_to_back", "", "SDK", "p999_ms", 8, 5),
    Goal("back_to_back", "", "SDK", "failed", _errors, 0, 0, is_less_better=True),
    _faster("offset_commits", "64 groups", "session", 1, 2),
    _faster("produce", "records of 64 KiB", "SDK", 1.2, 2),
    _faster("consume", "records of 1 KiB", "SDK, Arrow batches", 1.5, 2),
    _faster("consume", "records of 100 B", "SDK, Arrow batches", 1.5, 2.5),
    _faster("spark_read", "records of 1 KiB", "txnlog source", 1.7, 2, "kafka source, stock"),
    _faster("spark_read", "records of 100 B", "txnlog source", 2.5, 3.5, "kafka source, stock"),
    _share("spark_read", "records of 1 KiB", "txnlog source", CEILING, 0.5, 0.7),
    _share("spark_read", "records of 100 B", "txnlog source", CEILING, 0.6, 0.8),
    _share("spark_read", "records of 1 KiB", STREAM, "txnlog source", 0.85, 1),
    _share("spark_read", "records of 100 B", STREAM, "txnlog source", 0.85, 1),
    _faster("spark_idle", "an empty trigger", "txnlog source", 2, 4, "kafka source, stock"),
    _faster("spark_sink", "records of 1 KiB, in bulk", "txnlog sink", 1, 2, "kafka sink, stock"),
    _faster("spark_sink", "topic to topic", "txnlog sink", 0.67, 1, "kafka sink, stock"),
    _less("recovery", "", "stubs", "figure", 3_000, 1_000),
    _less("memory", "idle", "SDK", "figure", 250, 80),
    _less("memory", "under load", "SDK", "figure", 250, 150),
    _less("disk", "3 x 100 B", "stubs", "figure", 1_500, 900),
    _less("disk", "3 x 100 B", UNARY_TRANSACT, "figure", 860, 740),
    _faster(share.CASE.name, share.MANY, JAVA, 2, 2),
    _faster(share.CASE.name, share.MANY, "SDK", 2, 4),
    _faster(share.CASE.name, share.ONE, JAVA, 2, 2),
    _faster(share.CASE.name, share.ONE, "SDK", 2, 4),
    *_front_goals(),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A goal and the measured figure."""

    goal: Goal
    row: str
    figure: float

    @property
    def verdict(self) -> str:
        """Verdict in one word."""
        if self.goal.is_reached(self.figure, self.goal.aim):
            return "aim"
        return "must" if self.goal.is_reached(self.figure, self.goal.must) else "missed"


def outcomes(results: Sequence[Result]) -> Iterable[Outcome]:
    """Yield the outcomes of the goals that the run measured."""
    for goal in GOALS:
        result = _find(results, goal.case, goal.row, Side.OURS, goal.contender)
        figure = None if result is None or result.problem else goal.figure(result, results)
        if result is not None and figure is not None:
            yield Outcome(goal, result.row, figure)


def _find(results: Sequence[Result], case: str, row: str, side: Side, contender: str) -> Result | None:
    return next(
        (
            result
            for result in results
            if (result.case, result.side, result.contender) == (case, side, contender) and result.row.startswith(row)
        ),
        None,
    )

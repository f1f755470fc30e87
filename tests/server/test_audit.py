"""The audit log: who did what to whom, from where, and what came of it; and no flood fills it."""

from __future__ import annotations

import json
import logging
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog
from google.protobuf.message import Message

from coordinator_api.v1 import admin_pb2, log_pb2
from coordinator_client import Admin, Producer, Rejected
from coordinator_core.permissions import PERMISSIONS
from coordinator_protocol.acls import Permission, ResourceType
from coordinator_protocol.errors import ErrorCode, Refused, UnknownOutcome
from coordinator_protocol.methods import Method, methods_with
from coordinator_runtime.pending import Pending, failed, settled
from coordinator_runtime.ports import CallContext
from coordinator_server.build import SERVICES
from coordinator_server.calls import Serve
from coordinator_server.exits import ExitStatus
from coordinator_server.grpc_front import grpc_call
from coordinator_server.grpc_front.dispatcher import endpoint_table
from coordinator_server.grpc_front.grpc_call import LISTED_MAX, GrpcCall
from coordinator_server.logs import AUDIT_FILES_KEPT, LogFormat, LogLevel, audit_file, configure_logs
from coordinator_server.security.audit import ALIKE_MAX, ALIKE_MS, LINES_MAX, LINES_MS, AuditLog
from coordinator_server.traffic.admission import Admission, AdmissionLimits
from coordinator_server.traffic.gatekeeper import Gatekeeper
from tests.harness.guarded_server import SUPER_USERS
from tests.harness.manual_clock import ManualClock
from tests.harness.server_process import ServerProcess
from tests.server.test_refused_start import start

ACTS = methods_with(lambda rule: rule.is_administrative)
ENDPOINTS = endpoint_table(SERVICES, parts_max=100_000, answer_bytes_max=1 << 20)
ROOT = CallContext(principal="User:root", client_id="cli", host="10.0.0.1", method="CreateTopics")
STRANGER = CallContext(principal="User:stranger", client_id="c", host="10.0.0.2", method="Fetch")
READ_TOPIC = (Permission.READ, ResourceType.TOPIC)


class Book:
    """An audit log, and the lines that were written."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.clock = ManualClock()
        self.log = AuditLog(self.clock, lambda kind, **fields: self.lines.append({"kind": kind} | fields))

        self.gatekeeper = Gatekeeper(Admission(AdmissionLimits(), lambda: 0), self.clock)
        self.gatekeeper.auditor = self.log
        self.gatekeeper.open()

    def act(self, reply: Pending[Any], method: Method = Method.CREATE_TOPICS, request: Message | None = None) -> None:
        """A call of this method is answered so."""
        if request is None:
            request = log_pb2.CreateTopicsRequest(topics=[log_pb2.NewTopic(name="orders")])
        self.call(method, request, lambda _request, _context: reply)

    def call(self, method: Method, request: Message, serve: Serve) -> None:
        endpoint = replace(ENDPOINTS[method], serve=serve)
        self.gatekeeper.begin(GrpcCall(endpoint, request.SerializeToString(), ROOT))


def created(code: int = 0) -> log_pb2.CreateTopicsResponse:
    return log_pb2.CreateTopicsResponse(results=[log_pb2.TopicResult(name="orders", error_code=code)])


def test_an_act_says_who_from_where_what_and_what_came_of_it() -> None:
    book = Book()
    book.act(settled(created()))
    (line,) = book.lines
    assert json.loads(line.pop("request")) == {"topics": [{"name": "orders"}]}
    assert line == {
        "kind": "act",
        "principal": "User:root",
        "client_id": "cli",
        "host": "10.0.0.1",
        "method": "CreateTopics",
        "result": "done",
        "codes": [],
        "unwritten_before": 0,
    }


@pytest.mark.parametrize(
    ("reply", "result", "codes"),
    [
        (settled(created(ErrorCode.TOPIC_ALREADY_EXISTS)), "refused", ["TOPIC_ALREADY_EXISTS"]),
        (settled(created(38)), "refused", ["38"]),
        (failed(Refused(ErrorCode.INVALID_REQUEST, "no")), "refused", ["INVALID_REQUEST"]),
        (failed(UnknownOutcome("the disk")), "unknown", ["REQUEST_TIMED_OUT"]),
        (failed(KeyError("a bug")), "unknown", []),
    ],
)
def test_an_act_says_what_came_of_it(reply: Pending[Any], result: str, codes: list[str]) -> None:
    book = Book()
    book.act(reply)
    assert [(line["result"], line["codes"]) for line in book.lines] == [(result, codes)]


def test_an_act_that_is_refused_at_once_has_its_line_too() -> None:
    book = Book()

    def serve(_request: object, _context: CallContext) -> Pending[Any]:
        raise Refused(ErrorCode.INVALID_REQUEST, "no")

    book.call(Method.CREATE_ACLS, admin_pb2.CreateAclsRequest(), serve)
    assert [(line["method"], line["result"]) for line in book.lines] == [("CreateAcls", "refused")]


def test_a_line_is_written_when_the_call_is_answered_and_not_before() -> None:
    book = Book()
    reply: Pending[Any] = Pending()
    book.act(reply)
    assert book.lines == []
    reply.succeed(created())
    assert len(book.lines) == 1


def test_who_only_looks_leaves_no_line() -> None:
    book = Book()
    book.act(settled(log_pb2.DescribeTopicsResponse()), Method.DESCRIBE_TOPICS, log_pb2.DescribeTopicsRequest())
    assert book.lines == []


def test_everything_that_changes_what_others_have_is_an_act() -> None:
    changes = {Permission.CREATE, Permission.DELETE, Permission.ALTER, Permission.ALTER_CONFIGS, Permission.BACKUP}
    changing = {method for method, asks in PERMISSIONS.items() if any(ask.permission in changes for ask in asks)}
    by_reading = {Method.FENCE_PRODUCERS, Method.ABORT_TRANSACTIONS, Method.ALTER_SHARE_GROUP_OFFSETS}
    assert changing | by_reading == ACTS
    for method in (
        Method.PRODUCE,
        Method.TRANSACT,
        Method.END_TXN,
        Method.INIT_PRODUCER_ID,
        Method.ADD_PARTITIONS_TO_TXN,
    ):
        assert method not in ACTS, "one of a pipeline's own"
    assert {
        Method.CREATE_TOPICS,
        Method.DELETE_TOPICS,
        Method.DELETE_RECORDS,
        Method.ALTER_TOPIC_CONFIGS,
        Method.ALTER_GROUP_CONFIGS,
        Method.DELETE_GROUPS,
        Method.OFFSET_DELETE,
        Method.ALTER_SHARE_GROUP_OFFSETS,
        Method.DELETE_SHARE_GROUP_OFFSETS,
        Method.CREATE_ACLS,
        Method.DELETE_ACLS,
        Method.FENCE_PRODUCERS,
        Method.ABORT_TRANSACTIONS,
        Method.ABORT_HANGING_TRANSACTIONS,
        Method.WRITE_TXN_MARKERS,
        Method.UNLOAD_SHARD,
        Method.CREATE_BACKUP,
    } <= ACTS


def test_a_long_request_is_cut() -> None:
    book = Book()
    request = log_pb2.CreateTopicsRequest(topics=[log_pb2.NewTopic(name="t" * 10_000)])
    book.act(settled(created()), request=request)
    assert len(book.lines[0]["request"]) == grpc_call.REQUEST_CHARACTERS_MAX


def test_of_a_request_that_is_not_told_nothing_is_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    book, told = Book(), list[object]()
    monkeypatch.setattr(grpc_call, "MessageToJson", lambda request, **_how: told.append(request) or "{}")
    for _ in range(ALIKE_MAX + 5):
        book.act(settled(created()))
    assert len(told) == len(book.lines) == ALIKE_MAX


def test_of_a_list_without_end_the_beginning_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    book, looked_at = Book(), list[int]()
    of_all = grpc_call.MessageToJson
    monkeypatch.setattr(
        grpc_call,
        "MessageToJson",
        lambda request, **how: looked_at.append(len(request.topics)) or of_all(request, **how),
    )
    request = log_pb2.DeleteTopicsRequest(topics=[log_pb2.TopicName(name=f"topic-{n}") for n in range(10_000)])
    book.act(settled(log_pb2.DeleteTopicsResponse()), Method.DELETE_TOPICS, request)
    assert looked_at == [LISTED_MAX]
    assert len(request.topics) == 10_000
    assert book.lines[0]["request"].startswith('{"topics": [{"name": "topic-0"}, ')


def test_of_lines_that_say_the_same_few_are_written_and_the_next_counts_the_others() -> None:
    book = Book()
    for number in range(100):
        book.log.refused(STRANGER, *READ_TOPIC, f"secret-{number}")
    assert len(book.lines) == ALIKE_MAX
    book.log.refused(STRANGER, Permission.READ, ResourceType.GROUP, "g" * 1_000)
    assert book.lines[-1]["resource_name"] == "g" * 200
    book.clock.advance(ALIKE_MS)
    book.log.refused(STRANGER, *READ_TOPIC, "another")
    assert book.lines[-1]["unwritten_before"] == 100 - ALIKE_MAX
    assert book.log.counts()["refused", "yes"] == ALIKE_MAX + 2
    assert book.log.counts()["refused", "no"] == 100 - ALIKE_MAX


def test_many_callers_together_do_not_fill_it_either() -> None:
    book = Book()
    for number in range(10 * LINES_MAX):
        book.log.refused(CallContext(principal=f"User:{number}"), *READ_TOPIC, "t")
    assert len(book.lines) == LINES_MAX
    book.clock.advance(LINES_MS)
    book.log.refused(CallContext(principal="User:late"), Permission.READ, ResourceType.GROUP, "g")
    assert len(book.lines) == LINES_MAX + 1
    assert sum(book.log.counts().values()) == 10 * LINES_MAX + 1


def test_callers_of_the_past_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator_server.security.audit.REMEMBERED_MAX", 3)
    book = Book()
    for number in range(20):
        book.log.refused(CallContext(principal=f"User:{number}"), *READ_TOPIC, "t")
    assert len(book.lines) == 3 + ALIKE_MAX, "those beyond share one place"
    book.clock.advance(ALIKE_MS)
    book.log.refused(CallContext(principal="User:late"), *READ_TOPIC, "t")
    assert book.lines[-1]["principal"] == "User:late"


def test_a_file_of_its_own_is_the_owners_alone_and_is_followed_by_another(tmp_path: Path) -> None:
    configure_logs(LogFormat.JSON, LogLevel.ERROR)
    file = tmp_path / "audit.jsonl"
    try:
        with audit_file(file, bytes_max=2_000):
            log = AuditLog(ManualClock())
            for number in range(8):
                log.fenced("User:till", "c", "10.0.0.2", transactional_id=f"till-{number}" + "x" * 300)
    finally:
        logging.getLogger("audit").setLevel(logging.NOTSET)
        structlog.reset_defaults()
    lines = [json.loads(line) for each in sorted(tmp_path.iterdir()) for line in each.read_text().splitlines()]
    assert sorted(line["transactional_id"][5] for line in lines) == list("01234567")
    assert {line["event"] for line in lines} == {"fenced"}
    assert all("timestamp" in line for line in lines)
    assert 2 <= len(list(tmp_path.iterdir())) <= AUDIT_FILES_KEPT
    assert {stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()} == {0o600}


@pytest.mark.slow
def test_a_server_writes_acts_refusals_and_fences(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    environment = {SUPER_USERS: "User:ANONYMOUS", "TXN_AUDIT_FILE": str(file)}
    server = ServerProcess(tmp_path / "data", module="tests.harness.guarded_server", environment=environment)
    with server:
        with Admin(server.address) as admin:
            admin.create_topic("orders")
            with pytest.raises(Rejected):
                admin.create_topic("orders")
        for _instance in range(2):
            with Producer(server.address, transactional_id="till-1") as till, till.transaction() as txn:
                txn.send("orders", b"x")
        server.terminate()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    acts = [line for line in lines if line["event"] == "act"]
    assert [(line["method"], line["result"], line["principal"]) for line in acts] == [
        ("CreateTopics", "done", "User:ANONYMOUS"),
        ("CreateTopics", "refused", "User:ANONYMOUS"),
    ]
    assert [line["transactional_id"] for line in lines if line["event"] == "fenced"] == ["till-1"]


@pytest.mark.slow
def test_a_file_that_cannot_be_written_refuses_the_start(tmp_path: Path) -> None:
    status, lines = start(tmp_path, "--data-dir", "data", "--set", "audit_file=no/audit.jsonl")
    assert status == ExitStatus.USAGE
    assert "the audit file no/audit.jsonl cannot be written: No such file or directory" in lines[-1]
    assert not (tmp_path / "data").exists()

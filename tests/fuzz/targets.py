"""Targets of fuzzing: each takes bytes, and raises only where the product has a bug."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from tests.fuzz import kafka, parsers, requests, stored

Try = Callable[[bytes], None]
RUN_INPUTS: Final = 200
"""Inputs that one run of a target takes before it begins anew."""


class Run(NamedTuple):
    """A target that has seen nothing yet."""

    attempt: Try
    """Take one input."""
    check: Callable[[], None] = lambda: None
    """Assert the rules that hold after any inputs."""


class Target(NamedTuple):
    """One way in."""

    name: str
    begin: Callable[[], Run]
    seeds: Callable[[], Iterable[bytes]] = lambda: ()
    """Inputs that mean something, to begin with."""


def _calls(make: Callable[[], requests.Server]) -> Callable[[], Run]:
    def begin() -> Run:
        server = make()
        return Run(server.calls, server.check)

    return begin


def _sessions(make: Callable[[], requests.Server]) -> Callable[[], Run]:
    def begin() -> Run:
        server = make()
        return Run(server.session, server.check)

    return begin


def _verified() -> Run:
    rows = stored.Rows()
    return Run(rows.verified, rows.check)


def _started() -> Run:
    rows = stored.Rows()
    return Run(rows.started, rows.check)


def _tokens_read() -> Run:
    files = parsers.TokenFiles()
    return Run(files.read, files.check)


def _tokens_shown() -> Run:
    files = parsers.TokenFiles()
    return Run(files.shown, files.check)


def _of_signed(wanted: Callable[[parsers.SignedTokens], Try]) -> Callable[[], Run]:
    def begin() -> Run:
        tokens = parsers.SignedTokens()
        return Run(wanted(tokens), tokens.check)

    return begin


TARGETS: Final = (
    Target("requests", _calls(requests.by_root), requests.seeds),
    Target("requests_without_lane", _calls(requests.by_root_without_lane), requests.seeds),
    Target("requests_of_a_stranger", _calls(requests.by_stranger), requests.seeds),
    Target("session", _sessions(requests.by_root)),
    Target("session_of_a_stranger", _sessions(requests.by_stranger)),
    Target("stored_rows_verified", _verified, stored.seeds),
    Target("stored_rows_started", _started, stored.seeds),
    Target("stored_batches", lambda: Run(parsers.stored_batches)),
    Target("payloads", lambda: Run(parsers.payloads), parsers.payload_seeds),
    Target("members", lambda: Run(parsers.members), parsers.member_seeds),
    Target("fetch_answers", lambda: Run(parsers.fetch_answers), parsers.fetch_seeds),
    Target("kafka_frames", lambda: Run(kafka.frames), kafka.frame_seeds),
    Target("kafka_requests", lambda: Run(kafka.requests), kafka.request_seeds),
    Target("acls", lambda: Run(parsers.acls)),
    Target("tokens_read", _tokens_read),
    Target("tokens_shown", _tokens_shown),
    Target("key_sets_read", _of_signed(lambda tokens: tokens.read)),
    Target("jwts_of_a_stranger", _of_signed(lambda tokens: tokens.shown)),
    Target("jwts_signed", _of_signed(lambda tokens: tokens.signed)),
)
BY_NAME: Final = {target.name: target for target in TARGETS}


class Story:
    """A target's run, that begins anew from time to time; and the inputs since, which are what breaks it again."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.inputs: list[bytes] = []
        self._run = target.begin()

    def tell(self, data: bytes) -> None:
        """Take one more input."""
        if len(self.inputs) == RUN_INPUTS:
            self._run.check()
            self.inputs, self._run = [], self._target.begin()
        self.inputs.append(data)
        self._run.attempt(data)

    def end(self) -> None:
        """No more input comes."""
        self._run.check()

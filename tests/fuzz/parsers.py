"""Everything that reads bytes of others without a server around it: batches, payloads, messages of group members,
answers, files of tokens and keys, tokens, rules."""

from __future__ import annotations

import base64
import json
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from google.protobuf.message import DecodeError
from jwt.algorithms import ECAlgorithm

from coordinator_api.v1 import log_pb2
from coordinator_client.encodings import decode_rows
from coordinator_client.encodings import unpack as unpack_fetched
from coordinator_client.errors import Rejected
from coordinator_client.fetch_reply import parse_fetch_reply
from coordinator_core.acl_index import AclIndex, AclQuestion
from coordinator_protocol.acls import (
    ANY_PRINCIPAL,
    PERMISSIONS_OF,
    Acl,
    AclFilter,
    PatternType,
    PermissionType,
    ResourceType,
    check_acl,
)
from coordinator_protocol.batch import (
    BatchHeader,
    Compression,
    Encoding,
    cut_row,
    decode_header,
    split_row,
    stored_crc,
    verify_batch,
)
from coordinator_protocol.compression import pack
from coordinator_protocol.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_cooperative_user_data,
    decode_sticky_user_data,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    subscribed_topics,
    version_of,
)
from coordinator_protocol.errors import Refused
from coordinator_protocol.marker import decode_marker_payload
from coordinator_server.security.authentication import JwtRules, Unauthenticated
from coordinator_server.security.jwt_tokens import KeySetRefused, ReloadingKeySet, read_key_set
from coordinator_server.security.tokens import TOKEN_PREFIX, ReloadingTokens, TokensRefused, new_token, read_tokens
from partition_log.batch_checks import why_unreadable
from tests.fuzz.choices import Choices
from tests.harness.manual_clock import ManualClock

_NOW: Final = 1_800_000_000
_RECORDS: Final = log_pb2.Records(
    records=[{"key": b"k", "value": b"v", "timestamp_ms": 1, "headers": [{"key": "h", "value": b"x"}]}, {"value": b""}]
).SerializeToString()


def stored_batches(data: bytes) -> None:
    """Rows of a log: whole, cut, with a tail, or none of it."""
    batch, _tail = split_row(data)
    for may_be_cut in (False, True):
        with suppress(Refused):
            decode_header(batch, may_be_cut=may_be_cut)
    with suppress(Refused):
        stored_crc(data)
    with suppress(Refused):
        verify_batch(batch)
        assert len(cut_row(data)) <= len(data)
    with suppress(Refused):
        decode_marker_payload(data)


def payloads(data: bytes) -> None:
    """Payloads that the server takes can be read by every reader of ours; those that it refuses, by none."""
    choices = Choices(data)
    encoding = choices.one_of([each for each in Encoding if each is not Encoding.CONTROL])
    compression = choices.one_of(list(Compression))
    record_count = 1 + choices.number(4)
    last_offset_delta = record_count - 1 + choices.number(3)
    payload = choices.changed(_RECORDS) if choices.number(2) else choices.bytes(4096)
    payload = choices.changed(pack(payload, compression)) if choices.number(2) else pack(payload, compression)
    why = why_unreadable((int(encoding), int(compression), record_count, last_offset_delta, payload))
    header = BatchHeader(
        base_offset=0,
        record_count=record_count,
        base_timestamp_ms=0,
        max_timestamp_ms=0,
        encoding=encoding,
        compression=compression,
        hole_count=last_offset_delta + 1 - record_count,
    )
    unreadable = None
    try:
        decode_rows(unpack_fetched(payload, header, "here"), header, "here")
    except Rejected as error:
        unreadable = str(error)
    assert (why is None) is (unreadable is None), f"the server says {why}, and readers say {unreadable}"


def members(data: bytes) -> None:
    """Subscriptions of members of classic groups, and assignments by their leaders."""
    with suppress(Refused):
        subscription = decode_subscription(data)
        again = decode_subscription(encode_subscription(subscription))
        assert (sorted(again.topics), again.owned) == (sorted(subscription.topics), subscription.owned)
        assert subscribed_topics(data) == frozenset(subscription.topics)
    with suppress(Refused):
        assignment = decode_assignment(data)
        assert decode_assignment(encode_assignment(assignment)).partitions == assignment.partitions
    with suppress(Refused):
        version_of(data)
    decode_sticky_user_data(data)
    decode_cooperative_user_data(data)


def fetch_answers(data: bytes) -> None:
    """The SDK's own parser of answers reads what the library reads; unknown fields it may refuse, because no
    server sends any of the two kinds that protobuf has given up."""
    with suppress(DecodeError):
        parse_fetch_reply(data)
    try:
        expected = log_pb2.FetchResponse.FromString(data)
    except DecodeError:
        return
    expected.DiscardUnknownFields()
    found = parse_fetch_reply(expected.SerializeToString())
    assert [[bytes(each.payload) for each in result.batches] for result in found.results] == [
        [each.payload for each in result.batches] for result in expected.results
    ]


def acls(data: bytes) -> None:
    """Rules, and questions to them: deny wins over allow, and nothing is allowed that no rule names."""
    choices = Choices(data)
    names = ["t", "te", "test", "*", ""]
    rules = []
    for _rule in range(choices.number(6)):
        resource = choices.one_of(list(ResourceType))
        rule = Acl(
            principal=choices.one_of(["User:a", ANY_PRINCIPAL, "User:", choices.text()]),
            resource_type=resource,
            resource_name=choices.one_of([*names, choices.text()]),
            operation=choices.one_of(sorted(PERMISSIONS_OF[resource])),
            permission_type=choices.one_of(list(PermissionType)),
            pattern_type=choices.one_of([PatternType.LITERAL, PatternType.PREFIXED]),
            host=choices.one_of(["*", "10.0.0.1", "::1", choices.text()]),
        )
        with suppress(Refused):
            check_acl(rule)
            rules.append(rule)
    resource = choices.one_of(list(ResourceType))
    question = AclQuestion(
        principal="User:a",
        resource_type=resource,
        name=choices.one_of(["t", "test", "x"]),
        permission=choices.one_of(sorted(PERMISSIONS_OF[resource])),
        host="10.0.0.1",
    )
    deciding = AclIndex(rules).deciding(question)
    if deciding is None:
        return
    assert deciding in rules
    assert AclFilter().matches(deciding)


class _Files:
    """A directory for the files that the product reads."""

    def __init__(self) -> None:
        directory = Path(mkdtemp())
        weakref.finalize(self, rmtree, directory)
        self.file = directory / "file"
        self.clock = ManualClock(wall_ms=_NOW * 1_000)

    def check(self) -> None:
        """Nothing is left but the one file."""
        assert {each.name for each in self.file.parent.iterdir()} <= {"file"}


class TokenFiles(_Files):
    """Files of static tokens, and what callers show."""

    def __init__(self) -> None:
        super().__init__()
        self._token, self._row = new_token("one", bytes(range(32)), "User:etl", None)
        self.file.write_text(self._row)
        self._kept = ReloadingTokens(self.file, self.clock)

    def read(self, data: bytes) -> None:
        choices = Choices(data)
        self.file.write_bytes(choices.changed(self._row.encode()) if choices.number(2) else choices.rest())
        with suppress(TokensRefused):
            read_tokens(self.file)

    def shown(self, data: bytes) -> None:
        choices = Choices(data)
        shown = choices.changed(self._token.encode()).decode("utf-8", "replace")
        try:
            self._kept.of_token(shown)
        except Unauthenticated as refused:
            _keeps_secret(str(refused), self._token.removeprefix(TOKEN_PREFIX + "one_"))
        else:
            assert shown == self._token, "another token counts too"


class SignedTokens(_Files):
    """Key sets, and tokens signed by a key of theirs, later changed."""

    _CLAIMS: Final = {"iss": "https://idp.example", "aud": "txn", "sub": "etl", "iat": _NOW, "exp": _NOW + 3_600}

    def __init__(self) -> None:
        super().__init__()
        self._key = ec.derive_private_key(7, ec.SECP256R1())
        public = ECAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        self._set = json.dumps({"keys": [{"kid": "a", **public}]}).encode()
        self.file.write_bytes(self._set)
        self._kept = ReloadingKeySet(JwtRules(self.file, "https://idp.example", "txn"), self.clock)
        # Signed once: the signature is another each time, and inputs must do the same each time.
        self._claims = json.dumps(self._CLAIMS).encode()

    def read(self, data: bytes) -> None:
        choices = Choices(data)
        self.file.write_bytes(choices.changed(self._set) if choices.number(2) else choices.rest())
        with suppress(KeySetRefused):
            read_key_set(self.file)

    def shown(self, data: bytes) -> None:
        """Header, claims and signature of which the last is right for nothing that a stranger writes."""
        choices = Choices(data)
        header = choices.changed(b'{"alg":"ES256","kid":"a","typ":"JWT"}')
        claims = choices.changed(self._claims)
        signature = choices.changed(bytes(64))
        shown = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in (header, claims, signature))
        self._refused(choices.changed(shown).decode("utf-8", "replace"))

    def signed(self, data: bytes) -> None:
        """Claims of anybody's choice that the issuer signed: only what the rules want is a principal."""
        choices = Choices(data)
        claims = choices.changed(self._claims)
        try:
            said = json.loads(claims)
            token = jwt.encode(said, self._key, algorithm="ES256", headers={"kid": "a"})
        except (ValueError, TypeError, RecursionError):
            return
        try:
            principal = self._kept.of_token(token)
        except Unauthenticated:
            return
        assert (said["iss"], principal) == ("https://idp.example", f"User:{said['sub']}")
        assert said["aud"] == "txn" or "txn" in said["aud"]

    def _refused(self, shown: str) -> None:
        try:
            self._kept.of_token(shown)
        except Unauthenticated:
            return
        raise AssertionError("an unsigned token counts")


def _keeps_secret(text: str, secret: str) -> None:
    assert secret not in text, "a refusal tells a secret"


def payload_seeds() -> Iterator[bytes]:
    for encoding in range(3):
        for compression in range(5):
            yield bytes([encoding, compression, 1, 0, 1, 0])


def member_seeds() -> Iterator[bytes]:
    subscription = Subscription(topics=("a", "b"), user_data=b"x", owned={"a": (0, 1)}, generation=3, rack_id="r")
    yield from (encode_subscription(subscription, version) for version in range(4))
    yield encode_assignment(Assignment(partitions={"a": (0, 1)}, user_data=b"x"))


def fetch_seeds() -> Iterator[bytes]:
    batch = log_pb2.RecordBatch(record_count=1, encoding=1, payload=_RECORDS, crc32c=7)
    yield log_pb2.FetchResponse(results=[log_pb2.FetchResult(topic="t", batches=[batch, batch])]).SerializeToString()

"""A world with everything that administrators use, and with hanging transactions on demand."""

from __future__ import annotations

from dataclasses import replace

from coordinator_protocol.batch import BatchHeader, Encoding, encode_offsetless
from coordinator_protocol.marker import Outcome
from coordinator_runtime.decision import Operation
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import Authorizer, CallContext
from partition_log.shard import Append
from tests.harness.inside import WorldOptions
from tests.harness.shelf import Shelf
from tests.harness.world import World, partition_name
from txn_coordinator.administration import ActResults, Selection
from txn_coordinator.config import TwoPhase
from txn_coordinator.hanging import Hanging
from txn_coordinator.requests import Description, History
from txn_coordinator.state import Identity

ADMIN = CallContext(client_id="txnctl", host="10.0.0.9")
CLIENT = CallContext(client_id="billing", host="10.0.0.1")
RIVAL = CallContext(client_id="billing-2", host="10.0.0.2")
COMMIT, ABORT = Outcome.COMMIT, Outcome.ABORT


class Administered(World):
    """The world, with short ways to what the administrator's services do. Topic `t` has two partitions."""

    def __init__(
        self,
        two_phase: TwoPhase = TwoPhase.FUSED,
        authorizer: Authorizer | None = None,
        shelf: Shelf | None = None,
    ) -> None:
        options = WorldOptions(two_phase=two_phase)
        super().__init__(options if authorizer is None else replace(options, authorizer=authorizer), shelf)
        self.create_topic("t", 2)

    def _start(self) -> None:
        super()._start()
        admin = self.inside.core.admin
        self.administration, self.hanging = admin.transactions, admin.hanging
        self.foreign_markers = self.inside.core.log.foreign_markers
        self.found: list[Hanging] = []
        self.hanging.on_found = self.found.append

    def ready(self, transactional_id: str, context: CallContext = CLIENT) -> Identity:
        """An id that was initialised."""
        initialised = self.init(transactional_id, context)
        self.settle()
        return initialised.result()

    def opened(self, transactional_id: str, *partitions: str) -> Identity:
        """An id with an open transaction that has a record in each partition."""
        identity = self.ready(transactional_id)
        for partition in partitions or ("t-0",):
            produced = self.produce(transactional_id, identity, partition, ["x"], sequence=0, context=CLIENT)
            self.settle()
            assert produced.result().error is None
        return identity

    def abort(self, *ids: str, dry_run: bool = False, prefix: str = "", older_than_ms: int | None = None) -> ActResults:
        selection = Selection(transactional_ids=ids, prefix=prefix, older_than_ms=older_than_ms)
        aborted = self.administration.abort(selection, ADMIN, dry_run=dry_run)
        self.settle()
        return aborted.result()

    def fence(self, *ids: str, dry_run: bool = False, prefix: str = "", older_than_ms: int | None = None) -> ActResults:
        selection = Selection(transactional_ids=ids, prefix=prefix, older_than_ms=older_than_ms)
        fenced = self.administration.fence(selection, ADMIN, dry_run=dry_run)
        self.settle()
        return fenced.result()

    def history(self, transactional_id: str, limit: int = 20) -> History:
        found = self.asks_history(transactional_id, limit)
        self.settle()
        while not found.is_settled:
            self.tick(0)
        return found.result()

    def asks_history(self, transactional_id: str, limit: int) -> Pending[History]:
        """Ask for the last steps of an id."""

        def history_of(described: list[Description]) -> History:
            (found,) = described
            assert found.history is not None
            return found.history

        return self.inside.reader.describe([transactional_id], ADMIN, history_limit=limit).map(history_of)

    def ordinal(self, partition: str) -> int:
        return self.inside.catalog.resolve(*partition_name(partition)).ordinal

    def leave_hanging(self, partition: str, identity: Identity) -> None:
        """Append a record of a transaction that no coordinator admitted, as a defect would."""
        placed = self.inside.catalog.place(*partition_name(partition))
        now_ms = self.clock.wall_ms()
        header = BatchHeader(
            base_offset=0,
            record_count=1,
            base_timestamp_ms=now_ms,
            max_timestamp_ms=now_ms,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=0,
            encoding=Encoding.RECORDS_V1,
            is_transactional=True,
        )
        append = Append(placed.ref.ordinal, header, encode_offsetless(header, b"lost"), is_admitted=True)
        self.inside.runtime.write(Operation(placed.shard, lambda log, turn: log.decide_append(turn, append=append)))
        self.settle()

"""The cases of Kafka's transaction coordinator and our own, by their numbers; numbers that are left out are not rows.

`@case(13)` marks the test of row 13, `not_drivable` and `still_open` say why a row has none.

Test classes of Kafka in the column `source` of cases.tsv: TC TransactionCoordinatorTest, TM TransactionMetadataTest, SM
TransactionStateManagerTest, CM TransactionMarkerChannelManagerTest, CH TransactionMarkerRequestCompletionHandlerTest,
CC TransactionCoordinatorConcurrencyTest, PM ProducerIdManagerTest, TL TransactionLogTest, TX TransactionsTest, BN
TransactionsBounceTest, EX TransactionsExpirationTest, PX ProducerIdExpirationTest, AS
AddPartitionsToTxnRequestServerTest, AM AddPartitionsToTxnManagerTest, KA KafkaApisTest, OM OffsetMetadataManagerTest,
GS GroupCoordinatorServiceTest, CG ConsumerGroupTest, CL ClassicGroupTest, RT CoordinatorRuntimeTest, PS
ProducerStateManagerTest, UL UnifiedLogTest, MG TransactionManagerTest, LH ListTransactionsHandlerTest, CI
ProducerIdControlManagerTest, PT PartitionTest, FR FetchRequestTest, LO ListOffsetsRequestTest, OE
OffsetsForLeaderEpochRequestTest, LE LeaderEpochFileCacheTest. Those of groups without a class are of
GroupMetadataManagerTest.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.conformance.suite import Suite

SUITE: Final = Suite(
    __package__,
    Path(__file__).with_name("cases.tsv"),
    {
        "A": "InitProducerId",
        "B": "AddPartitionsToTxn, verification, AddOffsetsToTxn",
        "C": "EndTxn",
        "D": "Completion: markers, retries, crash safety",
        "E": "Timeouts and expiration",
        "F": "Loading, unloading, the stored log",
        "G": "Introspection, administration, producer ids",
        "H": "Offsets in transactions",
        "I": "Two-phase commit with outside participants (KIP-939)",
        "J": "Own cases, where Kafka is wrong or silent",
        "K": "Leader epochs (KIP-320)",
        "L": "Sinks: many members, one decision",
        "M": "Snapshots: a transaction everywhere or nowhere",
    },
)

case, not_drivable, still_open = SUITE.case, SUITE.not_drivable, SUITE.still_open

both_versions = pytest.mark.parametrize("version", [1, 2])
"""Clients without (1) and with (2) an epoch bump per transaction."""

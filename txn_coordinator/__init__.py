"""Transactions: the state table, its rules, producer ids, and the two-phase commit that ends each transaction.

A transactional id is one frozen `Transaction`, and `LEGAL_STEPS` is the law of its states. A request becomes a command,
a pure rule judges it, and the shard turns the verdict into a decision:

```python
command = EndTxn("billing-0", Identity(42, 7), outcome=Outcome.COMMIT)
current = shard.acting(command.transactional_id)
if judge_end(current, command, client_txn_version=2) is EndVerdict.DECIDE:  # or raises Refused
    ending = Ending(command.outcome, bumps_epoch=True, cause="client")
    decision = shard.outcomes.decide(current, ending, turn)  # PREPARE, and what follows from it
```

`outcomes` is the only module that decides an outcome. In fused mode one operation does everything, in one batch:
PREPARE and COMPLETE are one record of the id, and the marker of each participant is a join. In split mode PREPARE is
durable first. `marker_sender` then writes the markers and COMPLETE, and a load after a crash starts it again
(`TransactionShard.on_loaded`).

Reading order: `state`, `rules/ending`, `outcomes`, `transaction_table`, `shard`, `service`; then `fencing`,
`rules/initialising`, `counters` (producer ids and csns), `marker_sender`, and `sinks` (many transactions decided by one
record).

Source: spec transactions.
"""

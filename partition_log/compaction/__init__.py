"""Compaction: of each key of a topic, only the newest record stays.

One *pass* compacts the log of one partition, up to an offset that was chosen when it began. It reads the log twice:

1. It notes the newest offset of every key in the part that no pass has been over yet (the *dirty* part).
2. It goes over the log from its beginning, one chunk after the other. A chunk is some stretches of the log. Their rows
   are replaced or deleted by key, and their index rows with them, in one commit group.

Payloads are read by a worker process (`payloads`). The rules for rows are pure (`rules`), and so is the new index of
a chunk (`chunks`). `passes` reads the log and drives a pass, `choice` finds the next partition, and `holds` the parts
of a log that must stay.

Offsets never change. A batch that loses records keeps its offsets, and its row the key. So a pass that a crash ends
anywhere leaves a log that every reader can read, and the next one goes on where it ended.

Source: spec log-and-runtime 1.8; Kafka's `LogCleaner` and `Cleaner`; KIP-534 (how long tombstones stay); decision 60.
"""

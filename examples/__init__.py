"""Programs that show how to use the product. They are not part of it.

To copy, from the simplest on; each needs `make venv` and a running `txnctl dev`:

- with_sdk.py: transactions of a producer, committed and aborted; reading back.
- with_stubs.py: the same with the generated stubs alone, for other languages.
- node/, go/: clients in Node.js and Go without an SDK, with partitioner and checksum.
- worker.py: a worker that takes jobs from a topic, and stops in order.
- request_handlers.py: a FastAPI application whose handlers share a pool of producers.
- copy_exactly_once.py: a group that reads a topic and writes another, each record once; several processes, `kill -9`.
- share_workers.py: workers that share a queue of jobs, each done once; several processes, `kill -9`.
- streams_word_count.py: a word count by several processes, exact; tasks placed by the server, `kill -9`.
- copy_from_kafka.py: a topic of Kafka, copied with the offsets of its groups.
- two_phase_postgres.py: a database decides, and the log follows; a crash can be requested at each step.

Demonstrations, each with servers of its own (docs/tour.md):

- demo.py (`make demo`, needs Java): flights through crashes, read and compared with Spark.
- demo_streaming.py (`make demo-streaming`, needs Java): Spark copies from topic to topic, exactly once.
- demo_secure.py (`make demo-secure`): TLS, tokens, permissions, audit log, a lost disk and its backup.
"""

"""Other people's programs against a server of this tree, over Kafka's protocol: `python -m tests.kafka_clients`.

Nothing of theirs is in this repository. `toolchains/` pins versions, and the ordinary clients of the registries fetch
them into `.cache/kafka-clients`. `programs/` and `java/` are ours: a story for each client library, and the one class
that makes Kafka's integration tests run against an outside server. `expected.toml` has each known failure with its
reason, and what does not apply. Any other failure fails the command.

Start with `suite.py` (what a suite is) and `__main__.py` (the order of a run).
"""

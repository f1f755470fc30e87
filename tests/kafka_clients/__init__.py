"""Other people's programs against a server of this tree, over Kafka's protocol: `python -m tests.kafka_clients`.

Nothing of theirs is in this repository. `toolchains/` pins versions, and the ordinary clients of the registries fetch
them into `.cache/kafka-clients`. `programs/` and `java/` are ours: a story for each client library, the class that
makes Kafka's integration tests run against an outside server, and a library that gives topics of librdkafka's tests one
replica. `expected.toml` has each known failure with its reason, and what does not apply. Any other failure fails the
command.

A run needs the programs of the clients' languages: a JDK of version 17 or newer with Maven, Go, Node with npm, Rust's
cargo, and compilers for C and C++ with make. A suite without its program fails and names it.

Start with `suite.py` (what a suite is) and `__main__.py` (the order of a run).
"""

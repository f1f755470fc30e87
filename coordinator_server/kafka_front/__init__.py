"""Kafka-protocol subset: a second front over the same core, for Kafka's own clients.

`messages` has the codecs, generated from Kafka's definitions (`make kafka-messages`): a module for each request and
response. A request is decoded and a response encoded in the version that the client asked for. Frozen structs stand
between, the same for all versions. What a version lacks is at its default.

- `framing` cuts the bytes of a connection into frames, `headers` reads and writes what stands before a body.
- `reading` and `writing` have what the generated functions share.
- `malformed` has the one error of bytes that are not Kafka's protocol: the connection is closed.
- `api_definition` describes an API; `messages/tables.py` has all of them, without an import of their codecs.

`apis` lists what is served, `endpoints` joins it to the core, and `kafka_call` is the `Call`. `connection` and
`listeners` serve it, and `waiting` answers without a lease.
"""

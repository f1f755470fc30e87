"""One server process: configuration, composition, fronts for gRPC and Kafka, traffic control, security, metrics.

The inside (`coordinator_core`) knows no network, no process and no setting. This package gives it all three, and
decides nothing about transactions, records or groups.

The order of a start (`process`, `build`):

1. Take the addresses, so that a server that cannot have them makes no directory. With a lease, wait for it
   (`store_lease`, `waiting`). Then open the store.
2. `build` makes all parts. The listeners start, and every call is answered with "loading".
3. `load` reads the state that all shards share and opens the gatekeeper. Each shard serves as soon as it is read.
4. Once each shard serves or has failed, the health service reports ready, and the addresses are announced.

SIGTERM drains: no new call is taken, and everything staged becomes durable and is answered. A failure of the store ends
the process at once, and the next start recovers.

A call takes this path: a transport passes its bytes to the dispatcher, which makes a `Call`. The gatekeeper admits it.
A servicer maps it to a command of the core, whose reply is a `Pending`. The answer goes back the same way.

- `grpc_front` has the transports, sessions and the dispatcher; its folder `wire` has the servicers.
- `kafka_front` has the front for Kafka's protocol.
- `traffic` has the traffic control that every front shares: the gatekeeper, admission, fairness, quotas.
- `security` has TLS, authentication and the audit log.
- `metrics` and `events` count and log what happened.
- `settings` has the configuration, and `host` the process on its machine: disk, memory, open files.

Reading order: `process`, `build`, `traffic/call`, `traffic/gatekeeper`, `grpc_front/dispatcher`,
`grpc_front/wire/transactions/servicer`, `listeners`, `settings/config`, `events`, `metrics/collector`.
"""

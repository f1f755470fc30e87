"""Consumers: `coordinator_client.Consumer` (blocking) and `coordinator_client.AsyncConsumer`.

One core that does no I/O (`core`), one engine that runs it on a loop (`engine`), two thin shells (`blocking`,
`asynchronous`, over `shell`). The application's thread and the loop take turns at the core: what belongs to the
application (its listener, its callbacks) the core hands out as calls to make, everything else the loop does.
"""

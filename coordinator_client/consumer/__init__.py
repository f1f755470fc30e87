"""Consumers: `coordinator_client.Consumer` (blocking) and `coordinator_client.AsyncConsumer`.

One core that does no I/O (`core`), one engine that runs it on a loop (`engine`), two thin shells (`consumers` and
`async_consumer`, over `shell`). The shells ask the loop for each step of the core. The core hands out what belongs to
the application (its listener and callbacks) as calls to make in its thread; the loop does everything else.
"""

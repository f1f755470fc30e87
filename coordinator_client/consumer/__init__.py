"""Consumers: `coordinator_client.Consumer` (blocking) and `coordinator_client.AsyncConsumer`.

One core that does no I/O (`core`), one engine that runs it on a loop (`groups.engine`), and two thin shells. These are
`consumers` and `async_consumer`, over `shell` and `groups.shells`. The shells ask the loop for each step of the core.
The core returns calls of the application's listener and callbacks to its shell, which makes them in the application's
thread. The loop does everything else.
"""

"""Producers: `coordinator_client.Producer` (blocking) and `coordinator_client.AsyncProducer`.

One core that does no I/O (`core`), and two thin shells around it (`producer` and `async_producer`, over `shell`).
"""

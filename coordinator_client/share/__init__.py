"""Share consumers: `coordinator_client.ShareConsumer` (blocking) and `coordinator_client.AsyncShareConsumer`.

Built as `coordinator_client.consumer`: one core that does no I/O (`core`), two thin shells (`share_consumer` and
`async_share_consumer`, over `shell`). The core has a `membership`, a `session` of fetches and acknowledgements, the
records that were `acquired`, and the `acknowledgements` that wait for an answer.
"""

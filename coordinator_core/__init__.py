"""Everything inside a server, assembled: frozen commands in, values out, with authorization, validation and parking.

The fronts for gRPC and Kafka are clients of the core. Tests are another, and find the same parts behind `assemble`:

```python
core = assemble(runtime, store, config, dependencies)
core.load_shared()  # pending; refused if nothing can be served
core.load_shards()  # pending: the number of failed shards
command = InitProducerId(transactional_id="billing-0", transaction_timeout_ms=60_000)
reply = core.transactions.service.init_producer_id(command, context)
reply.on_settled(answer)  # a value, or Refused with its error code; durable by then
```

Reading order: `assembly`, `permissions` (what each method asks of the authorizer), `access`, `shards`. Then `fast_path`
(the usual calls, a message at once) and `explanation` (why readers of a partition wait).
"""

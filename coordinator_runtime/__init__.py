"""Foundation of both coordinators and the partition log: shards, group commit, timers, parking, the store.

A shard decides, the runtime replays and stages, the commit thread makes durable, and only then is anything answered.
Without a loop, as tests run it (`tests/harness/hand_driver.py`):

```python
runtime = Runtime(clock=clock, durable_version=store.version(), hand_over=sealed.append)
loader = ShardLoader(runtime, store)
loader.add(kind)  # how shards of one coordinator are made, and how their records become stored rows
loader.load(key)  # reads the rows back in steps: replays the newest record of every key
while loader.is_reading:
    runtime.run_due_timers()
reply = runtime.write(operation)  # decides, replays and stages; or restores the savepoint and refuses
runtime.groups.seal()  # closes the commit group and hands it over
store.write(sealed)
store.sync()  # durable from here on
runtime.on_durable(sealed[-1].version)  # settles the reply and starts the effects
```

A server does the same with `driver.LoopDriver` on its event loop and `commit_groups.CommitThread` beside it.

Reading order: `decision` (the vocabulary: operation, decision, record, effect), `runtime`, `work`, `commit_groups`,
`timeline` (live and durable state in one map), `pending`, `parking`, `loader`, `store` (the port), and its engines
`rocks` and `slate`. `ports` holds the interfaces by which the three siblings above meet.

Source: design 5, spec log-and-runtime 4.2.
"""

"""Groups of all kinds and the offsets they commit, inside transactions or outside.

The second coordinator on the runtime. `GroupShard` is made of registered parts and names none of them. Four are kinds
of groups: `classic` (JoinGroup to LeaveGroup), `consumer` (ConsumerGroupHeartbeat), `share` (ShareGroupHeartbeat) and
`streams` (StreamsGroupHeartbeat). The others are `committed` (offsets) and `administration`. A part has pure decisions,
and one entry in `registry` with its state, records, timers and duties after a load.

A call that another member's call must answer gets a ticket:

```python
abandon = partial(decide_abandon, group_id=request.group_id)
reply = late_answers.write(key, partial(decide_join, request=request), context, abandon=abandon)
# decide_join(shard, turn, request=request, ticket=1) is Decision(reply=AnswerLater()): the member waits as ticket 1.
# Another member's JoinGroup, or the timer "join", ends the phase: its effect Answer(1, ...) settles `reply`.
```

A consumer group moves by reconciliation. Each change of members, subscriptions or topics bumps the group epoch,
`consumer/assigning` gives that epoch a target, and every heartbeat takes its member one step towards it
(`consumer/rules`, `reconcile`).

A streams group moves so too. Its members hold tasks in roles in place of partitions (`streams/reconciling`). Its
topology may need topics, which the server makes (`streams/topology`).

In a share group several members may have one partition, so a member takes up its target in one step. Partitions are
assigned once they have a state (`share/assigning`). A shard of its own kind knows the state of each record
(`share_partitions`).

Reading order: `state` (`Group`, which all kinds implement), `registry`, `shard`, `classic/decisions`,
`classic/rebalance`, `consumer/rules`, `consumer/service`, `committed/decisions`, `news` (heartbeats that wait).

Source: spec groups.
"""

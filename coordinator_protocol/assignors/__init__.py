"""Assignment of partitions to the members of a group: every strategy is a pure function of members and topics.

All of them share one contract (spec groups 5.1):

- *complete* and *exclusive*: a partition of a topic that exists and has a subscriber gets exactly one owner;
- *subscribed*: the owner subscribes to the topic;
- *every member* is in the result, even with no partitions;
- *deterministic*: equal input gives equal output, whatever the order of the mappings and the process;
- *total*: topics that do not exist, members without topics and more members than partitions are all fine;
- members take their turns in one order: static ones by instance id, then dynamic ones by member id.

| module | strategy | also |
| --- | --- | --- |
| `range` | neighbouring partitions of each topic | follows racks if asked to |
| `round_robin` | one partition after the other, around the group | |
| `sticky` | balanced, and moves as little as possible | `equal_subscriptions`, `unequal_subscriptions` |
| `cooperative_sticky` | as sticky, but hands nothing over before it was given up | |
| `simple` | every partition to every subscriber, in large groups balanced; for share groups, so not exclusive | |
| `classic` | the same as members of classic groups use them, and the port for strategies of their own | |

The server's `range` and `uniform` (`group_coordinator/assignors.py`) are the first and the third, on topic ids.
"""

"""Every decision about one transactional id, as a pure function of its state and the request.

They return the next state, or raise Refused with Kafka's code, in the order of checks that the specification lists.
They do not know shards, markers or storage: `shard` and `outcomes` gather what they need and turn their results into
records. The identities that may still act are in `fencing`.
"""

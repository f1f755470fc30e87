"""State of share partitions: the records of a partition that a share group hands out, one by one, and takes back.

A share partition is one partition as one share group reads it (spec groups 6.3). Its shard has the number of the log
shard of the partition, so that both are loaded together and written in one batch.

Reading order: `state` (states of a record, table of legal steps), `draft` (working copy), `acquiring` and `rules`. Then
`records`, `shard`, `decisions`, `places` (ports to groups and topics), `news`. At last `sessions`, `naming`,
`fetching`, `service`.
"""

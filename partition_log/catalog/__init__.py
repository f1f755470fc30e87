"""The topic catalog: names and ids of topics, and the ordinals of their partitions. One shard, CATALOG 0."""

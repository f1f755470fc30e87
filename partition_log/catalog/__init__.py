"""The topic catalog: names and ids of topics, and which partition is which ordinal. One shard, CATALOG 0."""

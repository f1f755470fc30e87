"""Administration: topics, groups, transactions, access control lists."""

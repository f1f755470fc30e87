"""Transactions: the state table, its rules, producer ids and the two-phase commit that ends each of them."""

"""The consumer protocol: the server computes the assignment, members reconcile step by step (KIP-848)."""

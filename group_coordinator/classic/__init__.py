"""The classic protocol: members agree on an assignment that one of them computes (KIP-62, 345, 394, 429)."""

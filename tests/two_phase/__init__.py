"""Two-phase commit with outside participants (KIP-939; spec transactions 10)."""

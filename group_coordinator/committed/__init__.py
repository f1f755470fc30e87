"""The offsets that groups commit: at once, or with a transaction (KIP-447)."""

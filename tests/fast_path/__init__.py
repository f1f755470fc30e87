"""The fast path beside the general path: two servers that differ in nothing else live through the same."""

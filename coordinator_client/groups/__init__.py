"""Parts that all members of groups have in common: heartbeats, the engine of their cores, and the waits of their
shells."""

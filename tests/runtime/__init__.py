"""The runtime by itself: staging, durability, parking, timers, timelines."""

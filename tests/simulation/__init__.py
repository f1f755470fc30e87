"""Random clients against a server that crashes, from one seed, judged by an auditor who shares no code with it."""

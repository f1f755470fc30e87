"""Commands of `txnctl`, by subject. Modules that a command needs only while it runs come from `late.py` or are imported
inside its function. So `txnctl --help` starts without the server, the store and the network."""

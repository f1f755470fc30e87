"""The commands of `txnctl`, by what they are about. What a command needs only once it runs it takes from `late.py`, or
imports inside its function, so that `txnctl --help` starts without the server, the store or the network."""

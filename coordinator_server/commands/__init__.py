"""The commands of `txnctl`, one module each. A module imports what its command needs inside the function, so that
`txnctl --help` starts without the server, the store or the network."""

"""`txnctl`: commands that ask a running server through the SDK, look into a stopped store, or run a server."""

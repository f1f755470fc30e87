"""Command line of the product: run a server, ask a running one through the SDK, or inspect a stopped store."""

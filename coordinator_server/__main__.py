"""`python -m coordinator_server` is `txnctl`."""

from coordinator_server.cli import main

main()

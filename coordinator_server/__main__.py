"""`python -m coordinator_server` is `txnctl`."""

from coordinator_server.entry import main

main()

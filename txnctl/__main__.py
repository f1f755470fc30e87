"""`python -m txnctl` is `txnctl`."""

from txnctl.entry import main

main()

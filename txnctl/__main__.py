"""Entry point of `python -m txnctl`, which is the same as `txnctl`."""

from txnctl.entry import main

main()

"""Soak test: a mixed load for half an hour, among kills, with samples of the server's memory, handles and disk."""

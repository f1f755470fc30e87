"""Growths: the ways to bring a server from one amount of work to the next, one module each."""

"""Parts of `make demo`: the data set, the producers, the server that is killed, and the check of every row."""

"""Whether a server stays as it is: a mixed load for half an hour, among kills, with what it takes of the machine."""

"""The consumer protocol's part of GroupService on the wire."""

"""The classic protocol's part of GroupService on the wire."""

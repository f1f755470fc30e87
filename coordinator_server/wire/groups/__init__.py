"""GroupService on the wire."""

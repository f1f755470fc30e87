"""The administration's part of GroupService on the wire."""

"""The offsets' part of GroupService on the wire."""

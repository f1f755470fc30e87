"""LogService on the wire."""

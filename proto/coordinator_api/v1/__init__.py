"""Version 1 of the wire: services and messages."""

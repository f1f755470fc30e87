"""Groups of all kinds seen from outside: list, describe, delete, settings."""

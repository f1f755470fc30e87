"""The transaction coordinator's rules, one at a time."""

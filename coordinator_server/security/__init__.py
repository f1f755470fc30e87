"""Identities, certificates, tokens, and the audit log."""

"""Version 1 of the wire: services and messages.

Read common.proto first: its head has the conventions. Then log, transaction and group; session (many calls on one
stream) and admin last. docs/clients.md is the guide.
"""

"""TransactionService on the wire."""

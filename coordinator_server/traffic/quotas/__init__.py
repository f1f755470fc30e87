"""What one principal may take of the service, so that one greedy client does not take it from the others."""

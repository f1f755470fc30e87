"""Quotas: limits on the share of each principal, so that one noisy client does not starve the others."""

"""Version 1 of the stored records."""

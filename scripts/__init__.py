"""What the Makefile runs: environments, locks, generated code and the check for Java."""

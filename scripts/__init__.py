"""Programs of the Makefile: environments, locks, generated code, checks and packages."""

"""The style guide as tests: what can be counted is not left to attention."""

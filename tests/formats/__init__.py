"""The stored form of each format number, as a store that is kept with the tests."""

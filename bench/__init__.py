"""Measurements: `python -m bench` takes all, `python -m bench NAME...` some. A case is a module here with a `main`."""

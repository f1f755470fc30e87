"""Programs that put load on our server, each in a process of its own: `python -m bench.load NAME JSON`.

Each prints one JSON object on its last line, the fields of a `Run`. A module here has a frozen `Load` with its settings
and a function `measure`.
"""

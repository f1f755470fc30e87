"""Runs one load program. The first argument is its name, the second its settings as JSON."""

from __future__ import annotations

import importlib
import json
import os
import sys

from bench.results import as_fields


def main() -> None:
    """Measure, and print the run."""
    # gRPC would write lines of its own to stderr when a server is killed, which is expected here.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    name, settings = sys.argv[1:]
    program = importlib.import_module(f"bench.load.{name}")
    print(json.dumps(as_fields(program.measure(program.Load(**json.loads(settings))))), flush=True)


if __name__ == "__main__":
    main()

"""One target under atheris: `python -m tests.fuzz.one TARGET CORPUS [options of libFuzzer]`.

`python -m tests.fuzz` starts it."""

from __future__ import annotations

import logging
import sys

import atheris
import structlog

from tests.fuzz.kept import keep_crash

with atheris.instrument_imports(
    include=[
        "coordinator_client",
        "coordinator_core",
        "coordinator_protocol",
        "coordinator_runtime",
        "coordinator_server",
        "group_coordinator",
        "partition_log",
        "txn_coordinator",
    ],
):
    from tests.fuzz.targets import BY_NAME, Story


def main() -> None:
    """Fuzz until libFuzzer has had enough, or the target breaks."""
    # Refusals are logged, and every input is refused for something.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    name = sys.argv.pop(1)
    story = Story(BY_NAME[name])

    def attempt(data: bytes) -> None:
        try:
            story.tell(data)
        except BaseException:
            print(f"what broke {name} is kept in {keep_crash(name, story.inputs)}", flush=True)
            raise

    atheris.Setup(sys.argv, attempt)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

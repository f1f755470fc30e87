"""Which process this is: looked up once and again in each fork, instead of for every request.

What was opened before a fork is of no use after it.
"""

from __future__ import annotations

import os
from typing import Final


class Process:
    """The process that runs this code."""

    def __init__(self) -> None:
        self.process_id = os.getpid()
        self.grpc_used_by = 0
        """The process that used gRPC first, this one or one that it was forked from; 0 = none has."""

    def look_again(self) -> None:
        """Note that this is a fork."""
        self.process_id = os.getpid()


THIS_PROCESS: Final = Process()
os.register_at_fork(after_in_child=THIS_PROCESS.look_again)

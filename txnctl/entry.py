"""Entry point of the program `txnctl`. `pip install txn-coordinator` installs it, even without the server's
dependencies."""

from __future__ import annotations

import sys

from coordinator_server.exits import ExitStatus


def main() -> None:
    """Run `txnctl`, or print in one line that packages are missing beside the SDK."""
    try:
        from txnctl.cli import main as run
    except ModuleNotFoundError as missing:
        if _is_ours(missing.name or ""):
            raise
        print(
            f"txnctl: the package {missing.name} is not installed, only the SDK is: "
            "pip install 'txn-coordinator[server]' brings what txnctl and the server need",
            file=sys.stderr,
        )
        sys.exit(ExitStatus.USAGE)
    run()


def _is_ours(module: str) -> bool:
    """True if a missing module is a defect of this distribution, and not an extra that was not installed."""
    return module.partition(".")[0] in {
        "coordinator_api",
        "coordinator_client",
        "coordinator_core",
        "coordinator_protocol",
        "coordinator_runtime",
        "coordinator_server",
        "group_coordinator",
        "partition_log",
        "txn_coordinator",
        "txnctl",
    }

"""Checks that this machine has the Java that Spark needs, and prints advice if not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

OLDEST_JAVA = 17


def java_problem() -> str | None:
    """Return one line with the problem and advice; None if Spark can run."""
    program = java_program()
    if program is None:
        return f"Spark needs Java {OLDEST_JAVA} or newer and none was found: {advice()}"
    try:
        answer = subprocess.run([program, "-version"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as failure:
        return f"Spark needs Java {OLDEST_JAVA} or newer and {program} does not start ({failure}): {advice()}"
    version = java_version(answer.stderr + answer.stdout)
    if version is None:
        return f"Spark needs Java {OLDEST_JAVA} or newer and {program} does not tell its version: {advice()}"
    if version < OLDEST_JAVA:
        return f"Spark needs Java {OLDEST_JAVA} or newer and {program} is Java {version}: {advice()}"
    return None


def java_program() -> str | None:
    """Return the Java that Spark itself would start: from JAVA_HOME, else from the search path."""
    home = os.environ.get("JAVA_HOME")
    if home:
        return str(Path(home) / "bin" / "java")
    return shutil.which("java")


def java_version(banner: str) -> int | None:
    """Return the feature release in the output of `java -version`. Java 8 prints it as 1.8."""
    found = re.search(r'version "(?:1\.)?(\d+)', banner)
    return int(found.group(1)) if found else None


def advice() -> str:
    """Return what to install, in words for every system."""
    return (
        f"install a Java {OLDEST_JAVA} runtime (Debian and Ubuntu: openjdk-{OLDEST_JAVA}-jre-headless) or set JAVA_HOME"
    )


if __name__ == "__main__":
    problem = java_problem()
    if problem:
        print(problem, file=sys.stderr)
    sys.exit(1 if problem else 0)

"""Says whether this machine has the Java that Spark needs, and what to install if not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

OLDEST_JAVA = 17


def java_problem() -> str | None:
    """One line that says what is wrong with Java here and what to do; None if Spark can run."""
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
    """The Java that Spark itself would start: JAVA_HOME first, then the search path."""
    home = os.environ.get("JAVA_HOME")
    if home:
        return str(Path(home) / "bin" / "java")
    return shutil.which("java")


def java_version(banner: str) -> int | None:
    """The feature release named by `java -version`, whose old form for Java 8 was 1.8."""
    found = re.search(r'version "(?:1\.)?(\d+)', banner)
    return int(found.group(1)) if found else None


def advice() -> str:
    """What to install, in words that hold for every system."""
    return (
        f"install a Java {OLDEST_JAVA} runtime (Debian and Ubuntu: openjdk-{OLDEST_JAVA}-jre-headless) or set JAVA_HOME"
    )


if __name__ == "__main__":
    problem = java_problem()
    if problem:
        print(problem, file=sys.stderr)
    sys.exit(1 if problem else 0)

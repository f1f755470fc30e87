"""Run targets with atheris, each in a process of its own: `make fuzz`, or `python -m tests.fuzz --help`."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzz.kept import add_to_corpus, corpus_of
from tests.fuzz.targets import BY_NAME, TARGETS, Target

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """The exit status is 1 if a target broke."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="which (default: all); see --list")
    parser.add_argument("--list", action="store_true", help="list the targets and end")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="add inputs that reach something new to tests/fuzz/corpus")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(BY_NAME))
        return 0
    unknown = [name for name in arguments.targets if name not in BY_NAME]
    if unknown:
        parser.error(f"no such target: {', '.join(unknown)}; --list names them")
    try:
        import atheris  # noqa: F401
    except ImportError:
        parser.error("atheris is not installed: it has wheels for Linux on x86-64 only")
    chosen = [BY_NAME[name] for name in arguments.targets] or list(TARGETS)
    shares = [chosen[first :: arguments.jobs] for first in range(min(arguments.jobs, len(chosen)))]
    with ThreadPoolExecutor(len(shares)) as pool:
        stood = list(pool.map(partial(_run, seconds=arguments.seconds, keep=arguments.keep), shares))
    return 0 if all(stood) else 1


def _run(targets: Sequence[Target], *, seconds: int, keep: bool) -> bool:
    """Fuzz targets, one after the other; whether all stood."""
    with TemporaryDirectory() as made:
        scratch = Path(made)
        for target in targets:
            (scratch / target.name).mkdir()
            for number, each in enumerate([*target.seeds(), *corpus_of(target.name)]):
                (scratch / target.name / f"{number:06}").write_bytes(each)
        options = ["-max_len=2048", "-timeout=60", "-rss_limit_mb=4096", f"-artifact_prefix={scratch}/"]
        names = [target.name for target in targets]
        command = [sys.executable, "-m", "tests.fuzz.one", made, *names, f"-max_total_time={seconds}", *options]
        # It names every module that it instruments: of interest only if that fails.
        said = scratch / "instrumenting.said"
        with (
            said.open("w") as errors,
            subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True) as running,
        ):
            assert running.stdout is not None, "its output was asked for"
            stood = [_tell(line, scratch, keep=keep) for line in running.stdout]
        if len(stood) < len(targets):
            print(f"{', '.join(names[len(stood) :])}: NOT TRIED\n{said.read_text()[-4000:]}", flush=True)
        return len(stood) == len(targets) and all(stood)


def _tell(line: str, scratch: Path, *, keep: bool) -> bool:
    """Say how a target ended; whether it stood."""
    name, status = line.split()
    said = (scratch / f"{name}.said").read_text(errors="replace")
    done = [each for each in said.splitlines() if each.startswith("Done ")]
    if status != "0" or not done:
        print(f"{name}: BROKE, status {status}\n{said[-12000:]}", flush=True)
        return False
    if keep:
        add_to_corpus(name, [each.read_bytes() for each in sorted((scratch / name).iterdir())])
    print(f"{name}: {done[-1]}", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())

"""Run targets with atheris, each in a process of its own: `make fuzz`, or `python -m tests.fuzz --help`."""

from __future__ import annotations

import argparse
import subprocess
import sys
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
    with ThreadPoolExecutor(arguments.jobs) as pool:
        ended = list(pool.map(partial(_run, seconds=arguments.seconds, keep=arguments.keep), chosen))
    return 0 if all(ended) else 1


def _run(target: Target, *, seconds: int, keep: bool) -> bool:
    """Fuzz one target; whether it stood."""
    with TemporaryDirectory() as scratch:
        corpus = Path(scratch) / "corpus"
        corpus.mkdir()
        for number, each in enumerate([*target.seeds(), *corpus_of(target.name)]):
            (corpus / f"{number:06}").write_bytes(each)
        options = ["-max_len=2048", "-timeout=60", "-rss_limit_mb=4096", f"-artifact_prefix={scratch}/"]
        ran = subprocess.run(
            [sys.executable, "-m", "tests.fuzz.one", target.name, str(corpus), f"-max_total_time={seconds}", *options],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode == 0 and keep:
            add_to_corpus(target.name, [each.read_bytes() for each in sorted(corpus.iterdir())])
    tried = [line for line in ran.stderr.splitlines() if line.startswith("Done ")]
    if ran.returncode == 0 and tried:
        print(f"{target.name}: {tried[-1]}", flush=True)
        return True
    print(f"{target.name}: BROKE\n{ran.stdout[-4000:]}{ran.stderr[-8000:]}", flush=True)
    return False


if __name__ == "__main__":
    sys.exit(main())

"""The README and the tour promise nothing that does not run: programs, commands, numbers.

`make` targets are only looked up: running them here would run all tests inside a test.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from examples.demo_parts.flights import ROWS
from examples.demo_parts.plan import ABORT_EVERY, plan
from tests.docs.fences import PROGRAMS, ROOT, Fence, commands, fences, programs
from tests.harness import forked
from tests.harness.long_cases import one_in

pytestmark = pytest.mark.usefixtures("leaves_what_git_ignores")

PAGES = ("README.md", "docs/tour.md")
"""In the order in which a new user reads them."""
BLOCKS = [block for page in PAGES for block in fences(page)]
DEFAULT_ENDPOINT = "127.0.0.1:7070"
SDK, SHARE, CONSUMER, STUBS, SPARK, STREAM, SINK = (program for page in PAGES for program in programs(page))
COMMANDS = [command for page in PAGES for command in commands(page)]
SPARK_COMMANDS = [command for command in COMMANDS if "pyspark_txnlog.job" in command]
SERVERS = ["txnctl dev", "txnctl serve --data-dir data --listen 127.0.0.1:7070"]
QUICK_COMMANDS = [command for command in COMMANDS if command.startswith("txnctl ") and command not in SERVERS]
INSTALL = next(block.text.splitlines() for block in BLOCKS if block.text.startswith("make dist\n"))
"""The installation; `tests/dist` runs it."""
INSTALL_SPARK = [command for command in COMMANDS if command.startswith("pip install ") and "[spark]" in command]
"""The rest of the installation, before Spark reads; `tests/dist` runs it."""


def run(arguments: list[str], endpoint: str, directory: Path) -> str:
    done = forked.run(
        arguments,
        cwd=directory,
        env=os.environ | {"TXNCTL_SERVER": endpoint, "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_program(program: tuple[Fence, str], endpoint: str, directory: Path) -> None:
    block, promised = program
    source = block.text.replace(DEFAULT_ENDPOINT, endpoint)
    assert run([sys.executable, "-c", source], endpoint, directory) == promised, block.place


def words(command: str, endpoint: str) -> list[str]:
    """The command as a shell would split it, with the programs of this environment, asking this server. Only the shell
    of the session starts `txnctl` as a user does: a fork of its script runs in a fifth of the time."""
    program, *arguments = shlex.split(command.replace(DEFAULT_ENDPOINT, endpoint))
    return [str(PROGRAMS / program), *arguments]


@pytest.fixture(scope="module")
def told(endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The server after the first programs ran, in the order of the pages."""
    directory = tmp_path_factory.mktemp("readme")
    run_program(SDK, endpoint, directory)
    run_program(SHARE, endpoint, directory)
    run_program(CONSUMER, endpoint, directory)
    run_program(STUBS, endpoint, directory)
    return endpoint


def test_every_command_is_one_that_is_run_or_a_make_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = {f"make {target}" for target in re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE)}
    run_here = {*QUICK_COMMANDS, *SPARK_COMMANDS, *SERVERS}
    assert set(COMMANDS) <= targets | run_here | {*INSTALL, *INSTALL_SPARK}
    named_in_text = {name for page in PAGES for name in re.findall(r"`(make [a-z-]+)`", (ROOT / page).read_text())}
    assert named_in_text <= targets


def test_the_two_commands_are_on_the_first_screen_of_the_readme() -> None:
    first_screen = (ROOT / "README.md").read_text().splitlines()[:40]
    assert {"make demo", "make test"} <= set(first_screen)


def test_every_block_is_of_a_kind_that_is_checked() -> None:
    assert {block.language for block in BLOCKS} == {"sh", "python", "text", "console"}


def test_the_last_line_of_the_demo_is_what_its_plan_makes_it() -> None:
    made = plan(ROWS, "127.0.0.1:1")
    on_purpose = [
        len(rows)
        for loader in made.loaders
        for number, rows in enumerate(loader.transactions())
        if number % ABORT_EVERY == ABORT_EVERY // 2
    ]
    hidden = sum(on_purpose) + sum(len(story.transactions()[0]) for story in (made.zombie, made.killed))
    promised = f"demo: OK, {ROWS} of {ROWS} flights, 0 missing, 0 duplicated, {hidden} aborted records hidden\n"
    assert promised in [block.text for block in BLOCKS]


@pytest.mark.slow
@pytest.mark.usefixtures("told")
def test_the_programs_print_what_the_readme_says() -> None:
    """The fixture runs them and compares."""


@pytest.mark.slow
@pytest.mark.parametrize("command", QUICK_COMMANDS)
def test_a_command_runs(told: str, command: str, tmp_path: Path) -> None:
    assert run([sys.executable, *words(command, told)], told, tmp_path)


@pytest.mark.slow
def test_the_terminal_session_is_a_real_one(told: str, tmp_path: Path) -> None:
    (session,) = (block for block in BLOCKS if block.language == "console")
    seen = ""
    for line in session.text.splitlines(keepends=True):
        if line.startswith("$ "):
            command = line.removeprefix("$ ")
            seen += line + run(["bash", "-c", f"exec 2>&1; {command}"], told, tmp_path)
    assert without_what_varies(seen) == without_what_varies(session.text)


def without_what_varies(text: str) -> str:
    """The session without what differs from run to run: times, ids, and numbers that count what was done before."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z", "TIME", text)
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID", text)
    return re.sub(r"(csn\)? +|producer )\d+", r"\g<1>N", text)


@pytest.mark.slow
def test_the_lasting_server_starts_and_stops(tmp_path: Path) -> None:
    with subprocess.Popen(
        words(SERVERS[1], "127.0.0.1:0"), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        try:
            assert re.search(r"gRPC on 127\.0\.0\.1:\d+, data in data", server.stdout.readline())
        finally:
            server.send_signal(signal.SIGTERM)
        assert server.wait() == 0
    assert (tmp_path / "data").is_dir()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.spark
def test_spark_prints_what_the_readme_says(told: str, tmp_path: Path) -> None:
    run_program(SPARK, told, tmp_path)
    run_program(STREAM, told, tmp_path)
    run_program(SINK, told, tmp_path)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("command", one_in(len(SPARK_COMMANDS), [(command,) for command in SPARK_COMMANDS]))
def test_the_job_runs(told: str, command: str, tmp_path: Path) -> None:
    assert run([*words(command, told), "--endpoint", told], told, tmp_path)

"""Programs that are forked (`tests/harness/forked.py`) behave like programs that are started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.harness import forked
from tests.harness.server_process import ROOT

pytestmark = pytest.mark.slow

PIPE = subprocess.PIPE


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return tmp_path / "program.py"


def started(program: Path, source: str, *arguments: str) -> forked.Popen:
    """The program with this source, once it has written a line."""
    program.write_text(source)
    process = forked.Popen([sys.executable, program, *arguments], stdin=PIPE, stdout=PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


WAITS = "import sys; print(flush=True); sys.stdin.read()"


def both(words: Sequence[str | Path], **options: object) -> list[subprocess.CompletedProcess[str]]:
    """Results of the program as a fork and as a new process."""
    options |= {"capture_output": True, "text": True}
    return [forked.run(words, **options), subprocess.run(words, check=False, **options)]  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("", 0),
        ("raise SystemExit(7)", 7),
        ("raise SystemExit('no')", 1),
        ("import os; os._exit(3)", 3),
        ("1 / 0", 1),
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("import os, signal; os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("import sys; sys.stdout.write('x'); sys.stdout.flush(); sys.stdout.close()", 0),
    ],
)
def test_a_program_ends_with_its_status(program: Path, source: str, status: int) -> None:
    program.write_text(source)
    by_fork, new = both([sys.executable, program])
    assert (by_fork.returncode, by_fork.stdout) == (new.returncode, new.stdout) == (status, by_fork.stdout)
    assert by_fork.stderr.splitlines()[-1:] == new.stderr.splitlines()[-1:]


FACTS = """
import atexit, os, signal, sys, threading
print(sys.argv, os.getcwd(), sys.path, __name__, dict(os.environ).get("TXN_FACT"), os.getpgid(0), os.getsid(0))
print([signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)])
print(sys.stdin.read(), sys.stdout.line_buffering, sys.stdout.encoding, sys.stderr.line_buffering, sys.flags)
print("err", file=sys.stderr)
print(sorted(set(os.environ) - {"GRPC_ENABLE_FORK_SUPPORT"}), sorted(os.listdir("/proc/self/fd")))
atexit.register(print, "last")
threading.Thread(target=threading.main_thread().join).start()
"""


@pytest.mark.parametrize("path", [{}, {"PYTHONPATH": os.pathsep.join(["/nowhere", str(ROOT)])}], ids=["", "path"])
def test_a_program_sees_what_a_new_process_sees(program: Path, tmp_path: Path, path: dict[str, str]) -> None:
    program.write_text(FACTS)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"TXN_FACT": "of this one"} | path
    for words in ([program], ["-m", "program"], ["-c", FACTS]):
        by_fork, new = both([sys.executable, *words, "a", "b c"], cwd=tmp_path, env=environment, input="ä")
        assert by_fork.stdout == new.stdout
        assert by_fork.stderr == new.stderr == "err\n"


def test_the_product_is_imported_already(program: Path) -> None:
    program.write_text("import sys; print('coordinator_server.process' in sys.modules)")
    by_fork, new = both([sys.executable, program])
    assert (by_fork.stdout, new.stdout) == ("True\n", "False\n")


def test_flags_and_variables_of_the_interpreter_ask_for_a_new_process(program: Path) -> None:
    program.write_text("import sys; print(sys.flags.dev_mode)")
    flagged = forked.Popen([sys.executable, "-X", "dev", program], stdout=PIPE, text=True)
    by_variable = forked.Popen(
        [sys.executable, program], env=os.environ | {"PYTHONDEVMODE": "1"}, stdout=PIPE, text=True
    )
    for process in (flagged, by_variable):
        assert not process.is_forked
        assert process.communicate() == ("True\n", None)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_program(program: Path, number: signal.Signals) -> None:
    with started(program, WAITS) as process:
        assert process.is_forked
        assert process.poll() is None
        process.send_signal(number)
        assert process.wait() == -number
        assert process.poll() == -number


def test_a_program_stops_and_goes_on(program: Path) -> None:
    with started(program, WAITS) as process:
        process.send_signal(signal.SIGSTOP)
        stat = Path(f"/proc/{process.pid}/stat")
        while stat.read_text().rpartition(")")[2].split()[0] != "T":
            pass
        process.send_signal(signal.SIGCONT)
        process.communicate()
        assert process.returncode == 0


def test_a_wait_has_a_timeout(program: Path) -> None:
    with started(program, WAITS) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0)
        process.communicate()
        assert process.returncode == 0


def test_a_session_of_its_own(program: Path) -> None:
    program.write_text("import os; print(os.getsid(0) == os.getpid())")
    by_fork, new = both([sys.executable, program], start_new_session=True)
    assert by_fork.stdout == new.stdout == "True\n"


def test_the_end_of_a_test_run_ends_its_programs(tmp_path: Path, program: Path) -> None:
    program.write_text(WAITS)
    run = tmp_path / "run.py"
    run.write_text(
        "import sys\n"
        "from tests.harness import forked\n"
        "with forked.Popen([sys.executable, sys.argv[1]], stdin=-1) as process:\n"
        "    process.wait()\n"
    )
    path = os.pathsep.join([str(ROOT), str(ROOT / "proto")])
    with subprocess.Popen([sys.executable, run, program], env=os.environ | {"PYTHONPATH": path}, stdout=PIPE) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        worker.kill()
        # End of file: all processes that had it are gone.
        assert worker.stdout.read() == b""

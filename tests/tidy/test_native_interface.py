"""Users of the compiled transport know its interface here: a module of another one is left alone, and
callers would go another way unnoticed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "user", ["coordinator_server/native_interface.py", "coordinator_client/transport/native_channel.py"]
)
def test_its_users_know_the_interface_of_the_compiled_transport(user: str) -> None:
    made = re.search(r"const INTERFACE: u32 = (\d+);", (TOP / "native_transport/src/lib.rs").read_text())
    known = re.search(r"_INTERFACE: Final = (\d+)", (TOP / user).read_text())
    assert made is not None
    assert known is not None
    assert known[1] == made[1]

"""The measurement of the noisy client, on a server of its own and for a moment."""

from __future__ import annotations

import pytest

from bench.noisy import KINDS, measured


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_quiet_and_noisy_commit_with_and_without_a_quota(kind: str) -> None:
    found = measured("grpc", kind, rounds=1, seconds=1.0)
    for is_bound in (True, False):
        assert found[is_bound].alone_ms
        assert found[is_bound].beside_ms
        assert found[is_bound].noisy_commits > 0
        assert " ms | " in found[is_bound].row()

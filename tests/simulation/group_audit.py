"""Judges what groups showed of their offsets: those of a transaction if and only if its records, and of those that were
committed beside each other the last word.

The names P1 to P11 are those of spec transactions 12, I1 to I10 those of spec groups 10.5.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.simulation.history import SHARED_GROUP, History, OffsetRead
from tests.simulation.told import ToldTransaction, completion, ops_of, require

_FOR_EVER = 1 << 60


class GroupAudit:
    """Checks the offsets of one history. `check` raises Violation at the first broken promise."""

    def __init__(self, history: History, transactions: Mapping[int, ToldTransaction], fate: Mapping[str, str]) -> None:
        self._history = history
        self._transactions = transactions
        self._fate = fate
        """value -> outcome of the marker that ended it"""
        self._offset_owner = {op.offset: txn for txn in transactions.values() for op in txn.offsets}
        self._plain = {commit.offset: commit for commit in history.plain_commits}

    def check(self) -> None:
        """P11, I5 of spec groups 10.5: an offset shows if and only if the records of its transaction do. I4: one that
        was acknowledged without a transaction shows, I10: one that was refused does not."""
        for txn in self._transactions.values():
            for group in {op.group for op in txn.offsets} - {SHARED_GROUP}:
                self._check_own_group(txn, group)
        for read in self._history.offset_reads:
            self._check_offset_read(read)
        for group in {SHARED_GROUP, *(commit.group for commit in self._plain.values())}:
            commits = self._settled_commits(group, _FOR_EVER)
            self._check_last_word(self._history.final_offsets[group], commits, f"in {group} at the end")

    def _check_own_group(self, txn: ToldTransaction, group: str) -> None:
        """No other transaction touched it, so it shows the exact outcome of this one."""
        asked = [op for op in txn.offsets if op.group == group]
        shown = self._history.final_offsets[group]
        # A late copy of an earlier request may have the last word within its transaction.
        require(shown == -1 or shown in {op.offset for op in asked}, f"P11: {shown} in {group}: {ops_of(txn)}")
        if txn.is_aborted or not txn.may_be_committed:
            require(shown == -1, f"P11: not committed, and {shown} is there: {ops_of(txn)}")
        if not any(op.is_ok for op in asked):
            return
        if txn.is_committed:
            require(shown != -1, f"P11: committed, and none of its offsets is there: {ops_of(txn)}")
        if txn.kept(self._history):
            visible = [value for value in txn.kept(self._history) if self._fate[value] == "commit"]
            require(bool(visible) == (shown != -1), f"P11: records and offset disagree: {ops_of(txn)}")

    def _check_offset_read(self, read: OffsetRead) -> None:
        """No offset of a transaction without a request to commit; with `is_stable`, none that is out of date."""
        if read.offset in self._plain:
            require(not self._plain[read.offset].is_refused, f"I10: {read} shows what was refused")
        elif read.offset != -1:
            txn = self._offset_owner[read.offset]
            is_asked = any(op.invoked_at <= read.at for op in txn.commits)
            require(is_asked and txn.may_be_committed and not txn.is_aborted, f"P11: {read} shows of: {ops_of(txn)}")
        if not read.is_stable:
            return
        commits = self._settled_commits(read.group, read.invoked_at)
        self._check_last_word(read.offset, commits, f"to {read}")
        for txn in self._transactions.values():
            is_waiting = any(
                op.group == read.group and op.is_ok and completion(op) < read.invoked_at for op in txn.offsets
            )
            is_open = txn.is_committed and all(op.invoked_at > read.at for op in txn.commits)
            require(not (is_waiting and is_open), f"KIP-447: {read}, and what may change it was open: {ops_of(txn)}")

    def _settled_commits(self, group: str, before: int) -> list[tuple[int, int]]:
        """When it was asked for, and the offset, of every commit to a group that many move which was known to be
        durable before a moment."""
        found = [
            (op.invoked_at, op.offset)
            for txn in self._transactions.values()
            if any(op.is_ok and completion(op) < before for op in txn.commits)
            for op in txn.offsets
            if op.group == group == SHARED_GROUP and op.is_ok
        ]
        found.extend(
            (commit.invoked_at, commit.offset)
            for commit in self._plain.values()
            if commit.group == group and commit.answered_at is not None and commit.answered_at < before
        )
        return found

    def _check_last_word(self, shown: int, commits: list[tuple[int, int]], when: str) -> None:
        """The commit that came last wins, whenever the marker came (spec groups 4.5)."""
        last_seen_at = -1
        if shown in self._plain:
            # It is never repeated, so it was there at the request.
            last_seen_at = self._plain[shown].invoked_at
            require(not self._plain[shown].is_refused, f"I10: {shown} was refused and is shown {when}")
        elif shown != -1:
            (op,) = (op for op in self._offset_owner[shown].offsets if op.offset == shown)
            last_seen_at = op.last_seen_at
        for invoked_at, offset in commits:
            require(
                invoked_at <= last_seen_at,
                f"P11: {shown}, last asked for at {last_seen_at}, is shown {when}, and not {offset} of {invoked_at}",
            )

"""Readers without a group: committed records of ranges, batch by batch or one by one."""

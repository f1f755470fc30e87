"""The pages that are written from the code hold all of it. Whether they are fresh is for `make check` to say."""

from __future__ import annotations

import functools
import re

import pytest
from typer.testing import CliRunner

from coordinator_server.exits import ExitStatus
from coordinator_server.settings.config import Config
from scripts.docs import cli_page, configuration_page
from txnctl.cli import app

GROUPS = [each.typer_instance.info for each in app.registered_groups if each.typer_instance is not None]


rendered = functools.cache(cli_page)
"""The page of the commands, once for all tests of this module: it runs every command's help."""


def test_every_command_is_there_with_its_help() -> None:
    page = rendered()
    for words in ("serve", "dev", "topic create", "topic list", "topic describe", "topic delete", "produce", "consume",
                  "list", "describe", "explain", "abort", "hanging", "log dump", "store verify",
                  "store inspect", "doctor",
                  "config show"):  # fmt: skip
        assert f"### txnctl {words}\n\n```text\nUsage: txnctl {words}" in page


def test_the_options_before_the_command_are_there() -> None:
    whole = rendered()
    assert "### txnctl\n\n```text\nUsage: txnctl [OPTIONS] COMMAND" in whole
    assert {"--wait SPAN", "--tls-ca-file FILE", "--token-file FILE"} <= set(re.findall(r"--[\w-]+ [A-Z]+", whole))


def test_every_exit_status_is_explained() -> None:
    page = rendered()
    for status in ExitStatus:
        (line,) = (line for line in page.splitlines() if line.startswith(f"| {int(status)} | `{status.name}` |"))
        assert line.endswith(". |")


def test_every_setting_is_there_with_variable_kind_and_default() -> None:
    page = configuration_page()
    for name in Config.model_fields:
        assert f"### {name}\n\n`TXN_{name.upper()}`, " in page
    assert "`TXN_TWO_PHASE`, one of `fused`, `split`, default `fused`." in page
    assert "`TXN_DATA_DIR`, a path, no default." in page
    assert "`TXN_DEFAULT_RETENTION_BYTES`, -1, or a number from 1 to 9,223,372,036,854,775,807, default -1." in page


@pytest.mark.parametrize("group", ["", *(each.name for each in GROUPS)])
def test_no_line_of_a_list_of_commands_is_cut_off(group: str) -> None:
    """Lists show the first sentence of each help text, as far as it fits into a terminal of 80 columns."""
    done = CliRunner().invoke(app, [*group.split(), "--help"], env={"COLUMNS": "80"}, terminal_width=80)
    assert done.exit_code == 0
    listed = done.stdout.partition("Commands:\n")[2].splitlines()
    assert len(listed) > 0
    assert [line for line in listed if line.endswith("...")] == []

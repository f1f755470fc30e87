"""The file with the quotas of callers, reloaded when it changes."""

from __future__ import annotations

import tomllib
from pathlib import Path

import structlog
from pydantic import BaseModel, ConfigDict, ValidationError

from coordinator_server.file_signature import signature_of
from coordinator_server.traffic.quotas.rules import LEVELS, QuotaRow, QuotaRules, Rate
from coordinator_server.validation import first_problem

_NAMES = ("quotas", "principal", "client_id", *Rate, *LEVELS)
"""Names that may be in the file."""

_log = structlog.get_logger("quotas")


class QuotasRefused(Exception):
    """The file of quotas cannot be used. The message has the place and the reason."""


class _QuotaFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    quotas: list[QuotaRow] = []


def read_quotas(file: Path) -> QuotaRules:
    """Return the rules of a file. Raises QuotasRefused."""
    try:
        rows = _QuotaFile.model_validate(tomllib.loads(file.read_text(encoding="utf-8"))).quotas
    except OSError as error:
        raise QuotasRefused(f"the quotas file {file} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise QuotasRefused(f"the quotas file {file} is no TOML: {error}") from error
    except ValidationError as error:
        raise QuotasRefused(f"the quotas file {file}: {first_problem(error, _NAMES)}") from error
    rules = QuotaRules(rows)
    if len(rules) < len(rows):
        raise QuotasRefused(f"the quotas file {file} has two tables of one principal and client_id: put them together")
    return rules


class ReloadingQuotas:
    """The newest valid rules of a file. Implements `reloading_credentials.Kept`."""

    def __init__(self, file: Path) -> None:
        """Read the rules. Raises QuotasRefused."""
        self._file = file
        self._seen = signature_of(file)
        self.rules = read_quotas(file)
        self.refusal: str | None = None
        """Reason for which the current file is not used; None if it is used."""

    def look(self) -> None:
        """Reload the file if it has changed and is valid. Reads the file."""
        signature = signature_of(self._file)
        if signature == self._seen:
            return
        self._seen = signature
        try:
            self.rules = read_quotas(self._file)
        except QuotasRefused as refused:
            self.refusal = str(refused)
            _log.warning("quotas_refused", reason=self.refusal, advice="the old ones hold until the file is right")
            return
        self.refusal = None
        _log.info("quotas_changed", file=str(self._file), number=len(self.rules))

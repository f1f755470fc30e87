"""Sources of the settings of a server, and the origin of each value.

A value is taken from the first of: flags, the environment (`TXN_` and the name in capitals), the TOML file, default.
Unknown names are errors in all of them, because a misspelt limit that is silently ignored is found in an outage.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from pydantic_settings import EnvSettingsSource

from coordinator_server.listeners import KafkaListener, Listener
from coordinator_server.settings.config import CONFIG_FILE_VARIABLE, ENVIRONMENT_PREFIX, Config
from coordinator_server.validation import near_miss, plain


class ConfigRefused(Exception):
    """The configuration is wrong. The message lists the faults, one per line, with the remedy."""


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration, and the origin of every value by name: "default", "file PATH", "environment VARIABLE" or
    "flag"."""

    config: Config
    origins: Mapping[str, str]


def load_config(file: Path | None, flags: Mapping[str, object]) -> LoadedConfig:
    """Return the configuration from all its sources. `flags` holds only flags that were given.

    Raises ConfigRefused: a file that cannot be read, unknown names, invalid values.
    """
    if file is None and CONFIG_FILE_VARIABLE in os.environ:
        file = Path(os.environ[CONFIG_FILE_VARIABLE])
    layers: list[tuple[str, Mapping[str, object]]] = []
    if file is not None:
        layers.append((f"file {file}", _read_file(file)))
    _check_environment(os.environ)
    layers.extend(
        (f"environment {ENVIRONMENT_PREFIX}{name.upper()}", {name: value})
        for name, value in EnvSettingsSource(Config)().items()
    )
    layers.append(("flag", flags))
    values: dict[str, object] = {}
    origins = dict.fromkeys(Config.model_fields, "default")
    for origin, layer in layers:
        for name, value in layer.items():
            values[name] = value
            origins[name] = origin
    try:
        return LoadedConfig(Config.model_validate(values), origins)
    except ValidationError as error:
        raise ConfigRefused("\n".join(_complaints(error, origins))) from error


def _read_file(file: Path) -> dict[str, object]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigRefused(f"the configuration file {file} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigRefused(f"the configuration file {file} is no TOML: {error}") from error


def _check_environment(environment: Iterable[str]) -> None:
    known = {ENVIRONMENT_PREFIX + name.upper() for name in Config.model_fields} | {CONFIG_FILE_VARIABLE}
    unknown = sorted(name for name in environment if name.startswith(ENVIRONMENT_PREFIX) and name.upper() not in known)
    if unknown:
        raise ConfigRefused(
            "\n".join(f"the environment variable {name} is unknown{near_miss(name, known)}" for name in unknown)
        )


def _known_settings(setting: str) -> Mapping[str, object]:
    """Return the settings of a table of listeners, by name."""
    return KafkaListener.model_fields if setting == "kafka_listeners" else Listener.model_fields


def _complaints(error: ValidationError, origins: Mapping[str, str]) -> Iterable[str]:
    for problem in error.errors(include_url=False):
        # `listeners.0.listen` is a setting of the first of the tables.
        setting, *inner = map(str, problem["loc"] or [""])
        name, kind = ".".join([setting, *inner]), problem["type"]
        if kind == "extra_forbidden":
            known = _known_settings(setting) if inner else Config.model_fields
            listed = f"; there are {', '.join(known)}" if inner else "; `txnctl config show` lists all settings"
            yield f"{name} ({origins[setting]}) is unknown{near_miss(name.rpartition('.')[2], known) or listed}"
        elif kind == "missing" and inner:
            yield f"{name} ({origins[setting]}) is not set"
        elif kind == "missing":
            variable = ENVIRONMENT_PREFIX + name.upper()
            yield f"{name} is not set: give --{name.replace('_', '-')}, {variable} or a line in the file"
        elif name:
            yield f"{name} = {problem['input']!r} ({origins[setting]}): {plain(problem)}"
        else:
            yield plain(problem)

"""Protection of foreign files: a new store is not made in a directory with unknown files.

Such files mean that the directory was probably mistaken. A foreign directory `store` or `checkpoint` would be taken for
ours, and the latter removed. Once the store exists, other files are not checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from coordinator_runtime.rocks.files import holds_data
from coordinator_runtime.rocks.segments import segments_in
from coordinator_runtime.rocks.store_directory import StoreDirectory, refused_in_words
from coordinator_runtime.store import StoreRefused
from coordinator_server.listening import UNIX_PREFIX, is_unix
from coordinator_server.settings.config import Config

_NAMES_SHOWN: Final = 3
_OF_THE_FILE_SYSTEM: Final = frozenset({"lost+found"})
_SETTINGS_SUFFIX: Final = ".toml"
"""Configuration, tokens and quotas, which some operators keep beside the store."""


def refuse_foreign_files(config: Config) -> None:
    """Raise StoreRefused if a store would have to be made beside unexpected files. Hidden files and those that the
    configuration names are expected: an audit file, certificates, a socket, backups."""
    directory = StoreDirectory(config.data_dir)
    with refused_in_words(directory.path):
        if not directory.path.is_dir() or directory.restoring_path.exists() or _was_made(directory):
            return
        # Files of a start that was cut short before the store held any data.
        expected = {directory.lock_path.name, *_OF_THE_FILE_SYSTEM, *_named_inside(config)}
        if directory.store_path.is_dir() and not any(directory.store_path.iterdir()):
            expected.add(directory.store_path.name)
        foreign = sorted(path.name for path in directory.path.iterdir() if not _is_expected(path.name, expected))
    if foreign:
        shown = ", ".join(foreign[:_NAMES_SHOWN]) + (", ..." if len(foreign) > _NAMES_SHOWN else "")
        raise StoreRefused(
            f"{directory.path} holds no store, but other files ({shown}): name an empty directory, or one that is made,"
            f" such as {directory.path / 'data'}; or move these away, if it is the right one"
        )


def _was_made(directory: StoreDirectory) -> bool:
    return (
        directory.durable_mark_path.exists()
        or holds_data(directory.store_path)
        or bool(segments_in(directory.segments_path))
    )


def _is_expected(name: str, expected: set[str]) -> bool:
    """Return True if a file of this name is expected. A full audit file has a number behind its name."""
    is_ours = name in expected or name.rpartition(".")[0] in expected
    return is_ours or name.startswith(".") or name.endswith(_SETTINGS_SUFFIX)


def _named_inside(config: Config) -> Iterator[str]:
    """Yield the names in the data directory that settings name, or that are part of a path in them."""
    root = config.data_dir.resolve()
    for path in _paths(config):
        with suppress(ValueError):  # A path outside the directory.
            yield from path.resolve().relative_to(root).parts[:1]


def _paths(config: Config) -> Iterator[Path]:
    for settings in (config, *config.listeners):
        yield from (value for _, value in settings if isinstance(value, Path))
    sockets = (each.listen for each in config.all_listeners() if is_unix(each.listen))
    yield from (Path(each.removeprefix(UNIX_PREFIX)) for each in sockets)

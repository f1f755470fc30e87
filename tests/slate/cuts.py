"""Networks of two servers, of which each has one to the object store and one to its clients, and which can be cut.

Each server has a network namespace with a link for either. The store and the clients are at the other ends, outside. A
cut takes a link down there: a server sends into silence, and its clients find no way.

Needs Linux, root and the command `ip` (iproute2).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

LINKS: Final = ("store", "clients")
_NETWORK: Final = "198.18"
"""Beginning of all addresses, of the range for tests of networks (RFC 2544)."""


def why_not() -> str | None:
    """Return why networks cannot be cut here; None if they can."""
    if sys.platform != "linux":
        return "network cuts need Linux"
    if os.geteuid() != 0:
        return "network cuts need root"
    if shutil.which("ip") is None:
        return "network cuts need the command ip (iproute2)"
    return None


class NodeNetwork:
    """The namespace of one server, and its two links."""

    def __init__(self, number: int) -> None:
        """`number`: 1 or 2."""
        self._name = f"storm{os.getpid()}-{number}"
        self._number = number

    @property
    def prefix(self) -> list[str]:
        """Command that becomes a program inside."""
        return ["ip", "netns", "exec", self._name]

    @property
    def host(self) -> str:
        """Address at which clients find the server."""
        return self._address("clients", 2)

    @property
    def store_host(self) -> str:
        """Address at which the server finds the store."""
        return self._address("store", 1)

    def make(self) -> None:
        """Make it. Raises: RuntimeError with the words of `ip`."""
        _ip("netns", "add", self._name)
        _ip("-n", self._name, "link", "set", "lo", "up")
        for link in LINKS:
            outside, inside = self._device(link), f"{link}0"
            _ip("link", "add", outside, "type", "veth", "peer", "name", inside, "netns", self._name)
            _ip("address", "add", f"{self._address(link, 1)}/30", "dev", outside)
            _ip("-n", self._name, "address", "add", f"{self._address(link, 2)}/30", "dev", inside)
            _ip("-n", self._name, "link", "set", inside, "up")
            _ip("link", "set", outside, "up")

    def remove(self) -> None:
        """Remove it, with its links, as far as it was made."""
        subprocess.run(["ip", "netns", "delete", self._name], capture_output=True, check=False)

    def cut(self, links: Collection[str]) -> None:
        """Cut these links."""
        for link in links:
            _ip("link", "set", self._device(link), "down")

    def heal(self) -> None:
        """Join all links again."""
        for link in LINKS:
            _ip("link", "set", self._device(link), "up")

    def _device(self, link: str) -> str:
        return f"s{os.getpid()}{link[:2]}{self._number}"

    def _address(self, link: str, end: int) -> str:
        return f"{_NETWORK}.{2 * self._number + LINKS.index(link)}.{end}"


@contextmanager
def node_networks() -> Iterator[list[NodeNetwork]]:
    """Make the networks of two servers, and remove them. One such pair at a time on a machine. Raises: RuntimeError."""
    networks = [NodeNetwork(number) for number in (1, 2)]
    made: list[NodeNetwork] = []
    try:
        for each in networks:
            made.append(each)
            each.make()
        yield networks
    finally:
        for each in made:
            each.remove()


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")

"""The hosts of a cluster on one machine, and the cables between them."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol

from tests.backends import HOSTS, Host

SUBNET = "10.213.7"  # seen by nobody but the namespaces themselves


class Network(Protocol):
    """Three hosts: of the master and the driver, and of two workers."""

    how: str  # what a cut is here, in words
    hosts: Sequence[Host]

    def cut(self, worker: int, processes: Sequence[int]) -> None:
        """Nothing goes in or out of a worker's host any more. processes: those on it."""
        ...

    def mend(self, worker: int, processes: Sequence[int]) -> None: ...


class Namespaces:
    """Each host is a network namespace, each cable a veth pair that ends in a bridge."""

    how = "cables of network namespaces pulled"

    def __init__(self) -> None:
        self._names = [f"redcal-{os.getpid()}-{number}" for number in range(3)]
        self.hosts: Sequence[Host] = tuple(
            Host(f"{SUBNET}.{number + 1}", ("ip", "netns", "exec", name))
            for number, name in enumerate(self._names)
        )

    def make(self) -> None:
        first = self._names[0]
        for number, name in enumerate(self._names):
            address = f"{self.hosts[number].address}/24"
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
            if number == 0:
                _ip("-n", name, "link", "add", "bridge", "type", "bridge")
                _ip("-n", name, "addr", "add", address, "dev", "bridge")
                _ip("-n", name, "link", "set", "bridge", "up")
                continue
            cable = f"worker{number - 1}"
            peer = ("peer", "name", "cable", "netns", name)
            _ip("-n", first, "link", "add", cable, "type", "veth", *peer)
            _ip("-n", first, "link", "set", cable, "master", "bridge", "up")
            _ip("-n", name, "addr", "add", address, "dev", "cable")
            _ip("-n", name, "link", "set", "cable", "up")

    def remove(self) -> None:
        for name in self._names:
            with suppress(subprocess.CalledProcessError, OSError):
                _ip("netns", "del", name)

    def cut(self, worker: int, processes: Sequence[int]) -> None:
        _ip("-n", self._names[0], "link", "set", f"worker{worker}", "down")

    def mend(self, worker: int, processes: Sequence[int]) -> None:
        _ip("-n", self._names[0], "link", "set", f"worker{worker}", "up")


class Loopback:
    """All hosts are this one. A host that stands still is the nearest thing to a cut cable."""

    hosts: Sequence[Host] = HOSTS

    def __init__(self, why: str):
        self.how = f"hosts stopped (SIGSTOP), since there are no network namespaces here: {why}"

    def cut(self, worker: int, processes: Sequence[int]) -> None:
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGSTOP)

    def mend(self, worker: int, processes: Sequence[int]) -> None:
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)


@contextmanager
def network() -> Iterator[Network]:
    """Namespaces where the machine and the user's rights allow them."""
    found = Namespaces()
    try:
        try:
            found.make()
        except subprocess.CalledProcessError as err:
            why = err.stderr.decode(errors="replace").strip() or f"exit code {err.returncode}"
            yield Loopback(f"{' '.join(err.cmd)}: {why}")
        except OSError as err:
            yield Loopback(str(err))
        else:
            yield found
    finally:
        found.remove()


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)

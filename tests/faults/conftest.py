"""Fixtures of other tests, and small disks for those who may mount them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import work
from tests.spark.test_runs import lake as any_lake

__all__ = ["any_lake", "work"]


class Disk:
    """A tmpfs."""

    def __init__(self, path: Path, size: str):
        self.path = path
        path.mkdir()
        self._mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path))

    @property
    def fill(self) -> str:
        """A command for the shell: afterwards, there is no room left."""
        return f"dd if=/dev/zero of={self.path}/filler bs=4k 2>/dev/null || true"

    @property
    def lock(self) -> str:
        """A command for the shell: afterwards, nothing can be written."""
        return f"mount -o remount,ro {self.path}"

    def free(self) -> None:
        self._mount("-o", "remount,rw", str(self.path))
        (self.path / "filler").unlink(missing_ok=True)

    def resize(self, size: str) -> None:
        self._mount("-o", f"remount,size={size}", str(self.path))

    def remove(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.path)], check=True)

    @staticmethod
    def _mount(*arguments: str) -> None:
        subprocess.run(["mount", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[str], Disk]]:
    """Makes a disk of some size; skips where mounting is not allowed."""
    made: list[Disk] = []

    def make(size: str) -> Disk:
        try:
            made.append(Disk(tmp_path / f"disk-{len(made)}", size))
        except (subprocess.CalledProcessError, OSError) as err:
            pytest.skip(f"no tmpfs can be mounted here: {getattr(err, 'stderr', None) or err}")
        return made[-1]

    yield make
    for one in made:
        one.remove()

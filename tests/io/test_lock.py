"""File locks: one holder at a time, among open files of one process too."""

from pathlib import Path

import pytest

from regard.io import lock
from regard.io.lock import lock_file


def test_a_held_lock_is_refused_until_its_file_is_closed(tmp_path: Path) -> None:
    with open(tmp_path / "lock", "w") as second:
        with open(tmp_path / "lock", "w") as first:
            assert lock_file(first, wait=False) is True
            assert lock_file(second, wait=False) is False
        assert lock_file(second, wait=False) is True


def test_a_system_without_locks_is_told_apart_from_a_held_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(tmp_path / "lock", "w") as file:
        monkeypatch.setattr(lock, "fcntl", None)
        assert lock_file(file, wait=False) is None

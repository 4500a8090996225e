"""A model folder's digest: one sha256 over the files that `regard.load` reads. Knows no format of theirs."""

import hashlib
from pathlib import Path

from regard.io.files import os_errors_for
from regard.io.run_folder import CONFIG, TASK_FILES, run_folder_of


def model_files(folder: Path) -> dict[str, Path]:
    """Config, tokenizer, labels and weights by their names; of a checkpoint also those of its run."""
    home = run_folder_of(folder)
    paths = [home / CONFIG, *(home / name for name in TASK_FILES), *folder.glob("model*.safetensors")]
    paths += [inner for path in paths if path.is_dir() for inner in path.rglob("*")]
    return {str(path.relative_to(folder if path.parent == folder else home)): path for path in paths if path.is_file()}


def model_digest(folder: Path) -> str:
    """sha256 of names and contents, in hexadecimal."""
    whole = hashlib.sha256()
    for name, path in sorted(model_files(folder).items()):
        with os_errors_for(path), path.open("rb") as file:
            whole.update(f"{name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return whole.hexdigest()


def file_stamps(folder: Path) -> list[tuple[str, int, int, int]]:
    """Name, inode, size and time of each file: equal before and after reading where nobody wrote in between."""
    with os_errors_for(folder):
        stats = [(name, path.stat()) for name, path in sorted(model_files(folder).items())]
    return [(name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in stats]

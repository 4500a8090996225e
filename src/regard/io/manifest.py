"""The manifest of a folder: size and sha256 of its files, written last, and checked while they are read.

It finds damage, not forgery: who can change a file can change its manifest too. A folder without one is unverified.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from regard.errors import RegardError
from regard.io.atomic import atomic_write, fsync
from regard.io.files import DamagedFile, open_regular, os_errors_for, read_checks, read_json
from regard.io.hashed_tensors import HashedTensors
from regard.io.run_folder import BASE, CONFIG, MANIFEST, RESULTS, TASK_FILES, WEIGHTS, run_folder_of

FORMAT = 1
SETUP = (CONFIG, *TASK_FILES)  # what a run has before its first step
MODEL = (*SETUP, BASE)
CHANGE = f"if the change is yours, delete {MANIFEST}, and the folder is read unverified"
PRIVATE = (
    1 << 30
)  # bytes of a file that is read into memory of its own, if it is not read ahead; larger ones are mapped
Record = tuple[int, str]  # bytes, sha256


def file_sha256(path: Path) -> str:
    with os_errors_for(path), open_regular(path) as file:
        digest, buffer = hashlib.sha256(), bytearray(1 << 20)
        while size := file.readinto(buffer):  # type: ignore[attr-defined]
            digest.update(memoryview(buffer)[:size])
        return digest.hexdigest()


def file_records(folder: Path, names: Iterable[str]) -> dict[str, Record]:
    """The records of those files that are there; a folder's name means all files in it."""
    paths = [path for name in names for path in _files(folder / name)]
    return {path.relative_to(folder).as_posix(): (path.stat().st_size, file_sha256(path)) for path in paths}


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(inner for inner in path.rglob("*") if inner.is_file() and not inner.name.startswith("."))
    return [path] if path.exists() else []


def write_manifest(folder: Path, records: Mapping[str, Record] | None = None) -> None:
    """Writes manifest.json, by default of the files that make a model."""
    if records is None:
        records = file_records(folder, (*MODEL, WEIGHTS, RESULTS))
    files = {name: {"size": size, "sha256": sha256} for name, (size, sha256) in sorted(records.items())}
    content = {"format": FORMAT, "files": files, "sha256": _records_sha256(records)}
    with atomic_write(folder / MANIFEST) as file:
        file.write(json.dumps(content, indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())
    fsync(folder)


@contextlib.contextmanager
def replacing(folder: Path, names: Iterable[str]) -> Iterator[None]:
    """The block writes these files anew. They have no records meanwhile, so that a kill leaves no wrong ones."""
    names = tuple(names)
    others = {name: record for name, record in (read_manifest(folder) or {}).items() if not _is_part(name, names)}
    if (folder / MANIFEST).exists():
        write_manifest(folder, others)
    yield
    write_manifest(folder, others | file_records(folder, names))


def _is_part(name: str, parts: Iterable[str]) -> bool:
    return any(name == part or name.startswith(f"{part}/") for part in parts)


def read_manifest(folder: Path) -> dict[str, Record] | None:
    """The records in a folder's manifest.json; None if it has none."""
    path = folder / MANIFEST
    if not os.path.lexists(path):
        return None
    content = read_json(path)
    if content.get("format") != FORMAT:
        raise RegardError(f"{path}: not of format {FORMAT}, which this regard reads; update regard")
    try:
        records = {str(name): (int(file["size"]), str(file["sha256"])) for name, file in content["files"].items()}
        whole = _records_sha256(records) == content["sha256"]
    except (KeyError, TypeError, ValueError, AttributeError):
        whole = False
    if not whole:
        raise DamagedFile(f"{path}: damaged; restore it, or delete it, and the folder is read unverified")
    if any(Path(name).is_absolute() or ".." in Path(name).parts for name in records):
        raise RegardError(f"{path}: it names a file outside the folder")
    return records


def _records_sha256(records: Mapping[str, Record]) -> str:
    text = "".join(f"{name} {size} {sha256}\n" for name, (size, sha256) in sorted(records.items()))
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


def model_digest(folder: Path) -> str:
    """A sha256 of the model in a folder (config, tokenizer, weights), by which the server tells models apart.

    Files have the hashes of the manifest, which loading checks; those that it lacks are hashed now. What is measured or
    logged later does not change it.
    """
    records: dict[str, Record] = {}
    for place, listed in _model_files(folder):
        known = read_manifest(place) or {}
        records |= {name: known[name] for name in listed & set(known)}
        records |= file_records(place, listed - set(known))
    return _records_sha256(records)


def file_stamps(folder: Path) -> list[tuple[str, int, int, int]]:
    """Name, inode, size and time of each file of a model: equal before and after reading if nobody wrote."""
    with os_errors_for(folder):
        stats = [(name, (place / name).stat()) for place, listed in _model_files(folder) for name in sorted(listed)]
    return [(name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in stats]


def _model_files(folder: Path) -> list[tuple[Path, set[str]]]:
    """Config, tokenizer and labels in the folder or its run, and the weights: the names in each of the two places."""
    places = (run_folder_of(folder), MODEL), (folder, [path.name for path in folder.glob("model*.safetensors")])
    return [
        (place, {path.relative_to(place).as_posix() for name in names for path in _files(place / name)})
        for place, names in places
    ]


# --- checking ------------------------------------------------------------------------------------------------------


def find_damage(folder: Path, parts: Iterable[str] | None = None) -> list[str]:
    """A sentence for each file that is not what the manifest says, of all files or of some parts of the folder."""
    records = read_manifest(folder) or {}
    chosen = records if parts is None else {name: r for name, r in records.items() if _is_part(name, parts)}
    return list(_damage(folder, chosen))


def _damage(folder: Path, records: Mapping[str, Record]) -> Iterator[str]:
    for name, record in records.items():
        path = folder / name
        if not path.is_file():
            yield f"{path}: missing; {MANIFEST} lists it"
        else:
            size = path.stat().st_size
            found = size, "" if size != record[0] else file_sha256(path)
            if sentence := _difference(path, record, found):
                yield sentence


def _difference(path: Path, record: Record, found: Record) -> str | None:
    """A sentence where a file is not what was written."""
    if found[0] != record[0]:
        return f"{path}: damaged: {found[0]:,} bytes, where {record[0]:,} were written; {CHANGE}"
    if found[1] != record[1]:
        return f"{path}: damaged: not what was written, by its sha256 in {MANIFEST}; {CHANGE}"
    return None


@contextlib.contextmanager
def verified(
    folder: Path, parts: Iterable[str] | None = None, read_ahead: Iterable[str] = ()
) -> Iterator["Verification"]:
    """Raises DamagedFile for files of a folder that are not what was written; they are hashed while the block runs.

    `parts` names those that the block reads; of `read_ahead`, large ones, reading begins at once, in other threads. An
    error of the block, which damage may have caused, gives way to the damage.
    """
    check_links(folder, parts)
    records = read_manifest(folder) or {}
    chosen = records if parts is None else {name: r for name, r in records.items() if _is_part(name, tuple(parts))}
    verification = Verification(folder, chosen, read_ahead)
    token = read_checks.set((*read_checks.get(), verification))
    try:
        yield verification
    except Exception:
        if found := verification.find_damage():
            raise DamagedFile(found) from None
        raise
    finally:
        read_checks.reset(token)
    if found := verification.find_damage():
        raise DamagedFile(found)


def verifications() -> list["Verification"]:
    """Those around the caller."""
    return [check for check in read_checks.get() if isinstance(check, Verification)]


class Verification:
    """Compares files with their records: the bytes that the block reads by `io`, and after it the other files."""

    def __init__(self, folder: Path, records: Mapping[str, Record], read_ahead: Iterable[str]) -> None:
        self.folder, self.records = folder, records
        self._paths = {(folder / name).absolute(): name for name in records}
        self._same: set[str] = set()  # names of files whose bytes were compared
        self._damage: str | None = None
        # A file that is missing, or that has another size, is named without being read.
        ahead = [name for name in read_ahead if name in records and not _wrong_size(folder / name, records[name])]
        self._files = {name: HashedTensors(folder / name) for name in ahead}
        self._mapped: dict[str, tuple[int, ...]] = {}  # what is too large for memory of its own, as it was then

    def check(self, path: Path, content: bytes) -> None:
        if name := self._paths.get(path.absolute()):
            self._compare(name, len(content), hashlib.sha256(content).hexdigest())
            if self._damage:
                raise DamagedFile(self._damage)

    def tensor_file(self, path: Path) -> HashedTensors | None:
        """A safetensors file in memory, being compared; None where it is to be mapped instead, or is not known."""
        name = self._paths.get(path.absolute())
        if name is None or _wrong_size(path, self.records[name]):
            return None  # its reader says what it cannot read, and that gives way to the damage
        if name not in self._files and self.records[name][0] > PRIVATE:
            self._mapped[name] = _stamp(path)
            return None
        if name not in self._files:
            self._files[name] = HashedTensors(path)
        return self._files[name]

    def holds(self, path: Path) -> bool:
        """Whether the block read the file's bytes into memory that nobody else writes."""
        return self._paths.get(path.absolute()) in self._files

    def find_damage(self) -> str | None:
        """A sentence for the first damage found."""
        for name, file in self._files.items():
            if sha256 := file.sha256():
                self._compare(name, file.size, sha256)
        rest = {name: record for name, record in self.records.items() if name not in self._same}
        self._damage = self._damage or next(_damage(self.folder, rest), None)
        for name, stamp in self._mapped.items():
            if not self._damage and _stamp(self.folder / name) != stamp:
                self._damage = f"{self.folder / name}: changed while it was read; run the same command again"
        return self._damage

    def _compare(self, name: str, size: int, sha256: str) -> None:
        self._same.add(name)
        self._damage = self._damage or _difference(self.folder / name, self.records[name], (size, sha256))


def _wrong_size(path: Path, record: Record) -> bool:
    return not path.is_file() or path.stat().st_size != record[0]


def _stamp(path: Path) -> tuple[int, ...]:
    stat = path.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def check_links(folder: Path, parts: Iterable[str] | None = None, within: Path | None = None) -> None:
    """Raises RegardError where a file that is to be read lies outside the folder, or is no regular file.

    `within` is a folder around it, inside which links may lead.
    """
    root = (within or folder).resolve()
    tops = folder.iterdir() if parts is None else [folder / part for part in (*parts, MANIFEST)]
    for path in (inner for top in tops for inner in (top, *(sorted(top.rglob("*")) if top.is_dir() else ()))):
        if not path.exists():
            continue
        if not path.resolve().is_relative_to(root):
            raise RegardError(f"{path}: a link that leads out of the folder, which is not followed; copy the file here")
        if not path.is_dir() and not path.is_file():
            raise RegardError(f"{path}: not a regular file (a FIFO, a socket or a device), which is not read")

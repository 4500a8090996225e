"""A safetensors file, read once into memory of its own and hashed there: what is checked is what is used.

One thread reads and another hashes, both without Python's lock, while the caller does something else. Knows no
manifest and no torch: tensors are bytes here.
"""

import contextlib
import hashlib
import json
import math
import mmap
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BufferedReader
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from regard.io.files import DamagedFile, open_regular, os_errors_for
from regard.reporting import Json

ALIGNMENT = 64  # bytes, as torch aligns its own memory
FIRST, PIECE = 1 << 20, 32 << 20  # bytes that are read before hashing begins, and then at once
LONGEST_HEADER = 100_000_000  # bytes, as in the safetensors library


class TensorBytes(NamedTuple):
    dtype: str  # as safetensors says it: "F32"
    shape: list[int]
    data: memoryview  # begins at a multiple of ALIGNMENT


class HashedTensors:
    """The tensors of a file, once they are read, and its sha256, once that is known."""

    def __init__(self, path: Path) -> None:
        self.path, self.size = path, 0
        self._pieces: SimpleQueue[bytes | memoryview | None] = SimpleQueue()
        pool = ThreadPoolExecutor(2, "hashed-tensors")
        self._reading, self._hashing = pool.submit(self._read), pool.submit(self._hash)
        pool.shutdown(wait=False)

    def tensors(self) -> dict[str, TensorBytes]:
        """Waits until all are read; DamagedFile where the file is none of tensors."""
        with os_errors_for(self.path):
            return self._reading.result()

    def sha256(self) -> str | None:
        """Of the bytes in the tensors and before them; None where the file could not be read."""
        sha256 = self._hashing.result()
        return None if self._reading.exception() else sha256

    def _read(self) -> dict[str, TensorBytes]:
        try:
            with open_regular(self.path) as file:
                return self._read_tensors(file)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError):
            raise DamagedFile(f"{self.path}: truncated, or not a safetensors file") from None
        finally:
            self._pieces.put(None)

    def _read_tensors(self, file: BufferedReader) -> dict[str, TensorBytes]:
        size = os.fstat(file.fileno()).st_size
        length = file.read(8)
        header = file.read(min(int.from_bytes(length, "little"), LONGEST_HEADER))
        self._pieces.put(length + header)
        entries = _entries(json.loads(header), size - len(length + header))
        places, end = {}, 0
        for name, (_, _, count) in entries.items():
            start = end + -end % ALIGNMENT
            places[name] = start, end = start, start + count
        memory = memoryview(_new_memory(max(end, 1)))
        for start, end in _runs(list(places.values())):
            self._read_run(file, memory[start:end])
        self.size = size
        return {
            name: TensorBytes(dtype, shape, memory[slice(*places[name])]) for name, (dtype, shape, _) in entries.items()
        }

    def _read_run(self, file: BufferedReader, memory: memoryview) -> None:
        at, piece = 0, FIRST
        while at < len(memory):
            # Pieces are large: a thread that comes back from a long call waits up to 5 ms for Python's lock.
            count = file.readinto(memory[at : at + piece])
            if not count:
                raise ValueError
            self._pieces.put(memory[at : at + count])
            at, piece = at + count, PIECE

    def _hash(self) -> str:
        digest = hashlib.sha256()
        while (piece := self._pieces.get()) is not None:
            digest.update(piece)
        return digest.hexdigest()


def _new_memory(size: int) -> mmap.mmap:
    # Private: Python's default is shared, so that a forked child would write into its parent's weights.
    own = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANON} if hasattr(mmap, "MAP_PRIVATE") else {}
    memory = mmap.mmap(-1, size, **own)
    with contextlib.suppress(OSError, AttributeError):  # a system, or a kernel, without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)  # a tenth of the time that the system takes to hand out small pages
    return memory


def _entries(header: Json, size: int) -> dict[str, tuple[str, list[int], int]]:
    """Data type, shape and bytes of every tensor, in the order of the data, which must fill the file."""
    header.pop("__metadata__", None)
    entries, end = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        dtype, shape, (start, next_end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        bits = math.prod(shape) * int("".join(filter(str.isdigit, dtype)) or 8)  # BOOL has no number in its name
        if start != end or next_end < start or any(n < 0 for n in shape) or bits != 8 * (next_end - start):
            raise ValueError
        entries[name], end = (dtype, shape, next_end - start), next_end
    if end != size:
        raise ValueError
    return entries


def _runs(places: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Places of memory without those gaps that alignment makes, each as long as can be."""
    begin, end = 0, 0
    for start, next_end in places:
        if start != end:
            yield begin, end
            begin = start
        end = next_end
    yield begin, end

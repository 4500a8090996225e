"""Rows of different lengths in two flat files, memory-mapped: corpora larger than memory open at once.

A folder holds `flat.<dtype>`, all rows end to end, and `offsets.int64`, where each begins.
"""

import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np

from regard.errors import RegardError
from regard.io.files import os_errors_for


def id_dtype(size: int) -> np.dtype:
    """The smallest type that holds every id of a vocabulary of `size`."""
    return np.dtype(np.uint16 if size <= 1 << 16 else np.uint32)


class RaggedArray:
    """`rows[i]` is one row; `take` gathers many at once."""

    def __init__(self, flat: np.ndarray, offsets: np.ndarray) -> None:
        self.flat, self.offsets = flat, offsets  # [tokens], [rows + 1]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> np.ndarray:
        if not -len(self) <= i < len(self):
            raise IndexError(i)  # also what ends iteration over the rows
        i %= len(self)
        return self.flat[self.offsets[i] : self.offsets[i + 1]]

    @cached_property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets).astype(np.int32)  # [rows]

    def truncate(self, longest: int) -> "RaggedArray":
        """The same rows, none longer than this."""
        if self.lengths.max(initial=0) <= longest:
            return self
        kept = np.arange(len(self.flat)) - np.repeat(self.offsets[:-1], self.lengths) < longest
        return RaggedArray(self.flat[kept], np.concatenate([[0], np.cumsum(np.minimum(self.lengths, longest))]))

    def take(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows end to end, and their offsets: row j is flat[offsets[j]:offsets[j + 1]]."""
        indices = np.asarray(indices, dtype=np.int64)
        return RaggedSpans(self.flat, self.offsets[:-1], self.offsets[1:]).take(indices)


class RaggedSpans:
    """Slices [begins[i], ends[i]) of flat ids, which may overlap."""

    def __init__(self, flat: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> None:
        self.flat, self.begins, self.ends = flat, begins, ends

    def __len__(self) -> int:
        return len(self.begins)

    @property
    def lengths(self) -> np.ndarray:
        return self.ends - self.begins

    def take(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The slices end to end, and their offsets."""
        starts = self.begins[indices]
        lengths = self.ends[indices] - starts
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        where = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
        return self.flat[where], offsets


class RaggedFile(RaggedArray):
    """Rows in a folder that a `RaggedWriter` wrote."""

    def __init__(self, folder: Path) -> None:
        files = list(Path(folder).glob("flat.*"))
        if len(files) != 1:
            raise RegardError(f"{folder}: not a folder of rows (one flat.<type> file)")
        flat = _map(files[0], np.dtype(files[0].suffix[1:]))
        offsets = _map(Path(folder) / "offsets.int64", np.dtype(np.int64))
        if not len(offsets) or offsets[-1] != len(flat):
            raise RegardError(f"{folder}: the rows are cut short; delete the folder and prepare again")
        super().__init__(flat, offsets)


class RaggedTexts(RaggedFile):
    """Rows that are UTF-8 text."""

    def __getitem__(self, i: int) -> str:  # type: ignore[override]
        return super().__getitem__(i).tobytes().decode("utf-8")

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))


class RaggedWriter:
    """Appends rows chunk by chunk; `close` makes the folder one that `Ragged` opens."""

    def __init__(self, folder: Path, dtype: np.dtype | type) -> None:
        folder.mkdir(parents=True)
        self.dtype = np.dtype(dtype)
        self._flat = open(folder / f"flat.{self.dtype.name}", "wb")  # noqa: SIM115
        self._offsets = open(folder / "offsets.int64", "wb")  # noqa: SIM115
        self._end = 0
        np.zeros(1, dtype=np.int64).tofile(self._offsets)

    def append(self, rows: Sequence[Sequence[int]]) -> None:
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        flat = np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=int(lengths.sum()))
        if len(flat) and (flat.min() < 0 or flat.max() > np.iinfo(self.dtype).max):
            raise ValueError(f"{flat.min()} … {flat.max()} does not fit in {self.dtype}")
        self._write(flat.astype(self.dtype).tobytes(), lengths)

    def append_texts(self, texts: Sequence[str]) -> None:
        encoded = [text.encode("utf-8") for text in texts]
        self._write(b"".join(encoded), np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded)))

    def _write(self, flat: bytes, lengths: np.ndarray) -> None:
        offsets = self._end + np.cumsum(lengths)
        self._flat.write(flat)
        self._offsets.write(offsets.astype(np.int64).tobytes())
        self._end += int(lengths.sum())

    def close(self) -> None:
        for file in (self._flat, self._offsets):
            if not file.closed:
                with file:
                    file.flush()
                    os.fsync(file.fileno())

    def __enter__(self) -> "RaggedWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _map(path: Path, dtype: np.dtype) -> np.ndarray:
    with os_errors_for(path):
        if path.stat().st_size % dtype.itemsize:
            raise RegardError(f"{path}: the file is cut short; delete the folder and prepare again")
        if not path.stat().st_size:  # an empty file cannot be mapped
            return np.zeros(0, dtype)
        return np.asarray(np.memmap(path, dtype=dtype, mode="r"))  # a plain view: np.memmap slices slowly

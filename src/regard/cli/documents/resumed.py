"""An output that a killed command goes on with: what is finished stands in NAME.part, and how far it got beside it.

The state is written after the text that it counts, by one rename; whatever was written after it is cut off again, so
that a kill at any moment leaves a beginning of the output that an uninterrupted run would write.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import IO

from regard.errors import RegardError
from regard.io.atomic import atomic_write
from regard.io.files import os_errors_for
from regard.io.lock import lock_file
from regard.predict.documents.translate import DocumentCounts

FORMAT = 1


class ResumedOutput:
    """`key` is what the output depends on: the document, the model and the options."""

    def __init__(self, path: Path, key: str) -> None:
        self.path, self.key = path, key
        self.part, self.state = (path.with_name(f"{path.name}.part{end}") for end in ("", ".json"))
        self.counts, self.size = DocumentCounts(), 0
        if self.part.exists() and self.state.exists():
            self._read_state()

    def _read_state(self) -> None:
        try:
            found = json.loads(self.state.read_text(encoding="utf-8"))
            key, size, counts = str(found["key"]), int(found["bytes"]), DocumentCounts(**found["counts"])
        except (OSError, ValueError, KeyError, TypeError):
            raise RegardError(f"{self.state}: damaged; delete it and {self.part} to begin anew") from None
        if key != self.key or size > self.part.stat().st_size:
            raise RegardError(
                f"{self.part} was begun from another document, by another model or with other options; "
                f"delete it and {self.state} to begin anew, or give another --output"
            )
        self.counts, self.size = counts, size

    @contextlib.contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """The finished part, to write after; when all is written, it becomes the output."""
        with os_errors_for(self.part, "written"):
            with open(self.part, "r+b" if self.size else "ab") as file:  # nothing is cut before the lock is held
                if lock_file(file.fileno(), wait=False) is False:
                    raise RegardError(f"{self.part} is being written by another process")
                file.truncate(self.size)
                file.seek(self.size)
                yield file
            os.replace(self.part, os.path.realpath(self.path))
            self.state.unlink(missing_ok=True)

    def save(self, file: IO[bytes], counts: DocumentCounts) -> None:
        file.flush()
        os.fsync(file.fileno())  # a power cut must not leave the state without what it counts
        self.size = file.tell()
        with atomic_write(self.state) as state:
            json.dump({"format": FORMAT, "key": self.key, "bytes": self.size, "counts": asdict(counts)}, state)


def document_key(document: Path, model: str, options: str) -> str:
    digest = hashlib.sha256(f"{FORMAT} {model} {options}".encode())
    with os_errors_for(document, "read"), open(document, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()

"""What a prepared form depends on, as one short hash: contents, columns, filters, tokenizers."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.data import embedded, readers
from regard.data.config import Corpus
from regard.errors import telling

WHOLE = 1 << 30  # bytes: larger files are told apart by size, time and samples
SAMPLE = 1 << 20


def fingerprint(
    corpora: Sequence[Corpus],
    columns: Mapping[str, Any],
    settings: Mapping[str, Any],
    languages: Sequence[str] | None = None,
) -> str:
    parts = {
        "corpora": [
            {
                "set": c.set,  # the embedded corpus has its splits in one file
                "columns": c.columns,
                "layout": readers.suffix(c.path) if c.path else None,
                "files": file_hashes(c, languages),
            }
            for c in corpora
        ],
        "columns": {name: tokenizer.fingerprint for name, tokenizer in columns.items()},
        "settings": settings,
    }
    text = json.dumps(parts, sort_keys=True, default=list)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def file_hashes(corpus: Corpus, languages: Sequence[str] | None = None) -> list[str]:
    """The hashes of a corpus's files; for the embedded file, which holds more than texts, what stands for its texts."""
    paths = readers.files(corpus, languages)
    return [h for path in paths for h in (embedded.HASHES if path == embedded.FILE else [file_hash(path)])]


def file_hash(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with telling(path), open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size <= WHOLE:
            while block := file.read(SAMPLE):
                digest.update(block)
        else:
            digest.update(f"{size} {os.fstat(file.fileno()).st_mtime_ns}".encode())
            for place in range(32):
                file.seek(place * (size - SAMPLE) // 31)
                digest.update(file.read(SAMPLE))
    return digest.hexdigest()

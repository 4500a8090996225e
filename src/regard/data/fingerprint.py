"""The fingerprint of prepared data: one hash of all that it depends on, files, columns, filters and tokenizers."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.data import readers
from regard.data.config import Corpus
from regard.io.files import os_errors_for

FULL_HASH_LIMIT = 1 << 30  # bytes; of larger files size, time and samples are hashed
BLOCK = 1 << 20


def data_fingerprint(
    corpora: Sequence[Corpus],
    columns: Mapping[str, Any],
    settings: Mapping[str, Any],
    languages: Sequence[str] | None = None,
) -> str:
    parts = {
        "corpora": [
            {
                "set": c.set,  # the embedded corpus has its splits in the same files
                "columns": c.columns,
                "layout": readers.suffix(c.path) if c.path else None,
                "files": [file_hash(p) for p in readers.corpus_files(c, languages)],
            }
            for c in corpora
        ],
        "columns": {name: tokenizer.fingerprint for name, tokenizer in columns.items()},
        "settings": settings,
    }
    text = json.dumps(parts, sort_keys=True, default=list)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def file_hash(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with os_errors_for(path), open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size <= FULL_HASH_LIMIT:
            while block := file.read(BLOCK):
                digest.update(block)
        else:
            digest.update(f"{size} {os.fstat(file.fileno()).st_mtime_ns}".encode())
            for sample in range(32):
                file.seek(sample * (size - BLOCK) // 31)
                digest.update(file.read(BLOCK))
    return digest.hexdigest()

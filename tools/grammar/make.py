"""Write the embedded corpus: `python -m tools.grammar.make`, in the root of the repository.

The same grammar gives the same bytes. Rows of train, valid and test that change need another `HASHES` in
src/regard/data/embedded.py, and published figures rest on them.
"""

import bz2
from collections.abc import Iterator

from regard.data.embedded import FILE, MINIMAL, SPLITS
from tools.grammar.corpus import Pair, corpus
from tools.grammar.minimal import minimal_pairs
from tools.grammar.trees import heads


def content() -> bytes:
    return "".join(f"{line}\n" for line in _lines()).encode()


def packed(data: bytes) -> bytes:
    return bz2.compress(data, 9)  # shuffled sentences: half of what gzip needs, and less than xz


def _lines() -> Iterator[str]:
    for split in SPLITS:
        yield from (_line(split, pair) for pair in corpus()[split])
    minimal = minimal_pairs()
    for split in SPLITS:
        yield from (_line(MINIMAL + split, pair) for held, *both in minimal if held == split for pair in both)


def _line(split: str, pair: Pair) -> str:
    pronouns = " ".join(f"{p.english}:{p.referent}:{p.german}" for p in pair.pronouns)
    tree = " ".join(map(str, heads(pair.source)))
    return "\t".join((split, pair.source, pair.target, pair.construction, pronouns, tree))


def main() -> None:
    data = content()
    FILE.write_bytes(packed(data))
    print(f"{FILE.name}: {data.count(10):,} rows, {len(data):,} bytes, packed {FILE.stat().st_size:,}")


if __name__ == "__main__":
    main()

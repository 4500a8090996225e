"""Makes the data set `stories` of the 150 books that SOURCES.tsv lists: downloads, checks, and writes train and valid.

    python -m tools.stories.make OUT

Each book is an archive of a public repository of Standard Ebooks at one commit, which the archive names itself; its
sha256 is kept in OUT/archives/archives.json and compared ever after. One paragraph a line, a blank line between
documents: a story with its title first, or a chapter. documents.txt has the sha256 of each document's letters, and its
split, so that the set is the one that figures were measured on; a document that it lacks is counted, and learned from.
"""

import argparse
import gzip
import hashlib
import json
import shutil
import sys
import tarfile
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

from regard.errors import RegardError
from regard.io.files import read_json, write_json
from regard.io.manifest import file_sha256

HERE = Path(__file__).parent
ADDRESS = "https://github.com/{repository}/archive/{commit}.tar.gz"
XHTML, OPF = "{http://www.w3.org/1999/xhtml}", "{http://www.idpf.org/2007/opf}"
APART = {"titlepage", "imprint", "dedication", "epigraph", "toc", "loi", "halftitlepage", "colophon", "uncopyright",
         "endnotes", "glossary", "acknowledgements"}  # fmt: skip
SECONDS = 60  # without a byte


@dataclass(frozen=True)
class Book:
    repository: str
    commit: str
    documents: int
    words: int

    @property
    def file(self) -> str:
        return f"{self.repository.partition('/')[2]}.tar.gz"


def read_books(path: Path = HERE / "SOURCES.tsv") -> list[Book]:
    names, *rows = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    books = [dict(zip(names, row, strict=True)) for row in rows]
    return [Book(b["repository"], b["commit"], int(b["documents"]), int(b["words"])) for b in books]


def fetch(book: Book, folder: Path, address: str = ADDRESS) -> Path:
    """The archive of a book, downloaded once."""
    path, url = folder / book.file, address.format(repository=book.repository, commit=book.commit)
    if not path.exists():
        partial = path.with_suffix(".part")
        try:
            with urllib.request.urlopen(url, timeout=SECONDS) as response, partial.open("wb") as file:
                shutil.copyfileobj(response, file)
        except OSError as error:
            raise RegardError(f"{url}: cannot be downloaded ({error}); run the same command again") from None
        partial.replace(path)
    sums = read_json(folder / "archives.json") if (folder / "archives.json").exists() else {}
    digest = file_sha256(path)
    if sums.setdefault(book.repository, digest) != digest:
        raise RegardError(f"{path}: another archive than before, by its sha256 in archives.json; delete one of the two")
    write_json(folder / "archives.json", sums)
    return path


def read_documents(book: Book, path: Path) -> Iterator[str]:
    """The documents of a book, in the order of its pages."""
    try:
        with tarfile.open(path) as archive:
            if (named := archive.pax_headers.get("comment")) not in (None, book.commit):
                raise RegardError(f"{path}: an archive of the commit {named}, not {book.commit}")
            files = {PurePosixPath(*PurePosixPath(m.name).parts[1:]): m for m in archive if m.isfile()}
            package = _parse(archive, files[PurePosixPath("src/epub/content.opf")])
            pages = {item.get("id"): str(item.get("href")) for item in package.iter(f"{OPF}item")}
            for reference in package.iter(f"{OPF}itemref"):
                page = PurePosixPath("src/epub") / pages[reference.get("idref")]
                if page.stem not in APART:
                    yield from page_documents(_parse(archive, files[page]))
    except (tarfile.TarError, EOFError, KeyError, ElementTree.ParseError) as error:
        sentence = f"not a book of Standard Ebooks, or cut short ({error}); delete it to fetch it anew"
        raise RegardError(f"{path}: {sentence}") from None


def _parse(archive: tarfile.TarFile, member: tarfile.TarInfo) -> ElementTree.Element:
    file = archive.extractfile(member)
    assert file is not None
    return ElementTree.fromstring(file.read())


def page_documents(page: ElementTree.Element) -> Iterator[str]:
    """The stories of a page, each with its title; or all of it as a chapter."""
    stories = list(page.iter(f"{XHTML}article"))
    for part in stories or [page]:
        paragraphs = [text for p in part.iter(f"{XHTML}p") if (text := _text(p))]
        titles = [_text(h) for h in part.iter() if h.tag in (f"{XHTML}h2", f"{XHTML}h3")][:1] if stories else []
        if paragraphs:
            yield "\n".join([*titles, *paragraphs])


def _text(element: ElementTree.Element) -> str:
    """The text of an element without references to notes, spaces made single."""

    def parts(inner: ElementTree.Element) -> Iterator[str]:
        if not any("noteref" in value for value in inner.attrib.values()):
            yield inner.text or ""
            for child in inner:
                yield from parts(child)
                yield (" " if child.tag == f"{XHTML}br" else "") + (child.tail or "")

    return " ".join("".join(parts(element)).replace("\u2060", "").replace("\ufeff", "").split())


def letters_sha256(document: str) -> str:
    """Of its letters and digits alone, so that neither spaces nor quotation marks matter."""
    return hashlib.sha256("".join(filter(str.isalnum, document)).encode()).hexdigest()[:16]


def known_splits(path: Path = HERE / "documents.txt") -> dict[str, str]:
    return dict(line.split() for line in path.read_text(encoding="utf-8").splitlines())


def make_stories(out: Path, books: list[Book], splits: dict[str, str], address: str = ADDRESS) -> Counter[str]:
    """Writes OUT/stories; returns how many documents went where, and how many were not known."""
    archives, folder = out / "archives", out / "stories"
    archives.mkdir(parents=True, exist_ok=True)
    texts: dict[str, list[str]] = {"train": [], "valid": []}
    counts: Counter[str] = Counter()
    for book in books:
        documents = list(read_documents(book, fetch(book, archives, address)))
        for document in documents:
            split = splits.get(letters_sha256(document))
            counts["unknown"] += split is None
            texts[split or "train"].append(document)
        if len(documents) != book.documents:
            sentence = f"{len(documents)} documents, where SOURCES.tsv has {book.documents}"
            print(f"{book.repository}: {sentence}", file=sys.stderr)
    folder.mkdir(exist_ok=True)
    for split, documents in texts.items():
        counts[split] = len(documents)
        with gzip.GzipFile(folder / f"{split}.txt.gz", "wb", mtime=0) as file:
            file.write(("\n\n".join(documents) + "\n").encode())
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="a folder for REGARD_DATA; the set is OUT/stories")
    out = parser.parse_args().out
    try:
        counts = make_stories(out, read_books(), known_splits())
    except RegardError as error:
        raise SystemExit(f"stories: {error}") from None
    print(json.dumps(counts))


if __name__ == "__main__":
    main()

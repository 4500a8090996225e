"""tools/stories on a made archive: order of pages, titles of stories, splits by letters, and what is wrong."""

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from regard.errors import RegardError
from tools.stories import make

COMMIT = "4d77b44d8db18647c02636274d989958703139f4"
CONTENT = """<package xmlns="http://www.idpf.org/2007/opf"><manifest>
<item id="titlepage" href="text/titlepage.xhtml"/><item id="b" href="text/chapter-2.xhtml"/>
<item id="a" href="text/chapter-1.xhtml"/><item id="s" href="text/short-fiction.xhtml"/></manifest>
<spine><itemref idref="titlepage"/><itemref idref="a"/><itemref idref="b"/><itemref idref="s"/></spine></package>"""
PAGE = '<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops"><body>{}</body></html>'
PAGES = {
    "titlepage": "<p>Not this.</p>",
    "chapter-1": "<h2>I</h2><p>It was\n  <i>late</i>.<a epub:type='noteref'>1</a></p><p>He slept.</p>",
    "chapter-2": "<h2>II</h2><p>She<br/>sang.</p>",
    "short-fiction": "<article><h2>The <b>Sea</b></h2><p>Waves.</p></article>"
    "<article><h2>Sand</h2><p>Dunes.</p></article>",
}
DOCUMENTS = ["It was late.\nHe slept.", "She sang.", "The Sea\nWaves.", "Sand\nDunes."]


@pytest.fixture
def book(tmp_path: Path) -> make.Book:
    with tarfile.open(tmp_path / f"{COMMIT}.tar.gz", "w:gz", pax_headers={"comment": COMMIT}) as archive:
        pages = {f"text/{name}.xhtml": PAGE.format(text) for name, text in PAGES.items()}
        for name, text in [("content.opf", CONTENT), *pages.items()]:
            member = tarfile.TarInfo(f"made-{COMMIT}/src/epub/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return make.Book("standardebooks/made", COMMIT, 4, 12)


def test_a_set_is_made_of_an_archive(book: make.Book, tmp_path: Path) -> None:
    splits = {make.letters_sha256(text): "train" for text in DOCUMENTS[:1]}
    splits |= {make.letters_sha256("She… sang"): "valid"}
    counts = make.make_stories(tmp_path / "out", [book], splits, f"file://{tmp_path}/{{commit}}.tar.gz")
    assert counts == {"train": 3, "valid": 1, "unknown": 2}
    folder = tmp_path / "out" / "stories"
    texts = [gzip.decompress((folder / f"{split}.txt.gz").read_bytes()).decode() for split in ("train", "valid")]
    assert texts == ["\n\n".join([DOCUMENTS[0], *DOCUMENTS[2:]]) + "\n", "She sang.\n"]


def test_what_is_wrong_is_a_sentence(book: make.Book, tmp_path: Path) -> None:
    address = f"file://{tmp_path}/{{commit}}.tar.gz"
    other = make.Book("standardebooks/made", "0" * 40, 4, 12)
    with pytest.raises(RegardError, match="cannot be downloaded"):
        make.make_stories(tmp_path / "out", [other], {}, address)
    make.make_stories(tmp_path / "out", [book], {}, address)
    with pytest.raises(RegardError, match=f"an archive of the commit {COMMIT}, not 0000"):
        make.make_stories(tmp_path / "out", [other], {}, address)
    path = tmp_path / "out" / "archives" / "made.tar.gz"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(RegardError, match=r"made.tar.gz: another archive than before, by its sha256"):
        make.make_stories(tmp_path / "out", [book], {}, address)
    (tmp_path / "out" / "archives" / "archives.json").unlink()
    with pytest.raises(RegardError, match=r"made.tar.gz: not a book of Standard Ebooks, or cut short"):
        make.make_stories(tmp_path / "out", [book], {}, address)


def test_the_list_names_every_book_by_its_commit() -> None:
    books, splits = make.read_books(), make.known_splits()
    assert len(books) == 150
    assert all(len(book.commit) == 40 and book.repository.startswith("standardebooks/") for book in books)
    assert len({book.file for book in books}) == 150
    assert list(splits.values()).count("valid") == 34

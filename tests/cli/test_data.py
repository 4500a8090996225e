import hashlib
import io
import json
import threading
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from regard.cli import data as command
from regard.data import download, formats
from regard.data.datasets import DATASETS, Download
from regard.data.download import download_set
from regard.errors import RegardError


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("REGARD_DATA", raising=False)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "data"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the local address that serves it."""
    folder = tmp_path / "site"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def offer(monkeypatch: pytest.MonkeyPatch, name: str, *items: Download) -> None:
    monkeypatch.setitem(DATASETS, name, replace(DATASETS[name], downloads=items))


def archive(members: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        for name, data in members.items():
            file.writestr(name, data)
    return packed.getvalue()


def test_get_over_http(cache: Path, site: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, capsys):
    folder, address = site
    (folder / "input.txt").write_text("To be,\nor not\n")
    digest = hashlib.sha256((folder / "input.txt").read_bytes()).hexdigest()
    offer(monkeypatch, "tinyshakespeare", Download(f"{address}/input.txt", "input.txt", digest))
    command.get("TinyShakespeare")
    assert f"tinyshakespeare is in {cache / 'tinyshakespeare'}" in capsys.readouterr().out
    assert [r["text"] for r in formats.read_set("tinyshakespeare", "all")] == ["To be,", "or not"]


def test_a_wrong_file_leaves_nothing(cache: Path, site: tuple[Path, str], monkeypatch: pytest.MonkeyPatch):
    folder, address = site
    (folder / "a").write_text("right")
    (folder / "b").write_text("another file")
    good = hashlib.sha256(b"right").hexdigest()
    offer(monkeypatch, "tokenizers", Download(f"{address}/a", "gpt2/a", good), Download(f"{address}/b", "gpt2/b", good))
    with pytest.raises(RegardError, match="not the file the catalog knows"):
        download_set("tokenizers")
    assert [path.name for path in (cache / "tokenizers").iterdir() if not path.name.startswith(".")] == []
    (folder / "b").write_text("right")
    download_set("tokenizers")
    assert sorted(path.name for path in (cache / "tokenizers").iterdir()) == [".lock", "gpt2"]


def test_a_download_that_was_cut_goes_on(cache: Path, monkeypatch: pytest.MonkeyPatch):
    content, asked = bytes(range(256)) * 400, []

    class Cut(Quiet):
        """Ends after half of what is left, or of a new version from the beginning."""

        def do_GET(self) -> None:
            start = int((self.headers["Range"] or "bytes=0-")[6:-1]) if self.headers["If-Range"] == '"1"' else 0
            asked.append(start)
            self.send_response(206 if start else 200)
            self.send_header("ETag", '"1"')
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            self.wfile.write(content[start : start + 60_000])

    server = ThreadingHTTPServer(("127.0.0.1", 0), Cut)
    threading.Thread(target=server.serve_forever).start()
    url = f"http://127.0.0.1:{server.server_port}/input.txt"
    offer(monkeypatch, "tinyshakespeare", Download(url, "input.txt", hashlib.sha256(content).hexdigest()))
    try:
        with pytest.raises(RegardError, match="the same command goes on from there"):
            download_set("tinyshakespeare")
        assert (download_set("tinyshakespeare") / "input.txt").read_bytes() == content
    finally:
        server.shutdown()
        server.server_close()
    assert asked == [0, 60_000]


def test_a_file_without_a_known_sum_must_stay_what_it_was(
    cache: Path, site: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
):
    folder, address = site
    (folder / "input.txt").write_text("first")
    offer(monkeypatch, "tinyshakespeare", Download(f"{address}/input.txt", "input.txt"))
    notes: list[str] = []
    download_set("tinyshakespeare", note=notes.append)
    digest = hashlib.sha256(b"first").hexdigest()
    assert notes == [
        f"{address}/input.txt: the catalog knows no sha256 of it; {digest} is kept in {cache / 'downloads.json'} "
        "and expected from now on"
    ]
    download_set("tinyshakespeare", note=notes.append)
    assert len(notes) == 1
    (folder / "input.txt").write_text("other")
    with pytest.raises(RegardError, match="not the file that came first"):
        download_set("tinyshakespeare")
    assert (cache / "tinyshakespeare" / "input.txt").read_text() == "first"


def test_every_download_is_over_https():
    assert all(item.url.startswith("https://") for entry in DATASETS.values() for item in entry.downloads)
    request = urllib.request.Request("https://example.org/a")
    with pytest.raises(RegardError, match="an address without HTTPS"):
        download._HttpsStays().redirect_request(request, None, 302, "", {}, "http://example.org/a")


def test_missing_on_the_server(cache: Path, site: tuple[Path, str], monkeypatch: pytest.MonkeyPatch):
    offer(monkeypatch, "dream", Download(f"{site[1]}/none.json", "train.json"))
    with pytest.raises(RegardError, match=r"the server answered 404 .*nlpdata/dream"):
        download_set("dream")


def test_no_network_is_one_sentence(cache: Path, monkeypatch: pytest.MonkeyPatch):
    offer(monkeypatch, "dream", Download("http://127.0.0.1:9/train.json", "train.json"))
    with pytest.raises(RegardError, match=r"cannot be reached .*REGARD_DATA"):
        download_set("dream")


def test_nothing_to_get(cache: Path):
    with pytest.raises(RegardError, match="part of the package"):
        download_set("embedded")
    with pytest.raises(RegardError, match=r"has no download; see https://github.com/NiuTrans"):
        download_set("classical-modern-zh")


def test_tatoeba_is_split_by_english_sentence(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    lines = [f"Sentence {i}.\tSatz {i} {side}.\tCC-BY by someone\n" for i in range(1000) for side in "ab"]
    (tmp_path / "x.zip").write_bytes(archive({"deu.txt": "".join(lines).encode()}))
    offer(
        monkeypatch, "tatoeba-en-de", replace(DATASETS["tatoeba-en-de"].downloads[0], url=(tmp_path / "x.zip").as_uri())
    )
    download_set("tatoeba-en-de")
    train, valid = ([r["en"] for r in formats.read_set("tatoeba-en-de", split)] for split in ("train", "valid"))
    assert len(train) + len(valid) == 2000
    assert 2 <= len(valid) <= 50
    assert not set(train) & set(valid)
    assert next(formats.read_set("tatoeba-en-de", "train"))["de"] == "Satz 0 a."


def test_archives_inside_archives(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    inner = {s: archive({f"{s}/dialogues_{s}.txt": f"Hi {s} . __eou__\n".encode()}) for s in ("train", "validation")}
    whole = archive({f"ijcnlp_dailydialog/{s}.zip": data for s, data in inner.items()})
    (tmp_path / "x.zip").write_bytes(whole)
    offer(monkeypatch, "dailydialog", replace(DATASETS["dailydialog"].downloads[0], url=(tmp_path / "x.zip").as_uri()))
    download_set("dailydialog")
    assert next(formats.read_set("dailydialog", "valid"))["turns"] == ["Hi validation ."]


def test_squad_articles_are_shared_out(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    question = {"id": "1", "question": "What?", "answers": [{"text": "it", "answer_start": 0}]}
    articles = [{"title": t, "paragraphs": [{"context": "it", "qas": [question]}]} for t in ("Kenya", "Warsaw")]
    (tmp_path / "dev.json").write_text(json.dumps({"version": "1.1", "data": articles}))
    offer(monkeypatch, "squad-dev-split", Download((tmp_path / "dev.json").as_uri(), convert="squad"))
    download_set("squad-dev-split")
    assert [r["title"] for r in formats.read_set("squad-dev-split", "valid")] == ["Kenya"]
    assert [r["title"] for r in formats.read_set("squad-dev-split", "train")] == ["Warsaw"]


@pytest.mark.parametrize("content", [b"<html>no</html>", archive({"other.txt": b""})])
def test_a_page_instead_of_an_archive(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes):
    (tmp_path / "x.zip").write_bytes(content)
    offer(monkeypatch, "conll2003", replace(DATASETS["conll2003"].downloads[0], url=(tmp_path / "x.zip").as_uri()))
    with pytest.raises(RegardError, match="not laid out as expected"):
        download_set("conll2003")


def test_list_for_programs(cache: Path, capsys: pytest.CaptureFixture[str]):
    (cache / "tinyshakespeare").mkdir(parents=True)
    (cache / "tinyshakespeare" / "input.txt").write_text("x\n")
    command.list_sets(json=True)
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["tinyshakespeare"]["found"] == str(cache / "tinyshakespeare")
    assert rows["multi30k"]["found"] is None
    assert rows["multi30k"]["languages"] == ["en", "de", "fr"]
    assert rows["embedded"]["found"] == "built in"
    assert not rows["glue/MRPC"]["get"]


def test_list_for_people(cache: Path, capsys: pytest.CaptureFixture[str]):
    command.list_sets()
    shown = capsys.readouterr().out
    assert all(name in shown for name in DATASETS)


def test_every_set_says_how_to_get_it():
    for entry in DATASETS.values():
        assert entry.layout == "embedded" or entry.downloads or entry.manual
        saved = {name for item in entry.downloads for name in (item.file, *item.members.values())}
        wanted = {name.removesuffix(".gz") for names in entry.splits.values() for name in names}
        if entry.downloads and not any(item.convert in ("tatoeba", "squad") for item in entry.downloads):
            assert {name.removesuffix(".gz") for name in saved if name} == wanted

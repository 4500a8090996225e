"""Downloads of public datasets into the cache, checked and laid out as the catalog reads them. Prints nothing."""

import gzip
import hashlib
import http.client
import io
import json
import shutil
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from regard.data.catalog import cache_root, find_set
from regard.data.datasets import Dataset, Download
from regard.errors import RegardError
from regard.io.atomic import atomic_write
from regard.io.files import os_errors_for, read_json
from regard.io.lock import lock_file
from regard.io.manifest import file_sha256

DownloadProgress = Callable[[str, int, int | None], None]  # file, bytes so far, bytes in all
PINS = "downloads.json"  # in the cache: the sha256 of each address whose files the catalog does not know
SQUAD_VALID = {
    "Economic_inequality",
    "Force",
    "Immune_system",
    "Kenya",
    "Newcastle_upon_Tyne",
    "Victoria_and_Albert_Museum",
}


def download_set(
    name: str, progress: DownloadProgress | None = None, note: Callable[[str], None] = lambda sentence: None
) -> Path:
    """Download the set `name`; its folder. Files appear there only when all of them are whole.

    A download that was cut off goes on where it stopped. `note` receives what a user should know.
    """
    entry = find_set(name)
    if not entry.downloads:
        where = "it is part of the package" if entry.layout == "embedded" else f"see {entry.homepage}: {entry.manual}"
        raise RegardError(f"{entry.name} has no download; {where}")
    folder = cache_root() / "data" / entry.name
    with os_errors_for(folder, "written"):
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / ".lock", "w") as lock, tempfile.TemporaryDirectory(prefix=".getting-", dir=folder) as place:
            lock_file(lock, wait=True)
            partial = [_download_one(entry, item, folder, Path(place), progress, note) for item in entry.downloads]
            for path in sorted(p for p in Path(place).rglob("*") if p.is_file()):
                target = folder / path.relative_to(place)
                target.parent.mkdir(parents=True, exist_ok=True)
                path.replace(target)
            for path in (file for download in partial for file in (download, _validator(download))):
                path.unlink(missing_ok=True)
    return folder


def _download_one(
    entry: Dataset,
    item: Download,
    folder: Path,
    place: Path,
    progress: DownloadProgress | None,
    note: Callable[[str], None],
) -> Path:
    """Downloads a file beside the set, checks it, and lays out in `place` what is in it; the download."""
    partial = folder / f".partial-{hashlib.sha256(item.url.encode()).hexdigest()[:16]}"
    _download(entry, item.url, partial, progress)
    try:
        _check_sha256(item, file_sha256(partial), note)
    except RegardError:
        partial.unlink()
        raise
    with open(partial, "rb") as file:
        if not item.convert:
            target = place / item.file
            target.parent.mkdir(parents=True, exist_ok=True)
            with open(target, "wb") as out:
                shutil.copyfileobj(file, out)
            return partial
        try:
            CONVERTERS[item.convert](file, item, place)
        except (zipfile.BadZipFile, KeyError, ValueError) as error:
            partial.unlink()
            raise RegardError(f"{item.url}: not laid out as expected ({error}); see {entry.homepage}") from None
    return partial


def _check_sha256(item: Download, digest: str, note: Callable[[str], None]) -> None:
    """Against the catalog, or else against the first download on this machine, whose sha256 is kept."""
    if item.sha256:
        if digest != item.sha256:
            raise RegardError(f"{item.url}: not the file the catalog knows (sha256 {digest}); try again later")
        return
    pins = cache_root() / "data" / PINS
    known = read_json(pins) if pins.exists() else {}
    if item.url not in known:
        with atomic_write(pins) as file:
            file.write(json.dumps(known | {item.url: digest}, indent=1) + "\n")
        note(f"{item.url}: the catalog knows no sha256 of it; {digest} is kept in {pins} and expected from now on")
    elif known[item.url] != digest:
        raise RegardError(
            f"{item.url}: not the file that came first (sha256 {digest}, then {known[item.url]}); if its publisher has "
            f"changed it, remove its line from {pins}"
        )


class _HttpsStays(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if req.full_url.startswith("https:") and not newurl.startswith("https:"):
            raise RegardError(f"{req.full_url}: the server sends on to an address without HTTPS, which is not followed")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _validator(partial: Path) -> Path:
    """Where the server's name for the version of a file is kept while only a part of it is here."""
    return partial.with_name(f"{partial.name}.etag")


def _download(entry: Dataset, url: str, partial: Path, progress: DownloadProgress | None) -> None:
    """The file at `url`, or the rest of it."""
    headers, done = {"User-Agent": "regard"}, 0
    if partial.exists() and _validator(partial).exists():
        done = partial.stat().st_size
        headers |= {"Range": f"bytes={done}-", "If-Range": _validator(partial).read_text("utf-8")}
    opener = urllib.request.build_opener(_HttpsStays)
    try:
        with opener.open(urllib.request.Request(url, headers=headers), timeout=60) as response:
            done = done if response.status == 206 else 0
            rest = int(response.headers.get("Content-Length") or 0)
            size = done + rest if rest else None
            version = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
            if version and not version.startswith("W/"):
                _validator(partial).write_text(version, encoding="utf-8")
            else:
                _validator(partial).unlink(missing_ok=True)
            with open(partial, "ab" if done else "wb") as file:
                while block := response.read(1 << 16):
                    file.write(block)
                    done += len(block)
                    if progress is not None:
                        progress(url.rsplit("/", 1)[1], done, size)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # all of it is here, or another version with fewer bytes there
            partial.unlink()
            return _download(entry, url, partial, progress)
        raise RegardError(f"{url}: the server answered {error.code} {error.reason}; see {entry.homepage}") from None
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        if done:
            raise RegardError(f"{url}: cut off after {done:,} bytes; the same command goes on from there") from None
        reason = getattr(error, "reason", None) or error
        raise RegardError(
            f"{urlsplit(url).netloc or url} cannot be reached ({reason}); without a network, put "
            f"the files of {entry.name} in a folder {entry.name} and set REGARD_DATA to the folder above it"
        ) from None
    if size is not None and done != size:
        raise RegardError(f"{url}: {done} bytes came instead of {size}; the same command goes on from there")


# --- converters ---


def _member(file: IO[bytes], name: str) -> bytes:
    """A member of a zip archive; `a.zip!b` is the member b of the archive a.zip inside it."""
    outer, _, inner = name.partition("!")
    with zipfile.ZipFile(file) as archive:
        data = archive.read(outer)
    return _member(io.BytesIO(data), inner) if inner else data


def _unzip(file: IO[bytes], item: Download, folder: Path) -> None:
    for member, name in item.members.items():
        (folder / name).write_bytes(_member(file, member))


def _tatoeba(file: IO[bytes], item: Download, folder: Path) -> None:
    """English, German and their authors, by tab; all pairs of an English sentence go to the same split."""
    (member,) = item.members
    with (
        gzip.open(folder / "train.tsv.gz", "wt", encoding="utf-8", newline="\n") as train,
        gzip.open(folder / "valid.tsv.gz", "wt", encoding="utf-8", newline="\n") as valid,
    ):
        for line in _member(file, member).decode("utf-8").split("\n"):
            if line.strip():
                english, german, *_ = line.rstrip("\r").split("\t")
                bucket = int.from_bytes(hashlib.blake2b(english.encode(), digest_size=8).digest(), "big") % 100
                (valid if bucket == 0 else train).write(f"{english}\t{german}\n")


def _squad(file: IO[bytes], item: Download, folder: Path) -> None:
    data = json.loads(file.read())
    for split in ("train", "valid"):
        articles = [a for a in data["data"] if (a["title"] in SQUAD_VALID) == (split == "valid")]
        with gzip.open(folder / f"{split}.json.gz", "wt", encoding="utf-8") as out:
            json.dump({"version": data["version"], "data": articles}, out, ensure_ascii=False)


CONVERTERS: dict[str, Callable[[IO[bytes], Download, Path], None]] = {
    "unzip": _unzip,
    "tatoeba": _tatoeba,
    "squad": _squad,
}

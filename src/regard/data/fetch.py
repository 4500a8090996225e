"""Downloads of public sets into the cache, checked and laid out as the catalog reads them. Prints nothing."""

import gzip
import hashlib
import io
import json
import shutil
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from regard.data.catalog import lookup
from regard.data.paths import cache_root
from regard.data.sets import Fetch, Set
from regard.errors import RegardError, telling

Progress = Callable[[str, int, int | None], None]  # file, bytes so far, bytes in all
SQUAD_VALID = {
    "Economic_inequality",
    "Force",
    "Immune_system",
    "Kenya",
    "Newcastle_upon_Tyne",
    "Victoria_and_Albert_Museum",
}


def fetch(name: str, progress: Progress | None = None) -> Path:
    """Download the set `name`; its folder. Files appear there only when all of them are whole."""
    entry = lookup(name)
    if not entry.fetch:
        where = "it is part of the package" if entry.layout == "embedded" else f"see {entry.home}: {entry.by_hand}"
        raise RegardError(f"{entry.name} has no download; {where}")
    folder = cache_root() / "data" / entry.name
    with telling(folder, "written"):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".getting-", dir=folder) as made:
            for item in entry.fetch:
                _one(entry, item, Path(made), progress)
            for path in sorted(p for p in Path(made).rglob("*") if p.is_file()):
                place = folder / path.relative_to(made)
                place.parent.mkdir(parents=True, exist_ok=True)
                path.replace(place)
    return folder


def _one(entry: Set, item: Fetch, folder: Path, progress: Progress | None) -> None:
    with tempfile.TemporaryFile() as file:
        digest = _download(entry, item.url, file, progress)
        if item.sha256 and digest != item.sha256:
            raise RegardError(f"{item.url}: not the file the catalog knows (sha256 {digest}); try again later")
        file.seek(0)
        if not item.convert:
            place = folder / item.to
            place.parent.mkdir(parents=True, exist_ok=True)
            with open(place, "wb") as out:
                shutil.copyfileobj(file, out)
            return
        try:
            CONVERTERS[item.convert](file, item, folder)
        except (zipfile.BadZipFile, KeyError, ValueError) as error:
            raise RegardError(f"{item.url}: not laid out as expected ({error}); see {entry.home}") from None


def _download(entry: Set, url: str, file: io.IOBase, progress: Progress | None) -> str:
    digest, done = hashlib.sha256(), 0
    request = urllib.request.Request(url, headers={"User-Agent": "regard"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            size = int(response.headers.get("Content-Length") or 0) or None
            while block := response.read(1 << 16):
                file.write(block)
                digest.update(block)
                done += len(block)
                if progress is not None:
                    progress(url.rsplit("/", 1)[1], done, size)
    except urllib.error.HTTPError as error:
        raise RegardError(f"{url}: the server answered {error.code} {error.reason}; see {entry.home}") from None
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", None) or error
        raise RegardError(
            f"{urlsplit(url).netloc or url} cannot be reached ({reason}); without a network, put "
            f"the files of {entry.name} in a folder {entry.name} and set REGARD_DATA to the folder above it"
        ) from None
    if size is not None and done != size:
        raise RegardError(f"{url}: {done} bytes came instead of {size}; try again")
    return digest.hexdigest()


# --- converters ---


def _member(file: io.IOBase, name: str) -> bytes:
    """A member of a zip archive; `a.zip!b` is the member b of the archive a.zip inside it."""
    outer, _, inner = name.partition("!")
    with zipfile.ZipFile(file) as archive:  # type: ignore[arg-type]
        data = archive.read(outer)
    return _member(io.BytesIO(data), inner) if inner else data


def _unzip(file: io.IOBase, item: Fetch, folder: Path) -> None:
    for member, name in item.members.items():
        (folder / name).write_bytes(_member(file, member))


def _tatoeba(file: io.IOBase, item: Fetch, folder: Path) -> None:
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


def _squad(file: io.IOBase, item: Fetch, folder: Path) -> None:
    whole = json.loads(file.read())
    for split in ("train", "valid"):
        articles = [a for a in whole["data"] if (a["title"] in SQUAD_VALID) == (split == "valid")]
        with gzip.open(folder / f"{split}.json.gz", "wt", encoding="utf-8") as out:
            json.dump({"version": whole["version"], "data": articles}, out, ensure_ascii=False)


CONVERTERS: dict[str, Callable[[io.IOBase, Fetch, Path], None]] = {
    "unzip": _unzip,
    "tatoeba": _tatoeba,
    "squad": _squad,
}

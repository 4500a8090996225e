"""Files that users name for output: replaced whole where they are regular files, else written into."""

import os
import threading
from pathlib import Path

import pytest

from regard.cli.streams import check_distinct_files
from regard.errors import RegardError
from regard.io.atomic import atomic_write


def write(path: Path, text: str = "new\n") -> None:
    with atomic_write(path) as file:
        file.write(text)


def test_a_regular_file_is_replaced_by_one_rename(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("old\n")
    before = path.stat().st_ino
    with atomic_write(path) as file:
        file.write("new\n")
        file.flush()
        assert path.read_text() == "old\n"
    assert path.read_text() == "new\n"
    assert path.stat().st_ino != before
    with pytest.raises(ZeroDivisionError), atomic_write(path) as file:
        file.write(str(1 / 0))
    assert path.read_text() == "new\n"
    assert os.listdir(tmp_path) == ["out"]


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    target, link, chain = tmp_path / "far" / "target", tmp_path / "link", tmp_path / "chain"
    target.write_text("old\n")
    link.symlink_to(Path("far") / "target")
    chain.symlink_to("link")
    before = target.stat().st_ino
    write(chain)
    assert (os.readlink(chain), os.readlink(link)) == ("link", "far/target")
    assert target.read_text() == "new\n"
    assert target.stat().st_ino != before  # a reader of the old file has all of it
    dangling = tmp_path / "dangling"
    dangling.symlink_to("far/made")
    write(dangling)
    assert dangling.is_symlink()
    assert (tmp_path / "far" / "made").read_text() == "new\n"


def test_a_fifo_is_written_into(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(fifo.read_text()), daemon=True)
    reader.start()
    write(fifo)
    assert fifo.is_fifo()
    reader.join(10)
    assert found == ["new\n"]


def test_open_descriptors_are_written_into(tmp_path: Path) -> None:
    """As a shell's >(cat) gives a pipe, and /dev/stdout what it points at: what stands there already is kept."""
    read, end = os.pipe()
    write(Path(f"/dev/fd/{end}"))
    assert os.read(read, 100) == b"new\n"
    os.close(read)
    os.close(end)
    with open(tmp_path / "log", "wb", buffering=0) as file:
        file.write(b"before\n")
        link = tmp_path / "link"
        link.symlink_to(f"/dev/fd/{file.fileno()}")
        write(link)
        file.write(b"after\n")
    assert (tmp_path / "log").read_text() == "before\nnew\nafter\n"
    with pytest.raises(RegardError, match="/dev/fd/987: cannot be written"):
        write(Path("/dev/fd/987"))


def test_what_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none" / "out"):
        with pytest.raises(RegardError, match="cannot be written"):
            write(path)
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    with pytest.raises(RegardError, match="cannot be written"):
        write(loop)
    assert os.listdir(tmp_path) == ["loop"]
    full = Path("/dev/full")
    if full.is_char_device():
        with pytest.raises(RegardError, match=r"/dev/full: cannot be written \(No space left on device\)"):
            write(full)
        assert full.is_char_device()


def test_output_must_not_be_an_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, hard, soft = tmp_path / "text", tmp_path / "hard", tmp_path / "soft"
    text.write_text("precious\n")
    hard.hardlink_to(text)
    soft.symlink_to("text")
    for output in (text, hard, soft, tmp_path / ".." / tmp_path.name / "text"):
        with pytest.raises(RegardError, match=f"{output} would overwrite .*text.*; give another name"):
            check_distinct_files([None, output], [None, text])
    with pytest.raises(RegardError, match=r"would overwrite the output .*new; give another name"):
        check_distinct_files([tmp_path / "new", tmp_path / ".." / tmp_path.name / "new"], [text])
    check_distinct_files([tmp_path / "new", None], [text, tmp_path / "missing", None])
    os.mkfifo(tmp_path / "fifo")
    check_distinct_files(
        [Path("/dev/null"), Path("/dev/null"), tmp_path / "fifo"], [Path("/dev/null"), tmp_path / "fifo"]
    )
    with open(text) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        with pytest.raises(RegardError, match="would overwrite standard input"):
            check_distinct_files([soft], [None])

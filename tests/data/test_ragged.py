from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.ragged import RaggedFile, RaggedTexts, RaggedWriter, id_dtype
from regard.errors import RegardError


def write(folder: Path, chunks: list[list[list[int]]], dtype: type = np.uint16) -> RaggedFile:
    with RaggedWriter(folder, dtype) as writer:
        for chunk in chunks:
            writer.append(chunk)
    return RaggedFile(folder)


def test_rows_come_back(tmp_path: Path):
    rows = write(tmp_path / "r", [[[5, 6, 7], []], [[65535]], []])
    assert [r.tolist() for r in rows] == [[5, 6, 7], [], [65535]]
    assert rows.lengths.tolist() == [3, 0, 1]
    assert rows[-1].tolist() == [65535]
    assert rows.flat.dtype == np.uint16


@given(st.lists(st.lists(st.integers(0, 70000), max_size=6), min_size=1, max_size=12), st.data())
def test_take_is_row_by_row(tmp_path_factory: pytest.TempPathFactory, rows: list[list[int]], data: st.DataObject):
    ragged = write(tmp_path_factory.mktemp("r") / "x", [rows], np.uint32)
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=20))
    flat, offsets = ragged.take(np.array(chosen, dtype=np.int64))
    got = [flat[a:b].tolist() for a, b in pairwise(offsets)]
    assert got == [rows[i] for i in chosen]


def test_id_type():
    assert id_dtype(65536) == np.uint16
    assert id_dtype(65537) == np.uint32


def test_an_id_that_does_not_fit_is_not_wrapped(tmp_path: Path):
    with RaggedWriter(tmp_path / "r", np.uint16) as writer, pytest.raises(ValueError, match="65536"):
        writer.append([[1, 65536]])


def test_texts(tmp_path: Path):
    with RaggedWriter(tmp_path / "t", np.uint8) as writer:
        writer.append_texts(["größer", "", "注意"])
        writer.append_texts(["🙂"])
    assert list(RaggedTexts(tmp_path / "t")) == ["größer", "", "注意", "🙂"]


def test_cut_short(tmp_path: Path):
    write(tmp_path / "r", [[[1, 2, 3]]])
    flat = tmp_path / "r" / "flat.uint16"
    flat.write_bytes(flat.read_bytes()[:-2])
    with pytest.raises(RegardError, match="cut short"):
        RaggedFile(tmp_path / "r")


def test_all_rows_empty(tmp_path: Path):
    rows = write(tmp_path / "r", [[[], []]])
    assert len(rows) == 2
    assert rows.take(np.array([1, 0]))[1].tolist() == [0, 0, 0]

"""The alignment loss by hand, and that attention learns what it is taught."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.data import annotations
from regard.data.readers import TextRecord
from regard.errors import RegardError
from regard.examples.pairs import piece_links
from regard.models.batch import RaggedRows, collate_pairs
from regard.nn.record import AttentionRecorder, LayerRecord
from regard.predict.pairs import align, select_heads
from regard.predict.translation import Translator
from regard.tasks.guided_alignment import GuidedAlignment
from tests.training import toy


def test_links_of_words_become_links_of_pieces() -> None:
    """Source word 1 has pieces 1 and 2; target word 0 has pieces 0 and 1."""
    made = piece_links(4, np.array([[1, 0], [0, 1]]), np.array([0, 1, 1]), np.array([0, 0, 1]))
    assert made.tolist() == [[4, 0, 1], [4, 0, 2], [4, 1, 1], [4, 1, 2], [4, 2, 0]]
    assert piece_links(0, np.zeros((0, 2), dtype=int), np.array([0]), np.array([0])).shape == (0, 3)


def test_loss_by_hand() -> None:
    """Two heads whose mean is taught; place (0, 0) has two links, place (1, 1) one."""
    heads = torch.tensor([[[[0.5, 0.5], [1.0, 0.0]]], [[[0.25, 0.75], [0.4, 0.6]]]])  # [B, 1, T, S]
    weights = torch.cat([heads, heads.flip(-1)], 1)  # [B, 2, T, S]; the mean of both heads is a half everywhere
    record = AttentionRecorder(roles=("cross",))
    record.records["cross", 0] = LayerRecord(True, [weights])
    links = torch.tensor([[0, 0, 0], [0, 0, 1], [1, 1, 1]])
    assert GuidedAlignment().loss(record, links).item() == pytest.approx(-2 * math.log(0.5))
    one = GuidedAlignment(heads=[1]).loss(record, links).item()
    assert one == pytest.approx(-(math.log(0.5) / 2 + math.log(0.5) / 2 + math.log(0.6)))
    with pytest.raises(RegardError, match="no layer 2"):
        GuidedAlignment(layer=2).loss(record, links)


@pytest.mark.parametrize("keys", [{"weight": 0.0}, {"layer": 0}, {"heads": [0]}])
def test_impossible_guides_are_refused(keys: dict) -> None:
    with pytest.raises(ValueError, match=r"must be above 0|counted from 1"):
        GuidedAlignment(**keys)


# --- from files to what attention learns ---------------------------------------------------------------------------


def aligned(folder: Path, guide: dict[str, Any] | None, **keys: Any) -> dict[str, Any]:
    """The toy recipe with alignments beside it: word for word, which the words themselves (reversed) do not teach."""
    made = toy.recipe(folder, **keys)
    source, target = made["data"]["train"]
    lengths = [len(line.split()) for line in Path(source).read_text().splitlines()]
    path = folder / "train.links"
    path.write_text("".join(" ".join(f"{t}-{t}" for t in range(n)) + "\n" for n in lengths))
    made["data"]["train"] = [{"source": source, "target": target, "alignments": str(path)}]
    made["task"] = {"kind": "translation", "guide": guide}
    return made


def right(translator: Translator, folder: Path) -> float:
    """How many target words of the validation pairs look most at the word they were taught to, when they are given."""
    hits = total = 0
    rows = [(folder / f"valid.{side}").read_text().splitlines() for side in ("en", "de")]
    v = translator.vocabulary
    for source, target in zip(*rows, strict=True):
        s, t = v.source.encode(source), v.target.encode(target)
        record = AttentionRecorder(("cross",))
        translator.model.eval()(collate_pairs(RaggedRows.of([s]), RaggedRows.of([t]), v.source, v.target), record)
        links = align(select_heads(record.trace([0])["cross"], None, None), v.source.words(s), v.target.words(t))
        hits += sum(source == target for source, target in links)
        total += len(links)
    return hits / total


def test_attention_learns_what_it_is_taught(tmp_path: Path) -> None:
    toy.write_corpus(tmp_path)
    found = {}
    for name, guide in (("taught", {"weight": 1.0}), ("not", None)):
        rate = {"kind": "constant", "peak": 1e-2}
        made = aligned(tmp_path, guide, steps=200, schedule=rate, validation={"every": 200})
        regard.train(made, tmp_path / name, device="cpu")
        found[name] = right(regard.load(tmp_path / name, device="cpu"), tmp_path)
    assert found["taught"] > 0.9, found
    assert found["not"] < 0.6, found


def test_a_guide_needs_alignments(tmp_path: Path) -> None:
    toy.write_corpus(tmp_path)
    made = aligned(tmp_path, {"weight": 1.0})
    made["data"]["train"][0].pop("alignments")
    with pytest.raises(RegardError, match=r"task\.guide needs the word alignments .*alignments: FILE"):
        regard.train(made, tmp_path / "run", device="cpu")
    made = aligned(tmp_path, {"weight": 1.0})
    made["model"] = {"kind": "bytenet"}
    with pytest.raises(RegardError, match="the model bytenet has none"):
        regard.train(made, tmp_path / "run", device="cpu")


@pytest.mark.parametrize(
    "text, message",
    [
        ("0-0\n", r"links: the file ends before line 2 of text"),
        ("0-0\n0-0\n0-0\n", r"links, line 3: an alignment too many"),
        ("0-0\n0:1\n", r"links, line 2: '0:1' is not a link"),
        ("0-0\n-1-0\n", r"links, line 2: '-1-0' is not a link"),
    ],
)
def test_mistaken_files_are_named_by_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "links").write_text(text)
    rows = [TextRecord(1, ("a", "b")), TextRecord(2, ("c", "d"))]
    with pytest.raises(RegardError, match=message):
        list(annotations.with_alignments(iter(rows), str(tmp_path / "links"), "text"))


def test_links_outside_the_words_are_named_by_line(tmp_path: Path) -> None:
    toy.write_corpus(tmp_path)
    made = aligned(tmp_path, {"weight": 1.0})
    path = Path(made["data"]["train"][0]["alignments"])
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:6], "9-0", *lines[7:]]) + "\n")
    with pytest.raises(
        RegardError, match=r"line 7: the link 9-0 leaves the pair, which has \d source and \d target words"
    ):
        regard.train(made, tmp_path / "run", device="cpu")

"""A trained BERT becomes one for longer input: the same logits where it read as much before, then sparse attention."""

from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard import config
from regard.errors import RegardError
from regard.io.tensors import load_weights, read_tensors, unique_state_dict
from regard.models.batch import TextBatch, collate_texts
from regard.models.bert import Bert, BertConfig
from regard.training.initial_weights import fit_length
from tests.tasks import bert_toy, toys
from tests.tasks.test_classify import write_texts

LENGTHS = [9, 30, 1, 17]


def build(length: int = 32, **attention: Any) -> Bert:
    keys = {"layers": 2, "size": 16, "inner": 24, "heads": 2, "position": {"kind": "learned", "length": length}}
    return config.parse_config(BertConfig, {**keys, "attention": attention}).build(50).double().eval()


def batch(lengths: list[int]) -> TextBatch:
    g = torch.Generator().manual_seed(0)
    return collate_texts([torch.randint(4, 50, (n,), generator=g).tolist() for n in lengths], 0)


@pytest.fixture(scope="module")
def trained() -> Bert:
    torch.manual_seed(0)
    model = build()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.3)
    return model


def longer(trained: Bert, length: int = 80, **attention: Any) -> tuple[Bert, list[str]]:
    model = build(length, **attention)
    tensors, said = fit_length(model, unique_state_dict(trained))
    load_weights(model, tensors, Path("there"))
    return model, said


@torch.no_grad()
def same(a: Bert, b: Bert, lengths: list[int], room: float = 1e-12) -> bool:
    given = batch(lengths)
    real = torch.ones_like(given.ids, dtype=torch.bool) if given.real is None else given.real
    return torch.allclose(a(given)[real], b(given)[real], atol=room, rtol=0)


def test_the_same_on_what_it_read_before(trained: Bert) -> None:
    """Then BigBird with as many blocks as there are is full attention; with fewer it is not."""
    full, said = longer(trained)
    assert said == ["model.position.length: 32 → 80; the learned positions are repeated"]
    assert torch.equal(full.position[0].table, trained.position[0].table.repeat(3, 1)[:80])
    assert same(full, trained, LENGTHS)
    everywhere, _ = longer(trained, pattern="bigbird(block=4, window=3, global=2, random=8)")
    assert same(everywhere, trained, LENGTHS)
    assert same(everywhere, full, LENGTHS)
    sparse, _ = longer(trained, pattern="bigbird(block=4, window=1, global=0, random=1)")
    assert not same(sparse, trained, LENGTHS, 1e-3)
    assert same(sparse, trained, [3, 4], 1e-12)  # a block
    assert full(batch([80])).isfinite().all()


def test_what_is_not_longer_stays(trained: Bert) -> None:
    tensors = unique_state_dict(trained)
    fitted, said = fit_length(build(32), tensors)
    assert said == []
    assert all(fitted[name] is tensor for name, tensor in tensors.items())
    with pytest.raises(RegardError, match=r"position.0.table is \[32, 16\] in the file, \[16, 16\] in the model"):
        longer(trained, 16)


@pytest.mark.parametrize("sharing, count", [("heads", 4), ("key_value", 2), ("layers", 1)])
def test_projections_are_new(trained: Bert, sharing: str, count: int) -> None:
    model, said = longer(trained, compress={"kind": "linformer", "length": 80, "size": 8, "sharing": sharing})
    assert said[1] == f"model.attention.compress: linformer's projections are new, {count} tensors of them"
    assert torch.equal(model.layers[1].attention.query.weight, trained.layers[1].attention.query.weight)
    assert model.layers[0].attention.compress.key.std() > 0


def test_from_a_run_by_its_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pretrained BERT of 32 positions learns to classify 60, by BigBird; and is used."""
    bert_toy.write_text(tmp_path / "text")
    toys.trained(bert_toy.recipe(tmp_path / "text", steps=4), tmp_path / "bert")
    write_texts(tmp_path)
    given = toys.recipe(tmp_path, {"kind": "classify", "length": 60}, ("train.tsv", "valid.tsv"), steps=3)
    del given["text"]
    given["training"] |= {"init": str(tmp_path / "bert")}
    given["model"] = {
        "position": {"length": 64},
        "attention": {"pattern": "bigbird(block=8, window=3, global=1, random=1)", "dropout": 0.1},
    }
    toys.trained(given, tmp_path / "long")
    assert "model.position.length: 32 → 64; the learned positions are repeated\n" in capsys.readouterr().err
    before, after = (read_tensors(tmp_path / name / "model.safetensors") for name in ("bert", "long"))
    table = after["body.position.0.table"]
    assert table.shape == (64, 16)
    assert torch.allclose(table[:32], before["body.position.0.table"], atol=0.05)  # three steps of learning
    assert regard.load(tmp_path / "long", "cpu").classify(["good " * 50])[0].label in ("no", "yes")

"""Folders for other libraries: what they cannot express is named, tokenizers give the same ids."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard import config
from regard.cli.interop import export_model
from regard.errors import RegardError
from regard.interop.marian import permute_features, sines_first
from regard.nn.position import sinusoids
from tests.interop import toy
from tests.interop.opus import LINES

REFUSED: dict[str, dict[str, Any]] = {
    "model.residual is pre_norm, where Marian has post_norm": {"residual": "pre_norm"},
    "model.residual is none": {"residual": "none"},
    "model.norm is batch": {"norm": "batch"},
    "model.epsilon is 0.001, where Marian has 1e-05": {"epsilon": 1e-3},
    "model.feed_forward is none": {"feed_forward": "none"},
    "model.activation is swiglu, where Marian has relu or gelu or gelu_tanh or swish": {"activation": "swiglu"},
    "model.position.encoder is rotary, where Marian has sinusoidal; model.position.decoder is rotary": {
        "position": "rotary"
    },
    "model.position.decoder is alibi": {"position": {"encoder": "sinusoidal", "decoder": "alibi"}},
    "model.position joins by concat": {"position": {"kind": "sinusoidal", "join": "concat"}},
    "order their sines and cosines differently": {
        "position": {"encoder": "sinusoidal", "decoder": {"kind": "sinusoidal", "layout": "halves"}}
    },
    "model.position is a list": {"position": ["sinusoidal", "sinusoidal"]},
    "model.attention.cross.score is additive": {"attention": {"cross": {"score": "additive"}}},
    r"model.attention.encoder.pattern is window\(3\)": {"attention": {"encoder": {"pattern": "window(3)"}}},
    "model.attention.decoder.normalise is sparsemax": {"attention": {"decoder": {"normalise": "sparsemax"}}},
    "model.attention.encoder.compress is linformer": {
        "attention": {"encoder": {"compress": {"kind": "linformer", "length": 80, "size": 8}}}
    },
    "model.attention.encoder.d_k is 6, where Marian has none": {"attention": {"encoder": {"d_k": 6}}},
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_marian_cannot_express_is_named(tmp_path: Path, said: str) -> None:
    toy.make(tmp_path / "ours", **REFUSED[said])
    with pytest.raises(RegardError, match=f"Hugging Face cannot express this model: .*{said}"):
        export_model("hf", tmp_path / "ours", tmp_path / "theirs", "float32")
    assert os.listdir(tmp_path) == ["ours"]


@pytest.mark.parametrize("kind, more", [("rnn", {}), ("decoder_only", {"heads": 2})])
def test_another_kind_of_model_is_named(tmp_path: Path, kind: str, more: dict[str, int]) -> None:
    toy.make(tmp_path / "ours", kind=kind, layers=1, size=16, **more)
    with pytest.raises(RegardError, match=rf"model\.kind is {kind}, where Marian has transformer"):
        export_model("hf", tmp_path / "ours", tmp_path / "theirs", "float32")


def test_forms_there_are_not(tmp_path: Path) -> None:
    toy.make(tmp_path / "ours")
    with pytest.raises(RegardError, match="regard export onnx: there is no such form"):
        export_model("onnx", tmp_path / "ours", tmp_path / "theirs", "float32")


# --- safetensors ----------------------------------------------------------------------------------------------------


def test_bare_safetensors(tmp_path: Path) -> None:
    ours = toy.make(tmp_path / "ours")
    (tmp_path / "ours" / "log.jsonl").write_text("{}")
    (tmp_path / "ours" / "checkpoints").mkdir()
    export_model("safetensors", tmp_path / "ours", tmp_path / "bare", "float32")
    assert sorted(os.listdir(tmp_path / "bare")) == ["config.yaml", "manifest.json", "model.safetensors", "tokenizer"]
    lines = [line for line, _ in LINES[:6]]
    assert regard.load(tmp_path / "bare", "cpu").translate(lines) == ours.translate(lines)


def test_no_path_of_the_run_is_told(tmp_path: Path) -> None:
    toy.make(tmp_path / "ours")
    path = tmp_path / "ours" / "config.yaml"
    secret = {"train": [{"path": "/secret/train.tsv"}], "cache": "/secret/cache"}
    plain = config.read_yaml(path).plain()
    plain["data"] |= secret
    plain["training"]["init"] = "/secret/run"
    path.write_text(config.dump_yaml(plain))
    export_model("safetensors", tmp_path / "ours", tmp_path / "bare", "float32")
    assert "secret" not in (tmp_path / "bare" / "config.yaml").read_text()


# --- the order of features ------------------------------------------------------------------------------------------


def test_waves_become_halves() -> None:
    there = torch.arange(50)
    assert torch.equal(sinusoids(there, 12)[:, sines_first(12)], sinusoids(there, 12, "halves"))


def test_every_matrix_is_permuted_or_has_no_features(tmp_path: Path) -> None:
    """A permutation and its inverse give the weights back, and whatever has an axis of D moves."""
    ours = toy.make(tmp_path / "ours", size=20, inner=28, heads=2, attention={"d_k": 3, "d_v": 5}, output_bias=True)
    weights = dict(ours.model.named_parameters())
    order = torch.randperm(20)
    moved = permute_features(weights, order)
    assert {name for name in weights if 20 in weights[name].shape} == {
        name for name in weights if not torch.equal(moved[name], weights[name])
    }
    back = permute_features(moved, order.argsort())
    assert all(torch.equal(back[name], weights[name]) for name in weights)


# --- tokenizers -----------------------------------------------------------------------------------------------------

HARD = [
    "",
    "  ",
    " two  spaces ",
    "Tab\tand\u00a0more",
    "Ünïcödé 東京 ｶﾅ ½ №",
    "x" * 300,
    "東京に行く。",
    "<unk> </s>?",
    "Don't",
]
TEXTS: dict[str, dict[str, Any]] = {
    "bpe": {"kind": "bpe", "size": 200},
    "lower": {"kind": "bpe", "size": 200, "lower": True, "normalise": "nfkc"},
    "unigram": {"kind": "unigram", "size": 150},
    "byte_bpe": {"kind": "byte_bpe", "size": 400},
    "char": {"kind": "char", "normalise": "nfc"},
    "word": {"kind": "word"},
    "wordpiece": {"kind": "wordpiece", "size": 200},
    "apart": {"kind": "bpe", "size": 150, "shared": False},
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_library_gives_the_same_ids_and_text(tmp_path: Path, name: str) -> None:
    transformers = pytest.importorskip("transformers")
    ours = toy.make(tmp_path / "ours", said=TEXTS[name], share="target" if name == "apart" else "all")
    export_model("hf", tmp_path / "ours", tmp_path / "theirs", "float32")
    folders = {"source": tmp_path / "theirs", "target": tmp_path / "theirs" / ("target" if name == "apart" else "")}
    for n, tokenizer in enumerate(ours.vocabulary):
        theirs = transformers.AutoTokenizer.from_pretrained(folders[("source", "target")[n]])
        lines = [*HARD, *(pair[n] for pair in LINES[:100])]
        found = theirs(lines).input_ids
        assert found == [[*row, tokenizer.eos] for row in tokenizer.encode_batch(lines)]
        assert (theirs.pad_token_id, theirs.eos_token_id, theirs.bos_token_id) == (
            tokenizer.pad,
            tokenizer.eos,
            tokenizer.bos,
        )
        rows = [row for row in found[len(HARD) :] if tokenizer.unk not in row]
        assert theirs.batch_decode(rows, skip_special_tokens=True) == tokenizer.decode_batch(rows)
        assert len(rows) > 50


def test_a_vocabulary_that_cannot_be_said_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    toy.make(tmp_path / "ours", said={"kind": "bpe", "size": 200, "moses": True})
    export_model("hf", tmp_path / "ours", tmp_path / "theirs", "float32")
    assert "no tokenizer that Hugging Face reads: it cuts text by Moses' rules" in capsys.readouterr().err
    assert not (tmp_path / "theirs" / "tokenizer.json").exists()
    assert (tmp_path / "theirs" / "tokenizer" / "tokenizer.json").exists()

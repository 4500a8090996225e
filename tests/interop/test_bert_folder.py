"""Folders of Hugging Face's BERTs become model folders that fill and embed as theirs do."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard.errors import RegardError
from regard.interop.bert_folder import import_bert

transformers = pytest.importorskip("transformers")

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "mat", "##s", "a", ".", "un", "##ha"]
LINES = ["The cat sat on [MASK] mats .", "[MASK] sat on the [MASK]", "a cat"]


def saved(folder: Path, kind: str, spare: int = 0) -> torch.nn.Module:
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}
    config = transformers.BertConfig(
        vocab_size=len(PIECES) + spare, max_position_embeddings=24, initializer_range=0.4, **sizes
    )
    model = getattr(transformers, kind)(config).eval()
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    return model


def asked(folder: Path, lines: list[str]) -> dict[str, torch.Tensor]:
    rows = []
    for line in lines:
        words = line.lower().replace("[mask]", "[MASK]").replace("mats", "mat ##s").split()
        rows.append([2, *(PIECES.index(w) for w in words), 3])
    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


@pytest.mark.parametrize("kind, task", [("BertForPreTraining", "pairs"), ("BertForMaskedLM", "single")])
def test_a_model_with_words_fills_as_theirs(tmp_path: Path, kind: str, task: str) -> None:
    theirs = saved(tmp_path / "hf", kind, spare=3)
    made = import_bert(tmp_path / "hf", tmp_path / "run")
    assert made.recipe.task.examples.kind == task  # type: ignore[union-attr]
    ours = regard.load(tmp_path / "run", device="cpu")
    given = asked(tmp_path / "hf", LINES)
    with torch.no_grad():
        said = theirs(**given)
    logits = said.prediction_logits if kind == "BertForPreTraining" else said.logits
    found = ours.fill(LINES, top=5)
    assert [len(gaps) for gaps in found] == [1, 2, 0]
    flat = [gap for gaps in found for gap in gaps]
    for gap, (row, place) in zip(flat, (given["input_ids"] == 4).nonzero().tolist(), strict=True):
        chances = logits[row, place].softmax(-1)
        for guess in gap:
            index = PIECES.index(guess.word) if guess.word in PIECES else len(PIECES) + int(guess.word[7:-1])
            assert guess.probability == pytest.approx(float(chances[index]), abs=1e-6)
    assert regard.load(tmp_path / "run", device="cpu").embed(LINES).shape == (3, 16)


@pytest.mark.parametrize("pooled", [True, False])
def test_a_body_embeds_as_theirs_and_as_its_folder_says(tmp_path: Path, pooled: bool) -> None:
    folder = tmp_path / "hf"
    theirs = saved(folder, "BertModel")
    if not pooled:
        from safetensors.torch import load_file, save_file

        kept = {n: t for n, t in load_file(folder / "model.safetensors").items() if "pooler" not in n}
        save_file(kept, folder / "model.safetensors")
    modules = [{"type": f"st.models.{name}", "path": path} for name, path in
               (("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2"))]  # fmt: skip
    (folder / "1_Pooling").mkdir()
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode_max_tokens": True, "word_dim": 3}))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 20}')
    made = import_bert(folder, tmp_path / "run")
    task = made.recipe.task
    assert (task.kind, task.pooling, task.normalise, task.length) == ("embedding", "max", True, 20)  # type: ignore[union-attr]
    ours = regard.load(tmp_path / "run", device="cpu")
    lines = ["The cat sat on mats .", "a cat", "the the the the"]
    given = asked(folder, lines)
    with torch.no_grad():
        said = theirs(**given)
    mask = given["attention_mask"][..., None]
    most = said.last_hidden_state.masked_fill(mask == 0, -1e9).amax(1)
    np.testing.assert_allclose(ours.embed(lines), torch.nn.functional.normalize(most), atol=1e-5)
    if pooled:
        np.testing.assert_allclose(ours.embed(lines, "pooler", normalise=False), said.pooler_output, atol=1e-5)
    else:
        with pytest.raises(RegardError, match="this model has no pooler; choose another pooling"):
            ours.embed(lines, "pooler")


def test_folders_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(RegardError, match=r"config\.json: there is no such file"):
        import_bert(tmp_path, tmp_path / "run")
    saved(tmp_path / "hf", "BertModel")
    (tmp_path / "hf" / "vocab.txt").unlink()
    with pytest.raises(RegardError, match=r"there is no vocab\.txt, and no tokenizer\.json"):
        import_bert(tmp_path / "hf", tmp_path / "run")
    (tmp_path / "hf" / "vocab.txt").write_text("\n".join([*PIECES, "more"]) + "\n")
    with pytest.raises(RegardError, match=r"the vocabulary has 16 pieces, and config\.json says 15"):
        import_bert(tmp_path / "hf", tmp_path / "run")

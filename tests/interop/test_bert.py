"""Folders of Hugging Face's BERTs become model folders that fill and embed as theirs do, and go out again."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard import config
from regard.cli.interop import export_model, import_model
from regard.errors import RegardError
from regard.examples.codec import ExampleCodec
from regard.interop.families import import_checkpoint
from regard.io import run_folder as folder
from regard.io.tensors import unique_state_dict, write_tensors
from regard.models.batch import TextBatch
from regard.models.heads import MultipleChoiceBatch
from regard.recipe import Recipe
from regard.text.pretrained import bert_tokenizer
from tests.parity.test_bert import SHAPES

transformers = pytest.importorskip("transformers")

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "mat", "##s", "a", ".", "un", "##ha"]
LINES = ["The cat sat on [MASK] mats .", "[MASK] sat on the [MASK]", "a cat"]


def scatter(model: torch.nn.Module) -> None:
    """Biases and norms, too, or they would be compared at zero and one."""
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() == 1:
                p.add_(0.2 * torch.randn_like(p))


def saved(folder: Path, kind: str, spare: int = 0, **changes: Any) -> torch.nn.Module:
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}
    sizes |= {"vocab_size": len(PIECES) + spare, "max_position_embeddings": 24, "initializer_range": 0.4, **changes}
    model = getattr(transformers, kind)(transformers.BertConfig(**sizes)).eval()
    scatter(model)
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
    made = import_checkpoint(tmp_path / "hf", tmp_path / "run")
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
    made = import_checkpoint(folder, tmp_path / "run")
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
    with pytest.raises(RegardError, match=r"config\.json is missing"):
        import_checkpoint(tmp_path, tmp_path / "run")
    saved(tmp_path / "hf", "BertModel")
    (tmp_path / "hf" / "vocab.txt").unlink()
    with pytest.raises(RegardError, match=r"there is no vocab\.txt, and no tokenizer\.json"):
        import_checkpoint(tmp_path / "hf", tmp_path / "run")
    (tmp_path / "hf" / "vocab.txt").write_text("\n".join([*PIECES, "more"]) + "\n")
    with pytest.raises(RegardError, match=r"the vocabulary has 16 pieces, and config\.json says 15"):
        import_checkpoint(tmp_path / "hf", tmp_path / "run")


# --- out ------------------------------------------------------------------------------------------------------------

HARD = ["The cat sat on mats .", "a [MASK] UNHAS", "", "Thé  çat\tsat", "東京 cats, ½."]


def batch(entries: int, segments: int) -> TextBatch:
    """Two rows, the second of which is padded."""
    torch.manual_seed(1)
    ids = torch.randint(5, entries, (2, 9))
    real = torch.ones(2, 9, dtype=torch.bool)
    real[1, 6:] = False
    sides = torch.randint(0, segments, (2, 9)).sort().values
    return TextBatch(ids.masked_fill(~real, 0), real, segments=sides, label_positions=real.flatten().nonzero()[:, 0])


def their_logits(model: torch.nn.Module, b: TextBatch) -> tuple[torch.Tensor, ...]:
    given = {"input_ids": b.ids, "attention_mask": b.real.long(), "token_type_ids": b.segments}
    with torch.no_grad():
        said = model(**given, return_dict=False)
    return tuple(part.flatten(0, 1)[b.label_positions] if part.dim() == 3 else part for part in said)


def our_logits(model: torch.nn.Module, b: TextBatch) -> tuple[torch.Tensor, ...]:
    with torch.no_grad():
        if not hasattr(model, "scores"):
            hidden = model(b)
            return hidden.flatten(0, 1)[b.label_positions], model.pooler(hidden)
        words, follows = model.scores(b)
    return (words,) if follows is None else (words, follows)


def same(found: tuple[torch.Tensor, ...], wanted: tuple[torch.Tensor, ...], room: float = 1e-4) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=room, rtol=0)
        assert other.std() > 0.1


KINDS = {
    "BertForPreTraining": "AutoModelForPreTraining",
    "BertForMaskedLM": "AutoModelForMaskedLM",
    "BertModel": "AutoModel",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_out_and_in_again(tmp_path: Path, shape: str, kind: str) -> None:
    theirs = saved(tmp_path / "hf", kind, spare=2, **SHAPES[shape])
    import_model("hf", str(tmp_path / "hf"), tmp_path / "run")
    export_model("hf", tmp_path / "run", tmp_path / "out", "float32")
    import_model("hf", str(tmp_path / "out"), tmp_path / "again")
    ours, again = (regard.load(tmp_path / name, device="cpu") for name in ("run", "again"))
    loaded, told = getattr(transformers, KINDS[kind]).from_pretrained(tmp_path / "out", output_loading_info=True)
    assert type(loaded) is type(theirs)
    assert not any(told.values())
    b = batch(len(PIECES) + 2, ours.recipe.model.segments)
    wanted = their_logits(theirs, b)
    same(their_logits(loaded.eval(), b), wanted, 0)
    same(our_logits(ours.model, b), wanted)
    same(our_logits(again.model, b), our_logits(ours.model, b), 0)
    assert again.recipe == ours.recipe
    assert again.tokenizer.dumps() == ours.tokenizer.dumps()


@pytest.mark.parametrize("lower", [True, False])
def test_their_tokenizer_gives_the_same_ids(tmp_path: Path, lower: bool) -> None:
    saved(tmp_path / "hf", "BertForMaskedLM")
    (tmp_path / "hf" / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lower}))
    import_model("hf", str(tmp_path / "hf"), tmp_path / "run")
    export_model("hf", tmp_path / "run", tmp_path / "out", "float32")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    original = transformers.BertTokenizer(str(tmp_path / "hf/vocab.txt"), do_lower_case=lower)
    for given in ((HARD,), (HARD, HARD[::-1])):
        found, wanted = tokenizer(*given), original(*given)
        assert {key: found[key] for key in wanted} == dict(wanted)
    t = regard.load(tmp_path / "run", device="cpu").tokenizer
    plain = [line for line in HARD if "[MASK]" not in line]  # in ours, a mark in the text is text
    assert tokenizer(plain).input_ids == [[t.bos, *row, t.eos] for row in t.encode_batch(plain)]
    assert (tokenizer.mask_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id) == (
        4, 2, 3, 0)  # fmt: skip
    for path in (tmp_path / "out" / "tokenizer").iterdir():
        path.unlink()
    import_model("hf", str(tmp_path / "out"), tmp_path / "again")  # as any BERT
    assert regard.load(tmp_path / "again", device="cpu").tokenizer.dumps() == t.dumps()


def make(home: Path, task: dict[str, Any], labels: list[str] | None = None, **keys: Any) -> Any:
    """A run of ours with random weights; `keys` are the model's."""
    torch.manual_seed(0)
    sizes = {"layers": 2, "size": 16, "inner": 24, "heads": 4, "position": {"kind": "learned", "length": 24}}
    said = {"task": {"length": 16} | task, "data": {}, "text": {"kind": "bert", "size": len(PIECES)}}
    recipe = config.parse_config(Recipe, said | {"model": {"kind": "bert"} | sizes | keys})
    tokenizer, settings = bert_tokenizer(PIECES, True, "here"), recipe.task
    ExampleCodec(settings, tokenizer, labels or []).save(home)  # type: ignore[arg-type]
    (home / folder.CONFIG).write_text(config.dump_yaml(recipe), encoding="utf-8")
    model = settings.load_predictor(recipe, home).model
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn_like(p))
    write_tensors(home / folder.WEIGHTS, unique_state_dict(model))
    return regard.load(home, device="cpu")


HEADS: dict[str, tuple[str, list[str]]] = {
    "classify": ("SequenceClassification", ["good", "bad", "so so"]),
    "regress": ("SequenceClassification", []),
    "tag": ("TokenClassification", ["O", "B-A", "I-A"]),
    "answer": ("QuestionAnswering", []),
    "choose": ("MultipleChoice", []),
}


@pytest.mark.parametrize("task", HEADS)
def test_heads_that_were_learned_here(tmp_path: Path, task: str) -> None:
    name, labels = HEADS[task]
    room = {"tag": {"overlap": 4}, "answer": {"overlap": 4, "question": 4}}.get(task, {})
    ours = make(tmp_path / "run", {"kind": task, **room}, labels)
    export_model("hf", tmp_path / "run", tmp_path / "out", "float32")
    import_model("hf", str(tmp_path / "out"), tmp_path / "again")
    again = regard.load(tmp_path / "again", device="cpu")
    theirs, told = getattr(transformers, f"AutoModelFor{name}").from_pretrained(
        tmp_path / "out", output_loading_info=True
    )
    assert not any(told.values())
    b = batch(len(PIECES), 2)
    given = {"input_ids": b.ids, "attention_mask": b.real.long(), "token_type_ids": b.segments}
    if task == "choose":
        b = MultipleChoiceBatch(b.ids, b.real, segments=b.segments, groups=torch.tensor([[0, 1]]))
        given = {key: value[None] for key, value in given.items()}
    with torch.no_grad():
        said = theirs.eval()(**given, return_dict=False)
        found, back = ours.model(b), again.model(b)
    wanted = torch.stack(said, -1) if task == "answer" else said[0][:, 0] if task == "regress" else said[0]
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0)
    assert torch.equal(found, back)
    assert again.labels == labels
    assert again.recipe.task == ours.recipe.task
    if labels:
        assert [theirs.config.id2label[n] for n in range(len(labels))] == labels


def test_frozen_is_said_of_learning_alone(tmp_path: Path) -> None:
    ours = make(tmp_path / "run", {"kind": "classify"}, ["a", "b"])
    path = tmp_path / "run" / folder.CONFIG
    said = config.read_yaml(path).plain()
    said["task"]["frozen"], said["training"]["init"] = True, "/secret/run"
    path.write_text(config.dump_yaml(said))
    export_model("hf", tmp_path / "run", tmp_path / "out", "float32")
    import_model("hf", str(tmp_path / "out"), tmp_path / "again")
    export_model("safetensors", tmp_path / "run", tmp_path / "bare", "float32")
    for name in ("again", "bare"):
        assert regard.load(tmp_path / name, device="cpu").classify(["the cat"]) == ours.classify(["the cat"])


@pytest.mark.parametrize(
    "said, keys",
    [
        ("as BERT: it has no way to say that position is rotary", {"position": "rotary"}),
        ("residual is pre_norm, activation is swiglu", {"residual": "pre_norm", "activation": "swiglu"}),
        ("segments is 0", {"segments": 0}),
    ],
)
def test_what_bert_cannot_express_is_named(tmp_path: Path, said: str, keys: dict[str, Any]) -> None:
    make(tmp_path / "run", {"kind": "pretraining", "examples": "single"}, **keys)
    with pytest.raises(RegardError, match=said):
        export_model("hf", tmp_path / "run", tmp_path / "out", "float32")
    with pytest.raises(RegardError, match="a model of the task pretraining, which `regard export ct2` is not for"):
        export_model("ct2", tmp_path / "run", tmp_path / "out", "float32")
    assert os.listdir(tmp_path) == ["run"]
    export_model("safetensors", tmp_path / "run", tmp_path / "bare", "float32")
    ours, bare = (regard.load(tmp_path / name, device="cpu") for name in ("run", "bare"))
    assert bare.fill(LINES) == ours.fill(LINES)

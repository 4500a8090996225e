"""A GPT-2 that Hugging Face saved, through the command and back: the same numbers and the same text."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import ByteLevelBPETokenizer

import regard
from regard import config, text
from regard.cli.interop import export_model, import_model
from regard.decoding import Greedy
from regard.errors import RegardError
from regard.io import run_folder as folder
from regard.io.tensors import unique_state_dict, write_tensors
from regard.models.batch import TextBatch
from regard.predict.generation import TextGenerator
from regard.recipe import Recipe
from tests.parity.test_gpt2 import SHAPES

TEXT = ["The small cat sat on the mat.", "A cat, two cats; the mat was small."] * 30


def scatter(model: torch.nn.Module) -> None:
    """Biases and norms, too, or they would be compared at zero and one."""
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() == 1:
                p.add_(0.2 * torch.randn_like(p))


def saved(folder: Path, **changes: object) -> transformers.GPT2LMHeadModel:
    folder.mkdir()
    learner = ByteLevelBPETokenizer()
    learner.train_from_iterator(TEXT, vocab_size=320, min_frequency=1, special_tokens=["<|endoftext|>"])
    learner.save_model(str(folder))
    torch.manual_seed(0)
    sizes = {"vocab_size": learner.get_vocab_size(), "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 48}
    marks = {"bos_token_id": 0, "eos_token_id": 0}
    config = transformers.GPT2Config(**{**sizes, **marks, "initializer_range": 0.3, **changes})
    model = transformers.GPT2LMHeadModel(config).eval()
    scatter(model)
    model.save_pretrained(folder)
    return model


def test_it_scores_and_writes_as_theirs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    theirs = saved(tmp_path / "hf")
    import_model("hf", str(tmp_path / "hf"), tmp_path / "run")
    assert "million parameters" in capsys.readouterr().err
    ours = regard.load(tmp_path / "run", device="cpu")
    tokenizer = transformers.GPT2Tokenizer(str(tmp_path / "hf/vocab.json"), str(tmp_path / "hf/merges.txt"))
    prompt = "The small cat"
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    assert ours.tokenizer.encode(prompt) == ids[0].tolist()
    start = torch.cat([torch.zeros(1, 1, dtype=torch.long), ids], 1)  # ours reads what opens a document first
    said = theirs.generate(start, do_sample=False, max_new_tokens=8, pad_token_id=0)[0, start.shape[1] :].tolist()
    found = ours.generate(prompt, decoding=Greedy(), max_tokens=8)[0]
    assert found.tokens == [token for token in said if token]


def test_another_vocabulary_is_refused(tmp_path: Path) -> None:
    saved(tmp_path / "hf", vocab_size=400)
    with pytest.raises(RegardError, match=r"the vocabulary has \d+ pieces, and config.json says 400"):
        import_model("hf", str(tmp_path / "hf"), tmp_path / "run")


# --- out ------------------------------------------------------------------------------------------------------------

HARD = ["The small cat", " two  spaces\n\nand lines\n", "Ünïcödé 東京 ½", "Don't", "x" * 40]


def logits(ours: TextGenerator, ids: torch.Tensor) -> torch.Tensor:
    """Of all places [B·T, V]."""
    with torch.no_grad():
        return ours.model(TextBatch(ids, label_positions=torch.arange(ids.numel())))


def same(found: torch.Tensor, wanted: torch.Tensor, room: float = 1e-4) -> None:
    torch.testing.assert_close(found, wanted, atol=room, rtol=0)
    assert wanted.std() > 0.3


@pytest.mark.parametrize("shape", SHAPES)
def test_out_and_in_again(tmp_path: Path, shape: str) -> None:
    theirs = saved(tmp_path / "hf", **SHAPES[shape])
    import_model("hf", str(tmp_path / "hf"), tmp_path / "run")
    export_model("hf", tmp_path / "run", tmp_path / "out", "float32")
    import_model("hf", str(tmp_path / "out"), tmp_path / "again")
    ours, again = (regard.load(tmp_path / name, device="cpu") for name in ("run", "again"))
    loaded, told = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert type(loaded) is transformers.GPT2LMHeadModel
    assert not any(told.values())
    ids = torch.randint(0, ours.tokenizer.size, (3, 16))
    with torch.no_grad():
        wanted = theirs(ids).logits.flatten(0, 1)
        same(loaded.eval()(ids).logits.flatten(0, 1), wanted, 0)
    same(logits(ours, ids), wanted)
    same(logits(again, ids), logits(ours, ids), 0)
    assert again.recipe == ours.recipe
    assert again.tokenizer.dumps() == ours.tokenizer.dumps()
    asked = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")(HARD)
    assert set(asked) == {"input_ids", "attention_mask"}
    assert asked.input_ids == ours.tokenizer.encode_batch(HARD)
    original = transformers.GPT2Tokenizer(str(tmp_path / "hf/vocab.json"), str(tmp_path / "hf/merges.txt"))
    assert asked.input_ids == original(HARD).input_ids
    found = loaded.config
    assert (found.architectures, found.bos_token_id, found.eos_token_id) == (["GPT2LMHeadModel"], 0, 0)


def test_without_our_own_files_it_is_read_as_any_gpt2(tmp_path: Path) -> None:
    saved(tmp_path / "hf")
    import_model("hf", str(tmp_path / "hf"), tmp_path / "run")
    export_model("hf", tmp_path / "run", tmp_path / "out", "float32")
    for path in (tmp_path / "out" / "tokenizer").iterdir():
        path.unlink()
    import_model("hf", str(tmp_path / "out"), tmp_path / "again")
    ours, again = (regard.load(tmp_path / name, device="cpu") for name in ("run", "again"))
    assert again.recipe == ours.recipe
    assert again.tokenizer.encode_batch(HARD) == ours.tokenizer.encode_batch(HARD)


def make(home: Path, said: dict[str, Any] | None = None, **keys: Any) -> TextGenerator:
    """A run of ours with random weights; `said` is the text section, the rest are keys of the model."""
    torch.manual_seed(0)
    sizes = {"layers": 2, "size": 16, "inner": 24, "heads": 4, "position": {"kind": "learned", "length": 32}}
    recipe = config.parse_config(
        Recipe,
        {
            "task": {"kind": "lm", "length": 24, "documents": "line"},
            "data": {},
            "text": said or {"kind": "byte_bpe", "size": 280},
            "model": keys if "kind" in keys else {"kind": "lm"} | sizes | keys,
        },
    )
    tokenizer = text.train_tokenizer(recipe.text, TEXT)
    tokenizer.save(home / "tokenizer" / "tokenizer.json")
    model: Any = recipe.model
    made = model.build(tokenizer.size)
    with torch.no_grad():
        for p in made.parameters():
            p.add_(0.3 * torch.randn_like(p))
    (home / folder.CONFIG).write_text(config.dump_yaml(recipe), encoding="utf-8")
    write_tensors(home / folder.WEIGHTS, unique_state_dict(made))
    return regard.load(home, device="cpu")


TEXTS: dict[str, dict[str, Any]] = {
    "byte_bpe": {"kind": "byte_bpe", "size": 280},
    "word": {"kind": "word"},
    "spaces": {"kind": "word", "segmenter": "spaces"},
    "char": {"kind": "char"},
    "unigram": {"kind": "unigram", "size": 28, "lower": True},
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_model_of_ours(tmp_path: Path, name: str) -> None:
    dropout = {"word_dropout": 0.1, "embedding_dropout": 0.3}  # matter to learning alone
    ours = make(tmp_path / "run", TEXTS[name], **dropout)
    export_model("hf", tmp_path / "run", tmp_path / "out", "float32")
    import_model("hf", str(tmp_path / "out"), tmp_path / "again")
    again = regard.load(tmp_path / "again", device="cpu")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    t = ours.tokenizer
    assert loaded.config.embd_pdrop == 0.3
    assert (loaded.config.bos_token_id, loaded.config.eos_token_id) == (t.bos, t.eos)
    ids = torch.randint(0, t.size, (3, 16))
    with torch.no_grad():
        same(logits(ours, ids), loaded(ids).logits.flatten(0, 1))
    same(logits(again, ids), logits(ours, ids), 0)
    assert (again.recipe.task, again.recipe.text) == (ours.recipe.task, ours.recipe.text)
    assert again.tokenizer.dumps() == t.dumps()
    lines = [*HARD, *TEXT[:2]]
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer(lines).input_ids == t.encode_batch(lines)
    asked = tokenizer(tokenizer.bos_token + "The small cat", return_tensors="pt")  # as the docs tell
    assert asked.input_ids[0].tolist() == ours.document_encoder.prompt("The small cat")
    said = loaded.generate(**asked, do_sample=False, max_new_tokens=6)[0, asked.input_ids.shape[1] :].tolist()
    found = ours.generate("The small cat", decoding=Greedy(), max_tokens=6)[0].tokens
    assert found == [token for token in said if token != t.eos]


def test_a_vocabulary_that_cannot_be_said_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path / "run", {"kind": "word", "moses": True})
    export_model("hf", tmp_path / "run", tmp_path / "out", "float32")
    assert "no tokenizer that Hugging Face reads: it cuts text by Moses' rules" in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path / "out")) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer",
    ]


@pytest.mark.parametrize(
    "said, keys",
    [
        ("as GPT-2: it has no way to say that position is rotary", {"position": "rotary"}),
        ("residual is post_norm, activation is swiglu", {"residual": "post_norm", "activation": "swiglu"}),
        ("scale_embedding is True", {"scale_embedding": True}),
        (r"attention\.pattern is window\(4\)", {"attention": {"pattern": "window(4)"}}),
        (r"model\.kind is lstm_lm, where GPT-2 has lm", {"kind": "lstm_lm", "layers": 1, "size": 16}),
    ],
)
def test_what_gpt2_cannot_express_is_named(tmp_path: Path, said: str, keys: dict[str, Any]) -> None:
    make(tmp_path / "run", **keys)
    with pytest.raises(RegardError, match=said):
        export_model("hf", tmp_path / "run", tmp_path / "out", "float32")
    assert os.listdir(tmp_path) == ["run"]


def test_bare_safetensors_but_not_ctranslate2(tmp_path: Path) -> None:
    ours = make(tmp_path / "run", position="rotary")
    export_model("safetensors", tmp_path / "run", tmp_path / "bare", "float32")
    ids = torch.randint(0, ours.tokenizer.size, (3, 16))
    same(logits(regard.load(tmp_path / "bare", device="cpu"), ids), logits(ours, ids), 0)
    with pytest.raises(RegardError, match="a model of the task lm, which `regard export ct2` is not for"):
        export_model("ct2", tmp_path / "run", tmp_path / "ct2", "float32")

"""A GPT-2 that Hugging Face saved, through the command: the same numbers and the same text."""

from pathlib import Path

import pytest
import torch
import transformers
from tokenizers import ByteLevelBPETokenizer

import regard
from regard.decoding import Greedy
from regard.errors import RegardError
from regard.interop.command import bring_in

TEXT = ["The small cat sat on the mat.", "A cat, two cats; the mat was small."] * 30


def saved(folder: Path, **changes: object) -> transformers.GPT2LMHeadModel:
    folder.mkdir()
    learner = ByteLevelBPETokenizer()
    learner.train_from_iterator(TEXT, vocab_size=320, min_frequency=1, special_tokens=["<|endoftext|>"])
    learner.save_model(str(folder))
    torch.manual_seed(0)
    sizes = {"vocab_size": learner.get_vocab_size(), "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 48}
    config = transformers.GPT2Config(**{**sizes, "bos_token_id": 0, "eos_token_id": 0, **changes})
    model = transformers.GPT2LMHeadModel(config).eval()
    model.save_pretrained(folder)
    return model


def test_it_scores_and_writes_as_theirs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    theirs = saved(tmp_path / "hf")
    bring_in("hf", str(tmp_path / "hf"), tmp_path / "run")
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
        bring_in("hf", str(tmp_path / "hf"), tmp_path / "run")

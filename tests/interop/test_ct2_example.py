"""A CTranslate2 export without regard: its tokenizers, and its example in a process that cannot import regard."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer

from regard import config, folder
from regard.interop.command import bring_in, send_out
from regard.interop.ct2_engine import load
from regard.models.batch import Packed, pairs
from regard.tasks.translator import Translator
from regard.training.weights import weights_of, write_tensors
from tests.interop import toy
from tests.interop.opus import CODES, LINES, make_trained
from tests.interop.test_export import HARD

ctranslate2 = pytest.importorskip("ctranslate2")

SEARCHES = [{"kind": "greedy"}, {"kind": "beam", "size": 4, "length_penalty": 0.6}]
SOURCES = ["", *(source for source, _ in LINES[:80]), "  ", "<unk> </s>?", "Where are the ½ cats </s> now?", "the " * 90]
ALONE = (
    "import runpy, sys; sys.modules.update(dict.fromkeys(('regard', 'torch', 'transformers'))); "
    "runpy.run_path(sys.argv[1], run_name='__main__')"
)


def run_example(export: Path, lines: list[str]) -> list[str]:
    """What example.py prints, in a process that can import neither regard nor torch."""
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(export / "example.py")],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        encoding="utf-8",
        cwd=export.parent,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.removesuffix("\n").split("\n")


def make_trained_here(home: Path, said: dict[str, Any], steps: int = 100, **keys: Any) -> None:
    """A run that has learned a little, so that its sentences differ and end."""
    small = {"layers": 1, "decoder_layers": 1, "size": 32, "inner": 64, "dropout": 0.0}
    ours = toy.make(home, said, {"kind": "greedy", "max_extra": 40}, **small | keys)
    for parameter in ours.model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.xavier_uniform_(parameter)
    ours.model.train()
    v, optimiser = ours.vocabulary, torch.optim.Adam(ours.model.parameters(), 1e-2)
    for step in range(steps):
        lines = LINES[step % 25 * 32 : step % 25 * 32 + 32]
        source, target = (v.source.encode_batch([s for s, _ in lines]), v.target.encode_batch([t for _, t in lines]))
        batch = pairs(Packed.of(source), Packed.of(target), v.source, v.target)
        logits = ours.model(batch)
        wanted = torch.tensor([i for row in target for i in (*row, v.target.eos)])
        torch.nn.functional.cross_entropy(logits, wanted).backward()
        optimiser.step()
        optimiser.zero_grad()
    write_tensors(home / folder.WEIGHTS, weights_of(ours.model))


def searching(run: Path, search: dict[str, Any]) -> Translator:
    """The run with another search in its recipe."""
    plain = config.read(run / folder.CONFIG).plain()
    plain["decoding"] = search | {"max_extra": 40}
    (run / folder.CONFIG).write_text(config.dump(plain))
    return folder.load(run, "cpu")


def compare(run: Path, out: Path, lines: list[str]) -> None:
    """Greedy and beam: the same words as our own engine's."""
    for n, search in enumerate(SEARCHES):
        ours = searching(run, search)
        send_out("ct2", run, out / str(n), "float32")
        wanted = ours.translate(lines, warn=lambda sentence: None)
        assert run_example(out / str(n), lines) == wanted
        assert len(set(wanted)) > 20


MODELS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "post-norm, sinusoidal, bpe": ({"kind": "bpe", "size": 200}, {}),
    "pre-norm, rotary, unigram": ({"kind": "unigram", "size": 150}, {"residual": "pre_norm", "position": "rotary"}),
    "apart, lower": (
        {"kind": "wordpiece", "size": 150, "shared": False, "lower": True, "normalise": "nfkc"},
        {"share": "target"},
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_example_says_what_regard_says(tmp_path: Path, name: str) -> None:
    said, keys = MODELS[name]
    make_trained_here(tmp_path / "run", said, **keys)
    compare(tmp_path / "run", tmp_path / "out", SOURCES)

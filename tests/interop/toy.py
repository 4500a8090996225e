"""A small model folder of ours with random weights, wild enough that a wrong matrix shows."""

from pathlib import Path
from typing import Any

import torch

import regard
from regard import config, text
from regard.examples.vocabulary import Vocabulary
from regard.io import run_folder as folder
from regard.io.tensors import unique_state_dict, write_tensors
from regard.predict.translation import Translator
from regard.recipe import Recipe
from tests.interop.opus import LINES

SHAPE = {"kind": "transformer", "layers": 2, "decoder_layers": 3, "size": 16, "inner": 24, "heads": 4, "dropout": 0.1}


def make(
    home: Path, said: dict[str, Any] | None = None, decoding: dict[str, Any] | None = None, **keys: Any
) -> Translator:
    """`said` is the text section; the rest are keys of the model."""
    torch.manual_seed(0)
    recipe = config.parse_config(
        Recipe,
        {
            "data": {"filters": {"max_length": 60}},
            "text": said or {"kind": "bpe", "size": 200},
            "model": keys if "kind" in keys else SHAPE | keys,
            "decoding": decoding or {"kind": "beam", "size": 3, "max_extra": 12},
        },
    )
    lines = {"en": [s for s, _ in LINES], "de": [t for _, t in LINES]}
    if recipe.text.shared:
        vocabulary = Vocabulary.of(text.train_tokenizer(recipe.text, lines), ("en", "de"))
    else:
        made = [text.train_tokenizer(recipe.text, lines[language], language) for language in ("en", "de")]
        vocabulary = Vocabulary(made[0], made[1], False)
    home.mkdir(parents=True)
    vocabulary.save(home / "tokenizer")
    model = recipe.model.build(vocabulary.source.size, vocabulary.target.size)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(std=0.4)
            if "norm" in name and name.endswith("weight"):
                parameter.add_(1.0)
            if (
                parameter.shape[-1:] == (16,) and len(parameter) > 100
            ):  # words: of one length, or one is always likeliest
                parameter.copy_(2 * torch.nn.functional.normalize(parameter, dim=-1))
    (home / folder.CONFIG).write_text(config.dump_yaml(recipe), encoding="utf-8")
    write_tensors(home / folder.WEIGHTS, unique_state_dict(model))
    return regard.load(home, "cpu")

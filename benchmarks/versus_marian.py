"""Quality side by side: regard's Transformer and Hugging Face's MarianMT of the same size, on the same batches.

For any translation recipe with one vocabulary: both see the same prepared data, schedule, label smoothing and number of
steps, are decoded with the same beam, and measured on `valid`, and on `test` where the recipe has one.

    python benchmarks/versus_marian.py tatoeba-en-de [override ...] --out runs/versus [--only marian] [--json FILE]

Marian's residuals are post-norm: a recipe of pre-norm ones may have a rate that is too high for it, for which
`training.schedule.peak=1e-3 --only marian` gives it one of its own.
"""

import regard  # noqa: F401, I001  (before torch: it settles how OpenMP's threads wait)
import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from common import arguments, marian, write_json
from torch import Tensor, nn

from regard import recipe as recipes
from regard.models.batch import RaggedRows, PairBatch, collate_sources
from regard.recipe import Recipe
from regard.tasks.translation import TranslationTask
from regard.examples.pairs import read_pairs
from regard.examples.batching import by_length
from regard.run import train_recipe

PLACES = 512  # that the Marian of common.py has
METRICS = ("bleu", "chrf", "ter", "perplexity")


class Marian(nn.Module):
    """MarianMT behind the one method that training needs."""

    def __init__(self, recipe: Recipe, entries: int) -> None:
        super().__init__()
        m = recipe.model
        self.config = m
        self.net = marian(m, entries, dropout=m.dropout, attention_dropout=0.0, activation_dropout=0.0,
                          activation_function=m.activation, bos_token_id=2, forced_eos_token_id=None,
                          share_encoder_decoder_embeddings=True, tie_word_embeddings=True)  # fmt: skip

    def forward(self, batch: PairBatch, record: None = None, smoothing: float | None = None) -> Tensor:
        real = torch.ones_like(batch.source) if batch.source_real is None else batch.source_real.long()
        hidden = self.net.model(
            input_ids=batch.source, attention_mask=real, decoder_input_ids=batch.target, use_cache=False
        ).last_hidden_state
        scores = self.net.lm_head(hidden.flatten(0, 1)[batch.label_positions])
        if smoothing is None:
            return scores
        return nn.functional.cross_entropy(scores, batch.labels, label_smoothing=smoothing, reduction="sum")


class BothSplits(TranslationTask):
    """The finished model is measured on the recipe's test split too."""

    def evaluate_corpora(self, model, corpora, progress=None):
        measured = self.measure(model, corpora, progress)
        test = self.recipe.data.test
        return measured | ({"test": self.measure(model, test, progress)} if test else {})

    def measure(self, model, corpora, progress):
        return super().evaluate_corpora(model, corpora, progress)


class MarianTask(BothSplits):
    """The same task with the other model; while training, only its loss is watched."""

    def build_model(self) -> nn.Module:
        return Marian(self.recipe, self.vocabulary.target.size)

    def validate(self, model, device, progress=None):
        return self.translator(model).loss(self.valid) | {"bleu": 0.0}

    def measure(self, model, corpora, progress):
        translator = self.translator(model)
        given = read_pairs(corpora, self.languages)
        beam, longest = self.recipe.decoding, self.recipe.data.filters.max_length
        ids = [row[:longest] for row in self.vocabulary.source.encode_batch([s for s, _ in given])]
        outputs = [""] * len(given)
        model.eval()
        for rows in by_length([len(r) for r in ids], 4096 // beam.size):
            source, real = collate_sources(RaggedRows.of([ids[r] for r in rows]), 0, self.vocabulary.source.eos)
            mask = torch.ones_like(source) if real is None else real.long()
            found = model.net.generate(
                input_ids=source.to(translator.device),
                attention_mask=mask.to(translator.device),
                num_beams=beam.size,
                length_penalty=beam.length_penalty,
                max_new_tokens=min(PLACES - 1, max(beam.limit(len(ids[r])) for r in rows)),
                early_stopping=True,
            )
            for row, tokens in zip(rows, found.tolist(), strict=True):
                outputs[row] = self.vocabulary.target.decode([t for t in tokens if t not in (0, 2, 3)])
        metrics = {name: metric.json() for name, metric in translator.metrics(outputs, given).items()}
        metrics |= {name: {"value": value} for name, value in translator.loss(given).items()}
        return {"data": [corpus.name for corpus in corpora], "lines": len(given), "metrics": metrics}


def figures(measured: dict[str, Any]) -> dict[str, Any]:
    """The metrics of a split, and BLEU's signature."""
    metrics = measured["metrics"]
    return {name: round(metrics[name]["value"], 3) for name in METRICS} | {"signature": metrics["bleu"]["signature"]}


def check(recipe: Recipe) -> None:
    """What Marian cannot have is refused with a sentence."""
    if recipe.task.kind != "translation" or recipe.model.kind != "transformer":
        raise SystemExit("versus_marian.py: give a recipe of translation by a Transformer")
    if not recipe.text.shared or recipe.model.share != "all":
        raise SystemExit("versus_marian.py: Marian has one vocabulary and one matrix for both languages; "
                         "the recipe needs text.shared: true and model.share: all")  # fmt: skip


def parser() -> argparse.ArgumentParser:
    parser = arguments(__doc__)
    parser.add_argument("recipe", help="its name, or a YAML file")
    parser.add_argument("overrides", nargs="*", help="keys to change, as seed=2")
    parser.add_argument("--out", type=Path, default=Path("runs/versus"), help="for a run folder of each")
    parser.add_argument("--only", choices=["regard", "marian"])
    parser.add_argument("--device", default="auto")
    return parser


def main() -> None:
    import regard.tasks.translation as home

    options = parser().parse_args()
    recipe = recipes.load_recipe(options.recipe, options.overrides)
    check(recipe)
    table = {}
    for name in ("regard", "marian") if options.only is None else (options.only,):
        began = time.monotonic()
        home.TranslationTask = MarianTask if name == "marian" else BothSplits  # type: ignore[misc]
        r = train_recipe(recipe, options.out / name, options.device).results
        table[name] = figures(r["valid"]) | {
            "parameters": r["parameters"],
            "training_s": r["seconds"],
            "tok/s": r["tokens_per_second"],
            "wall_s": round(time.monotonic() - began, 1),
            "device": r["device"],
        }
        if "test" in r["valid"]:
            table[name]["test"] = figures(r["valid"]["test"])
    print(json.dumps(table, indent=1))
    write_json(options.json, table)


if __name__ == "__main__":
    main()

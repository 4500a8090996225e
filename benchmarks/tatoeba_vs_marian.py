"""Quality side by side: regard's Transformer and Hugging Face's MarianMT of the same size, on the same batches.

Both see the same prepared data, schedule, label smoothing and number of steps, and are decoded with the same beam.

    python benchmarks/tatoeba_vs_marian.py --out runs/versus [--json FILE] [override ...]
"""

import regard  # noqa: F401, I001  (before torch: it settles how OpenMP's threads wait)
import argparse
import json
import time
from pathlib import Path

import torch
from common import arguments, marian, write_json
from torch import Tensor, nn

from regard import recipe as recipes
from regard.models.batch import RaggedRows, PairBatch, collate_sources
from regard.recipe import Recipe
from regard.tasks.translation import TranslationTask
from regard.examples.pairs import read_pairs
from regard.predict.translation import by_length
from regard.run import train_recipe


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


class MarianTask(TranslationTask):
    """The same task with the other model; while training, only its loss is watched."""

    def build_model(self) -> nn.Module:
        return Marian(self.recipe, self.vocabulary.target.size)

    def validate(self, model, device, progress=None):
        return self.translator(model).loss(self.valid) | {"bleu": 0.0}

    def evaluate_corpora(self, model, corpora, progress=None):
        translator = self.translator(model)
        given = read_pairs(corpora, self.languages)
        beam = self.recipe.decoding
        ids = self.vocabulary.source.encode_batch([s for s, _ in given])
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
                max_new_tokens=120,
                early_stopping=True,
            )
            for row, tokens in zip(rows, found.tolist(), strict=True):
                outputs[row] = self.vocabulary.target.decode([t for t in tokens if t not in (0, 2, 3)])
        metrics = {name: metric.json() for name, metric in translator.metrics(outputs, given).items()}
        metrics |= {name: {"value": value} for name, value in translator.loss(given).items()}
        return {"data": ["valid"], "lines": len(given), "metrics": metrics}


def parser() -> argparse.ArgumentParser:
    parser = arguments(__doc__)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--recipe", default="tatoeba-en-de")
    parser.add_argument("--out", type=Path, default=Path("runs/versus"))
    parser.add_argument("--only", choices=["regard", "marian"])
    return parser


def main() -> None:
    options = parser().parse_args()
    table = {}
    for name in ("regard", "marian") if options.only is None else (options.only,):
        began = time.monotonic()
        if name == "marian":
            import regard.tasks.translation as home

            home.TranslationTask = MarianTask  # type: ignore[misc]
        outcome = train_recipe(recipes.load_recipe(options.recipe, options.overrides), options.out / name)
        r = outcome.results
        table[name] = {m: round(r["valid"]["metrics"][m]["value"], 3) for m in ("bleu", "chrf", "ter", "perplexity")}
        table[name] |= {
            "signature": r["valid"]["metrics"]["bleu"]["signature"],
            "parameters": r["parameters"],
            "training_s": r["seconds"],
            "tok/s": r["tokens_per_second"],
            "wall_s": round(time.monotonic() - began, 1),
            "device": r["device"],
        }
    print(json.dumps(table, indent=1))
    write_json(options.json, table)


if __name__ == "__main__":
    main()

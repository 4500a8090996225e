"""How full the batches are: real over padded tokens, on Multi30k if it is there, else on the embedded corpus.

python benchmarks/batches.py [--budget 4096] [--json FILE]
"""

import argparse
import tempfile
from pathlib import Path

from common import arguments, write_json

from regard import recipe as recipes
from regard.data import catalog
from regard.data.batches import padding_efficiency, token_budget_batches
from regard.errors import RegardError


def parser() -> argparse.ArgumentParser:
    parser = arguments(__doc__)
    parser.add_argument("--budget", type=int, default=4096)
    return parser


def main() -> None:
    options = parser().parse_args()
    budget = options.budget
    try:
        catalog.set_files("multi30k:train", ("en", "de"))
        name, keys = "multi30k-en-de", ["text.dropout=0"]
    except RegardError:
        name, keys = "quickstart", []
    with tempfile.TemporaryDirectory() as cache:
        recipe = recipes.load_recipe(name, [*keys, f"data.cache={Path(cache)}"])
        task = recipe.task.prepare(recipe, None, lambda what, n, of: None)
        view = task.view(seed=1, epoch=0)
        plans = [token_budget_batches(view.source_lengths, view.target_lengths, budget, 1, epoch) for epoch in range(3)]
        for batches in plans:
            target, both = (padding_efficiency(batches, *sides) for sides in
                            ([view.target_lengths], [view.source_lengths, view.target_lengths]))  # fmt: skip
            print(f"{name}, budget {budget}: {len(batches)} batches, target {target:.1%} real, "
                  f"source and target {both:.1%}")  # fmt: skip
        first, second = ({frozenset(b.tolist()) for b in p} for p in plans[:2])
        print(f"batches of epoch 0 that come again in epoch 1: {len(first & second)} of {len(first)}")
    write_json(options.json, {"corpus": name, "target": target, "both": both, "repeated": len(first & second)})


if __name__ == "__main__":
    main()

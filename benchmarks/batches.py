"""How full the batches are: real over padded tokens, on Multi30k if it is there, else on the embedded corpus.

python benchmarks/batches.py [--budget 4096]
"""

import argparse
import tempfile
from pathlib import Path

from regard import recipe as recipes
from regard.data import catalog
from regard.data.batches import fill, plan
from regard.errors import RegardError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=int, default=4096)
    budget = parser.parse_args().budget
    try:
        catalog.files("multi30k:train", ("en", "de"))
        name, keys = "multi30k-en-de", ["text.dropout=0"]
    except RegardError:
        name, keys = "quickstart", []
    with tempfile.TemporaryDirectory() as cache:
        recipe = recipes.load(name, [*keys, f"data.cache={Path(cache)}"])
        task = recipe.task.prepare(recipe, None, lambda what, n, of: None)
        view = task.view(seed=1, epoch=0)
        plans = [plan(view.source_lengths, view.target_lengths, budget, 1, epoch) for epoch in range(3)]
        for batches in plans:
            print(
                f"{name}, budget {budget}: {len(batches)} batches, "
                f"target {fill(batches, view.target_lengths):.1%} real, "
                f"source and target {fill(batches, view.source_lengths, view.target_lengths):.1%}"
            )
        first, second = ({frozenset(b.tolist()) for b in p} for p in plans[:2])
        print(f"batches of epoch 0 that come again in epoch 1: {len(first & second)} of {len(first)}")


if __name__ == "__main__":
    main()

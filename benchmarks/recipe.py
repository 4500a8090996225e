"""Train a shipped recipe and measure it, as `regard train` and `regard evaluate` do, the figures in one JSON file.

    python benchmarks/recipe.py multi30k-en-de seed=1 --out runs/multi30k-1 [--json FILE]

The test split is measured where the recipe names one. The same command goes on with a training that was stopped.
"""

import argparse
from pathlib import Path

from common import arguments, train_recipe, write_json


def parser() -> argparse.ArgumentParser:
    parser = arguments(__doc__)
    parser.add_argument("recipe", help="its name, or a YAML file")
    parser.add_argument("overrides", nargs="*", help="keys to change, as seed=2")
    parser.add_argument("--out", type=Path, required=True, help="the run folder")
    parser.add_argument("--device", default="auto")
    return parser


def main() -> None:
    from regard import recipe as recipes

    options = parser().parse_args()
    test = bool(recipes.load_recipe(options.recipe, options.overrides).data.test)
    found = train_recipe(options.recipe, options.overrides, options.out, options.device, test)
    for split in ("valid", "test"):
        for name, metric in found.get(split, {}).get("metrics", {}).items():
            print(f"{split:6} {name:14} {metric['value']:10.3f}  {metric.get('signature', '')}")
    print(f"{found['steps']} steps in {found['seconds'] / 60:.1f} minutes of training, {found['device']}")
    write_json(options.json, found)


if __name__ == "__main__":
    main()

"""One table of many choices under one loop: every position, score, pattern, block and model on the embedded corpus.

The quickstart itself is the row "position sinusoidal". Each row is a training of its own (`regard train`), measured
on the test split. Finished rows are kept, so that the same command goes on where it stopped; a row whose training
failed says why.

    python benchmarks/compare.py --jobs 2 --seeds 1 2 3 --only models --out runs/compare
    python benchmarks/compare.py --speed                  # tokens/s alone, taking turns, on an idle machine
"""

import argparse
import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from common import train_recipe

QUIET = "training.validation.every=100000"  # measured once, at the end
ROWS: dict[str, dict[str, tuple[str, list[str]]]] = {
    "models": {
        "Transformer": ("quickstart", []),
        "RNN, Bahdanau": ("quickstart-rnn", []),
        "RNN, Luong": ("quickstart-luong", []),
        "ConvS2S": ("quickstart-conv", []),
        "ByteNet": ("quickstart-bytenet", []),
    },
    "positions": {
        f"position {name}": ("quickstart", [f"model.position={name}"])
        for name in ("none", "sinusoidal", "learned", "relative", "rotary", "alibi", "t5")
    },
    "scores": {
        f"score {name}": ("quickstart", [f"model.attention.score={name}"])
        for name in ("dot", "{kind: dot, init: compensated}", "general", "additive", "concat", "cosine")
    },
    "normalisers": {
        f"normalise {name}": ("quickstart", [f"model.attention.normalise={name}"])
        for name in ("sparsemax", "entmax")
    }
    | {"normalise hard (cross)": ("quickstart", ["model.attention.cross.normalise=hard"])},
    "patterns": {
        f"pattern {name}": (
            "quickstart",
            [f'model.attention.{place}.pattern="{name}"' for place in ("encoder", "decoder")],
        )
        for name in ("window(2)", "window(2) | global(1)", "bigbird(4, 3, 1, 1)")
    }
    | {
        "cross local_m(6)": ("quickstart", ['model.attention.cross.pattern="local_m(6)"']),
        "cross local_p(6)": ("quickstart", ['model.attention.cross.pattern="local_p(6)"']),
    },
    "compressors": {
        "encoder linformer": (
            "quickstart",
            ["model.attention.encoder.compress={kind: linformer, length: 257, size: 16}"],
        ),
        "encoder strided_conv": ("quickstart", ["model.attention.encoder.compress=strided_conv"]),
    },
    "blocks": {
        "shared query and key": ("quickstart", ["model.attention.projection=shared"]),
        "pre-norm": ("quickstart", ["model.residual=pre_norm"]),
        "no residual": ("quickstart", ["model.residual=none"]),
        "BatchNorm": ("quickstart", ["model.norm=batch"]),
        "no feed-forward": ("quickstart", ["model.feed_forward=none"]),
        "GELU": ("quickstart", ["model.activation=gelu"]),
        "SwiGLU": ("quickstart", ["model.activation=swiglu"]),
    },
}  # fmt: skip


def slug(text: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in text).strip("-").lower()


def train(name: str, recipe: str, overrides: list[str], seed: int, options: argparse.Namespace) -> dict:
    """One training in a process of its own; its results, or why there are none."""
    row = {"row": name, "seed": seed}
    keys = [*overrides, *options.set, QUIET, f"seed={seed}"]
    try:
        found = train_recipe(recipe, keys, options.out / f"{slug(name)}-{seed}", options.device)
    except RuntimeError as problem:
        return row | {"error": str(problem)}
    row |= {key: found[key] for key in ("device", "parameters", "steps", "seconds", "tokens_per_second")}
    test = found["test"]["metrics"]
    return row | {key: test[key]["value"] for key in ("exact_match", "pronouns", "bleu", "perplexity")}


def speeds(names: list[str], rounds: int = 5) -> None:
    """Target tokens/s of a step (forward, backward, update) of every row, on one batch, taking turns."""
    import regard  # noqa: F401, I001
    import torch
    from training import batches

    from regard import recipe as recipes

    batch = batches(1, 2048, 2000, 11, 0.3)[0]
    made = {}
    for group in names:
        for name, (recipe, overrides) in ROWS[group].items():
            model = recipes.load_recipe(recipe, overrides).model.build(2000, 2000).train()
            made[name] = model, torch.optim.AdamW(model.parameters(), 1e-4, fused=True), []
    for turn in range(rounds + 1):
        for model, optimiser, times in made.values():
            began = time.perf_counter()
            (model(batch, None, 0.1) / len(batch.labels)).backward()
            optimiser.step()
            optimiser.zero_grad()
            times += [time.perf_counter() - began] if turn else []
    for name, (_, _, times) in made.items():
        print(f"{name:40} {len(batch.labels) / statistics.median(times):10,.0f}", flush=True)


def table(rows: list[dict]) -> str:
    """Markdown: means over the seeds, each seed's exact match behind."""
    lines = ["| | parameters | exact match % | pronouns % | BLEU | tokens/s | training s | exact match by seed |",
             "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for name in dict.fromkeys(row["row"] for row in rows):
        shown = name.replace("|", r"\|")
        good = [row for row in rows if row["row"] == name and "error" not in row]
        if not good:
            lines.append(f"| {shown} | failed: {next(r['error'] for r in rows if r['row'] == name)} |")
            continue
        mean = {k: statistics.mean(r[k] for r in good) for k in good[0] if isinstance(good[0][k], int | float)}
        by_seed = " / ".join(f"{r['exact_match']:.1f}" for r in good)
        lines.append(
            f"| {shown} | {good[0]['parameters'] / 1e6:.2f}M | {mean['exact_match']:.1f} | {mean['pronouns']:.1f} "
            f"| {mean['bleu']:.1f} | {mean['tokens_per_second']:,.0f} | {mean['seconds']:.0f} | {by_seed} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--jobs", type=int, default=1, help="trainings side by side")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--speed", action="store_true", help="measure tokens/s alone")
    parser.add_argument("--set", nargs="*", default=[], help="overrides for every row")
    parser.add_argument("--out", type=Path, default=Path("runs/compare"))
    options = parser.parse_args()
    if options.speed:
        return speeds(options.only)
    options.out.mkdir(parents=True, exist_ok=True)
    asked = [
        (name, *row, seed) for group in options.only for name, row in ROWS[group].items() for seed in options.seeds
    ]
    rows: list[dict] = []

    def one(job: tuple) -> dict:
        row = train(*job, options)
        rows.append(row)
        print(json.dumps(row, ensure_ascii=False), flush=True)
        (options.out / "rows.json").write_text(json.dumps(rows, indent=1, ensure_ascii=False))
        return row

    with ThreadPoolExecutor(options.jobs) as pool:
        done = list(pool.map(one, asked))
    text = table(done)
    (options.out / "table.md").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()

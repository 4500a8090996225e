"""ULMFiT on SST-2 with 1,000 labels: from scratch, from WikiText-2's language model, and with its text read first.

All share a vocabulary, steps and the head; what is measured is the last step of each, on the validation split: nothing
is chosen by it. From scratch, and in the arm that has none of ULMFiT's rates, all layers learn at one rate.

    python benchmarks/ulmfit.py --folder runs/ulmfit [--seeds 3] [--parallel 10] [--out ulmfit.json]

REGARD_DATA names the data.
"""

from stages import Run, options, table, train_all, write

LAST = ["training.checkpoints.average=1"]
PLAIN = ["training.layerwise=null", "training.schedule.peak=1e-3"]


def main() -> None:
    given = options(__doc__)
    home = given.folder
    nothing = Run("ulmfit-wikitext2", home / "random", ["training.steps=1", "training.schedule.peak=0", *given.set])
    general = Run("ulmfit-wikitext2", home / "wikitext2", [*LAST, *given.set], after=(nothing,))
    tuned = Run(
        "ulmfit-sst2-lm", home / "sst2-lm", [f"training.init={general.out}", *LAST, *given.set], after=(general,)
    )
    ways = {
        "from scratch": (nothing, PLAIN),
        "WikiText-2, not tuned to SST-2": (general, []),
        "tuned, all layers at one rate": (tuned, PLAIN),
        "tuned, all layers from the first step": (tuned, ["training.layerwise.unfreeze=0"]),
        "ULMFiT": (tuned, []),
    }
    arms: dict[str, list[Run]] = {name: [] for name in ways}
    for seed in range(1, given.seeds + 1):
        for n, (name, (origin, keys)) in enumerate(ways.items()):
            own = [f"training.init={origin.out}", f"seed={seed}", *LAST, "training.validation.every=100000", *keys]
            arms[name].append(Run("ulmfit-sst2", home / f"arm{n}-{seed}", [*own, *given.set], after=(origin,)))
    train_all([nothing, general, tuned, *(run for runs in arms.values() for run in runs)], given.parallel)
    found = table(arms, "accuracy")
    for run in (general, tuned):
        print(f"{run.out.name}: perplexity {run.results['valid']['metrics']['perplexity']['value']:.2f}")
    write(given.out, {"accuracy": found, "wikitext2": general.results, "sst2-lm": tuned.results})


if __name__ == "__main__":
    main()

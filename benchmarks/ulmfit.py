"""ULMFiT on SST-2 with 1,000 labels: from scratch, from WikiText-2's language model, and with its text read first.

All share a vocabulary, steps and the head. The highest rate of each way is chosen among three by the thousand training
examples that follow; then seeds are run, and the last step of each is measured on the validation split, by which
nothing is chosen. The last two arms have the paper's rates by depth, and its gradual unfreezing.

    python benchmarks/ulmfit.py --folder runs/ulmfit [--seeds 3] [--parallel 10] [--json FILE]

REGARD_DATA names the data.
"""

from itertools import islice
from pathlib import Path

from stages import Run, options, table, train_all, write

LAST = ["training.checkpoints.average=1"]
LABELS = 1000
PEAKS = (1e-3, 3e-3, 1e-2)


def tuning(path: Path) -> Path:
    """The training examples behind those that are learned from."""
    from regard.data.config import Corpus
    from regard.data.labelled import labelled_texts

    found = islice(labelled_texts(Corpus(set="glue/SST-2:train")), LABELS, 2 * LABELS)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("sentence\tlabel\n" + "".join(f"{one.texts[0]}\t{one.label}\n" for one in found), encoding="utf-8")
    return path


def value(run: Run) -> float:
    return float(run.results["valid"]["metrics"]["accuracy"]["value"])


def main() -> None:
    given = options(__doc__)
    home, held_out = given.folder, tuning(given.folder / "tuning.tsv")
    nothing = Run("ulmfit-wikitext2", home / "random", ["training.steps=1", "training.schedule.peak=0", *given.set])
    general = Run("ulmfit-wikitext2", home / "wikitext2", [*LAST, *given.set], after=(nothing,))
    tuned = Run(
        "ulmfit-sst2-lm", home / "sst2-lm", [f"training.init={general.out}", *LAST, *given.set], after=(general,)
    )
    depth = ["training.layerwise.divide=2.6"]
    thaw = [*depth, "training.layerwise.unfreeze=32"]
    ways = {
        "from scratch": (nothing, []),
        "WikiText-2, not tuned to SST-2": (general, thaw),
        "tuned, all layers at one rate": (tuned, []),
        "tuned, lower layers at smaller rates": (tuned, depth),
        "tuned, and unfrozen one by one": (tuned, thaw),
    }

    def classifier(name: str, peak: float, out: str, *keys: str) -> Run:
        origin, own = ways[name]
        own = [*own, f"training.init={origin.out}", f"training.schedule.peak={peak}", *LAST]
        every = "training.validation.every=100000"
        return Run("ulmfit-sst2", home / out, [*own, every, f"task.limit={LABELS}", *keys, *given.set], (origin,))

    tries = {
        name: {peak: classifier(name, peak, f"try{n}-{peak:.0e}", f"data.valid={held_out}") for peak in PEAKS}
        for n, name in enumerate(ways)
    }
    train_all([nothing, general, tuned, *(run for runs in tries.values() for run in runs.values())], given.parallel)
    peaks = {name: max(runs, key=lambda peak: value(runs[peak])) for name, runs in tries.items()}
    arms = {
        name: [classifier(name, peaks[name], f"arm{n}-{seed}", f"seed={seed}") for seed in range(1, given.seeds + 1)]
        for n, name in enumerate(ways)
    }
    train_all([run for runs in arms.values() for run in runs], given.parallel)
    for name, runs in tries.items():
        shown = "  ".join(f"{peak:.0e}: {value(run):.2f}" for peak, run in runs.items())
        print(f"{name:40} chosen by the next {LABELS} examples: {shown}")
    found = table(arms, "accuracy")
    for run in (general, tuned):
        print(f"{run.out.name}: perplexity {run.results['valid']['metrics']['perplexity']['value']:.2f}")
    write(given.json, {"accuracy": found, "peaks": peaks, "wikitext2": general.results, "sst2-lm": tuned.results})


if __name__ == "__main__":
    main()

"""ELMo on CoNLL-2003: the same tagger without features, with those of a random biLSTM, and with those of the biLM.

All three share the biLM's vocabulary, steps and rates; what is measured is the last step of each, on the validation
split: nothing is chosen by it.

    python benchmarks/elmo.py --folder runs/elmo [--seeds 3] [--parallel 10] [--json FILE]

REGARD_DATA names the data.
"""

from stages import Run, options, table, train_all, write

LAST = ["training.checkpoints.average=1"]


def main() -> None:
    given = options(__doc__)
    home = given.folder
    random = Run("elmo-bilm", home / "bilm-random", ["training.steps=1", "training.schedule.peak=0", *given.set])
    bilm = Run("elmo-bilm", home / "bilm", [*LAST, *given.set], after=(random,))  # the first makes what both read
    arms: dict[str, list[Run]] = {"without": [], "random biLSTM, frozen": [], "ELMo": []}
    for seed in range(1, given.seeds + 1):
        for (name, runs), origin in zip(arms.items(), (random, random, bilm), strict=True):
            keys = [f"training.init={origin.out}", f"seed={seed}", *LAST, "training.validation.every=100000"]
            keys += ["model.features=null"] if name == "without" else []
            out = home / f"{name.partition(' ')[0].lower()}-{seed}"
            runs.append(Run("elmo-conll2003", out, [*keys, *given.set], after=(origin,)))
    train_all([random, bilm, *(run for runs in arms.values() for run in runs)], given.parallel)
    found = table(arms, "f1")
    print(f"biLM: perplexity {bilm.results['valid']['metrics']['perplexity']['value']:.2f} (forward half)")
    write(given.json, {"f1": found, "bilm": bilm.results})


if __name__ == "__main__":
    main()

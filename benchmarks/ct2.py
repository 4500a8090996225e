"""What `--engine ct2` adds to CTranslate2: lines translated through regard, and by calling the library directly.

Both have the same exported model in int8, the same tokenizers, a worker for every core and the same limits. `direct` is
what a user would write: all lines are encoded by the same tokenizer, one call of `translate_batch` with the best of
several batch sizes, outputs decoded; no scores, no limit for each line, and nothing is kept but the text.
They take turns; figures are medians over rounds of seconds, and of seconds of the processor, which others on the
machine disturb less. `same` is the share of lines with the same text.

    python benchmarks/ct2.py RUN FILE [--lines 1000] [--beam 1 5] [--base 100] [--rounds 9]
"""

import regard  # noqa: I001  (before torch: it settles how OpenMP's threads wait)
import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from regard import config
from regard.io import run_folder as folder
from regard.recipe import read_recipe
from regard.data.readers import lines as read
from regard.decoding import Beam, DecodingConfig, Greedy
from regard.interop.ct2_engine import FastTranslator, load
from regard.io.tensors import weights_of, write_tensors

Run = Callable[[list[str]], list[str]]
BATCHES = (256, 512, 1024, 2048)  # source tokens a batch


def base(run: Path, home: Path) -> Path:
    """A model of base size with random weights, and the tokenizer of a run; its outputs are as long as they may be."""
    plain = config.to_plain(read_recipe(run))
    plain["model"] |= {"layers": 6, "size": 512, "inner": 2048, "heads": 8}
    recipe = config.parse(type(read_recipe(run)), plain)
    shutil.copytree(run / "tokenizer", home / "tokenizer")
    torch.manual_seed(0)
    entries = regard.load(run, "cpu").vocabulary
    model = recipe.model.build(entries.source.size, entries.target.size)
    (home / folder.CONFIG).write_text(config.dump(recipe), encoding="utf-8")
    write_tensors(home / folder.WEIGHTS, weights_of(model))
    return home


def direct(translator: FastTranslator, decoding: DecodingConfig, batch: int) -> Run:
    source, target = translator.vocabulary
    names, ids = translator.source_names, translator.ids
    size, power = (decoding.size, decoding.length_penalty) if isinstance(decoding, Beam) else (1, 0.0)

    def run(lines: list[str]) -> list[str]:
        pieces = [[names[i] for i in (*row, source.eos)] for row in source.encode_batch(lines)]
        found = translator.ct2.translate_batch(
            pieces, beam_size=size, length_penalty=power, max_batch_size=batch, batch_type="tokens",
            max_decoding_length=decoding.limit(max(map(len, pieces))), min_decoding_length=0)  # fmt: skip
        return target.decode_batch([[ids[piece] for piece in each.hypotheses[0]] for each in found])

    return run


def timed(runs: dict[str, Run], lines: list[str], rounds: int) -> dict[str, tuple[float, float]]:
    """Median seconds by the clock, and of the processor."""
    wall: dict[str, list[float]] = {name: [] for name in runs}
    spent: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            began, used = time.perf_counter(), time.process_time()
            run(lines)
            wall[name].append(time.perf_counter() - began)
            spent[name].append(time.process_time() - used)
    return {name: (statistics.median(wall[name]), statistics.median(spent[name])) for name in runs}


def compare(what: str, run: Path, lines: list[str], decoding: DecodingConfig, rounds: int) -> None:
    translator = load(run, "cpu", "int8")
    tried = {str(batch): direct(translator, decoding, batch) for batch in BATCHES}
    seconds = timed(tried, lines, 2)
    best = min(tried, key=lambda name: seconds[name][1])
    runs = {"direct": tried[best], "regard": lambda given: translator.translate(given, decoding)}
    same = sum(a == b for a, b in zip(*(run(lines) for run in runs.values()), strict=True)) / len(lines)
    took = timed(runs, lines, rounds)
    (wall, used), (our_wall, ours) = took["direct"], took["regard"]
    print(f"{what:28} {len(lines):6,} {wall:9.3f} {our_wall:9.3f} {our_wall / wall - 1:+7.1%} {used:9.3f} {ours:9.3f} "
          f"{ours / used - 1:+7.1%} {same:6.1%}   {best}", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--beam", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--base", type=int, default=100, help="lines for a model of base size; 0: none")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    lines = list(read(options.file))
    print(f"{'':28} {'lines':>6} {'direct, s':>9} {'regard, s':>9} {'':7} {'CPU, s':>9} {'CPU, s':>9} {'':7}   same   "
          "batch of direct")  # fmt: skip
    with tempfile.TemporaryDirectory() as place:
        given = Path(place) / "run"
        shutil.copytree(options.run, given)
        for beam in options.beam:
            name = "greedy" if beam == 1 else f"beam {beam}"
            search = Greedy() if beam == 1 else Beam(size=beam)
            compare(f"{options.run.name}, {name}", given, lines[: options.lines], search, options.rounds)
            if options.base:
                limits = {"max_ratio": 0, "max_extra": 20}  # random weights never end, so all say as many words
                short = Greedy(**limits) if beam == 1 else Beam(size=beam, **limits)
                home = Path(place) / f"base-{beam}"
                home.mkdir()
                compare(f"random base, {name}", base(given, home), lines[: options.base], short, options.rounds)


if __name__ == "__main__":
    main()

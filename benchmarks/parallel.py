"""Parallel decoding beside greedy search: blockwise (heads on a frozen model, heads trained along) and speculative (a
student, the model's first layers, n-grams), in one run, taking turns.

    python benchmarks/parallel.py --folder runs/parallel              trains what it needs on Multi30k, then measures
    python benchmarks/parallel.py --run RUN --student RUN --frozen RUN --along RUN

Times are of the processor on a CPU, where other work does not count, and of the clock on a GPU. Decoder time is that of
`Engine.decode`, end to end is a call of `translate`; each beside greedy search of the same weights. `same` is the share
of lines with greedy search's words.
"""

import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from common import arguments, hardware, train_recipe, write_json

import regard
from regard.decoding import Blockwise, DecodingConfig, Greedy, Speculative
from regard.distil.student import seed_run
from regard.recipe import load_recipe, read_recipe
from regard.tasks.translation import read_pairs

BASE = {"task": "{kind: translation, source: en, target: de}", "text": "{kind: bpe, size: 8000}"}
SETS = ["data.train=multi30k:train", "data.valid=multi30k:val", "data.test=multi30k:test_2016_flickr"]
SIZES = {
    "model": "{preset: base, residual: pre_norm}",
    "student": "{layers: 2, decoder_layers: 1, size: 256, inner: 512, heads: 4}",
}


clock = time.perf_counter if torch.cuda.is_available() else time.process_time


def trained(options: Any, folder: Path) -> dict[str, Path]:
    """The runs by what they are: given, or trained here. A finished one is used again."""
    given = {name: getattr(options, name) for name in ("run", "student", "frozen", "along")}
    if given["run"] is not None:
        return {name: path for name, path in given.items() if path is not None}
    recipe = folder / "recipe.yaml"
    recipe.parent.mkdir(parents=True, exist_ok=True)
    recipe.write_text("".join(f"{name}: {value}\n" for name, value in BASE.items()), encoding="utf-8")
    steps, data = options.steps, SETS
    keys = ["decoding.kind=greedy", "training.validation.lines=100", f"training.validation.every={steps}"]
    keys += ["training.checkpoints.average=1", *(["training.precision=bf16"] if options.device == "cuda" else [])]

    def train(name: str, sizes: str, count: int, kind: str, rate: str, *own: str) -> Path:
        schedule = f"training.schedule={{kind: {kind}, peak: {rate}, warmup: {count // 10}}}"
        given = [*keys, *data, f"model={SIZES[sizes]}", f"training.steps={count}", schedule, *own]
        if sizes == "student":  # which knows the same pieces by the same ids
            seed_run(load_recipe(str(recipe), given), read_recipe(folder / "model"), folder / "model", folder / name)
        train_recipe(str(recipe), given, folder / name, options.device, test=False)
        return folder / name

    runs = {"run": train("model", "model", steps, "cosine", "1e-3")}
    if options.distil:
        data = [f"data.train={distilled(runs['run'], folder)}", *SETS[1:]]
    runs["student"] = train("student", "student", steps, "cosine", "2e-3")
    for name, frozen, rate, before in (("frozen", "true", "2e-3", "run"), ("along", "false", "2e-4", "frozen")):
        heads = f"model.proposals={{heads: {options.heads}, frozen: {frozen}}}"
        runs[name] = train(name, "model", steps // 3, "linear", rate, f"training.init={runs[before]}", heads)
    return runs


def distilled(run: Path, folder: Path) -> str:
    """The training text with the model's own translations, which are easier to guess (Kim 2016; Stern 2018, 6)."""
    model = regard.load(run)
    sources = [source for source, _ in read_pairs(read_recipe(run).data.train, model.languages)]
    files = [folder / "distilled.en", folder / "distilled.de"]
    if not files[1].exists():
        files[0].write_text("\n".join(sources) + "\n", encoding="utf-8")
        outputs = model.translate(sources, Greedy(), batch_tokens=32768)
        files[1].write_text("\n".join(outputs) + "\n", encoding="utf-8")
    return f"[{files[0]}, {files[1]}]"


class Contestant:
    """A search of a model, which counts the time inside the decoder."""

    def __init__(self, model: Any, search: DecodingConfig) -> None:
        self.model, self.search, self.inside = model, search, 0.0
        self.engine, self.plain = model.engine, type(model.engine).decode

    def translate(self, lines: list[str]) -> list[str]:
        def decode(*given: Any, **keys: Any) -> Any:
            began = clock()
            found = self.plain(self.engine, *given, **keys)
            self.inside += clock() - began
            return found

        self.engine.decode = decode
        return self.model.translate(lines, self.search, warn=lambda sentence: None)


def contestants(runs: dict[str, Path], options: Any) -> dict[str, Contestant]:
    models = {
        name: regard.load(path, options.device, options.precision) for name, path in runs.items() if name != "student"
    }
    model, tokens = models["run"], options.tokens
    searches: dict[str, tuple[Any, DecodingConfig]] = {"greedy": (model, Greedy())}
    for name in ("frozen", "along"):
        if name in models:
            searches[f"greedy, {name}"] = models[name], Greedy()
            searches[f"blockwise, {name}"] = models[name], Blockwise()
    if "student" in runs:
        searches["speculative, student"] = model, Speculative(draft=str(runs["student"]), tokens=tokens)
    layers = max(1, len(model.model.decoder) // 3)
    if layers < len(model.model.decoder):
        searches[f"speculative, layers({layers})"] = model, Speculative(draft=f"layers({layers})", tokens=tokens)
    searches["speculative, ngrams"] = model, Speculative(tokens=tokens)
    return {name: Contestant(*each) for name, each in searches.items()}


def measure(entries: dict[str, Contestant], lines: list[str], batch: int, rounds: int) -> list[dict[str, Any]]:
    """All by turns; a first round warms up, and captures what is captured."""
    calls = [lines[n : n + batch] for n in range(0, len(lines), batch)]
    inside: dict[str, list[float]] = {name: [] for name in entries}
    whole: dict[str, list[float]] = {name: [] for name in entries}
    said: dict[str, list[str]] = {}
    for turn in range(rounds + 1):
        for name, each in entries.items():
            each.inside, began = 0.0, clock()
            said[name] = [text for call in calls for text in each.translate(call)]
            if turn:
                whole[name].append(clock() - began)
                inside[name].append(each.inside)
    rows = []
    for name, each in entries.items():
        own = f"greedy, {name.split(', ')[1]}" if name.startswith("blockwise") else "greedy"
        found = each.model.acceptance(each.search)
        row = {"search": name, "batch": batch, "decoder_s": statistics.median(inside[name]),
               "whole_s": statistics.median(whole[name]),
               "same": sum(a == b for a, b in zip(said[own], said[name], strict=True)) / len(lines)}  # fmt: skip
        row["decoder_times"] = statistics.median(inside[own]) / row["decoder_s"]
        row["whole_times"] = statistics.median(whole[own]) / row["whole_s"]
        rows.append(row | (found.json() if found else {}))
    return rows


def logit_gaps(model: Any, lines: list[str], searches: dict[str, DecodingConfig]) -> dict[str, list[float]]:
    """For every line whose tokens differ from greedy search's: how far apart the two tokens' logits are, where the
    lines part, in a forward pass of the same weights."""
    expected = [best[0].tokens for best in model.nbest(lines, 1, Greedy())]
    gaps = {}
    for name, search in searches.items():
        gaps[name] = []
        for line, ours, theirs in zip(lines, expected, model.nbest(lines, 1, search), strict=True):
            one, two = ([*tokens, model.symbols.eos] for tokens in (ours, theirs[0].tokens))
            if one == two:
                continue
            place = next(n for n in range(len(one)) if one[n] != two[n])
            batch = model._sources(model.vocabulary.source.encode_batch([line]), None, [0], [0])
            with torch.inference_mode():
                state = model.model.start(batch, place + 2)
                prefix = torch.tensor([[model.symbols.bos, *one[:place]]], device=model.device)
                logits = model.model.step(prefix, state)[0][0, -1]
            gaps[name].append(abs(float(logits[one[place]] - logits[two[place]])))
    return gaps


def check(options: Any) -> None:
    """The words of greedy search but where two tokens are as likely: the largest gap of logits where lines differ."""
    found = {}
    for path in (options.run, options.frozen):
        if path is not None:
            model = regard.load(path, options.device, options.precision)
            pairs = read_pairs(
                [*model.recipe.data.test, *model.recipe.data.valid, *model.recipe.data.train], model.languages
            )
            lines = list(dict.fromkeys(source for source, _ in pairs))[: options.check]
            heads = model.model.proposals is not None
            searches = {"blockwise": Blockwise()} if heads else {
                name: Speculative(draft=name, tokens=options.tokens) for name in ("ngrams", "layers(1)")}  # fmt: skip
            for name, gaps in logit_gaps(model, lines, searches).items():
                found[name] = {"lines": len(lines), "different": len(gaps), "largest_gap": max(gaps, default=0.0)}
                largest = max(gaps, default=0.0)
                print(f"{name}: {len(gaps)} of {len(lines)} lines differ, logits apart by at most {largest:.2g}")
    write_json(options.json, found)


def parser() -> Any:
    parser = arguments(__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precision", default="float32", choices=("float32", "bf16"))
    parser.add_argument("--folder", type=Path, default=Path("runs/parallel"), help="for what is trained here")
    for name in ("run", "student", "frozen", "along"):
        parser.add_argument(f"--{name}", type=Path, metavar="RUN", help="instead of training")
    parser.add_argument("--steps", type=int, default=3000, help="of the model; heads have a third of them")
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=4, help="guesses of a speculative search")
    parser.add_argument("--distil", action="store_true", help="student and heads learn from the model's translations")
    parser.add_argument("--check", type=int, metavar="LINES", help="instead: of --run and --frozen, where words differ")
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--rounds", type=int, default=3)
    return parser


def main() -> None:
    options = parser().parse_args()
    if options.check:
        check(options)
        return
    entries = contestants(trained(options, options.folder.absolute()), options)
    model = entries["greedy"].model
    recipe = model.recipe
    lines = [source for source, _ in read_pairs(recipe.data.test or recipe.data.valid, model.languages)][
        : options.lines
    ]
    print(f"{hardware()}, {len(lines)} lines, {options.precision}")
    print(f"{'search':26} {'batch':>5} {'decoder, s':>10} {'×':>5} {'whole, s':>9} {'×':>5} {'same':>6}  tokens a step")
    rows = []
    for batch in options.batch:
        for row in measure(entries, lines, batch, options.rounds):
            rows.append(row)
            shares = " ".join(f"{share:.0%}" for share in row.get("acceptance_by_position", []))
            print(f"{row['search']:26} {batch:5} {row['decoder_s']:10.2f} {row['decoder_times']:5.2f} "
                  f"{row['whole_s']:9.2f} {row['whole_times']:5.2f} {row['same']:6.1%}  {row.get('gain', 1):.2f} "
                  f"{shares}", flush=True)  # fmt: skip
    write_json(
        options.json,
        {"hardware": hardware(), "rows": rows, "options": json.loads(json.dumps(vars(options), default=str))},
    )


if __name__ == "__main__":
    main()

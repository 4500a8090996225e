"""What the ways with long texts gain: leads from many passages, answers far into a text, a memory beside windows.

    python benchmarks/long_tasks.py leads [seed=1 …] --arm t-dmca --length 2000 --choose extract --out FOLDER
    python benchmarks/long_tasks.py language-model [seed=1 …] --arm t-dmca --out FOLDER
    python benchmarks/long_tasks.py answers [seed=1 …] --arm bigbird --init runs/minilm --out FOLDER
    python benchmarks/long_tasks.py memory [seed=1 …] --out FOLDER

Each trains a model (a finished run in FOLDER is read, a stopped one goes on) and measures it; KEY=VALUE change the
recipe, as `training.steps=20` for a try in small. `leads`: 20,000 tokens of passages are drawn for each article of
WikiText-2, of which --length are read, the first or the extracted ones; −log p of a token of the lead, with the
interval of 1,000 bootstrap samples of articles, and beside --against FILE (a --json of another arm) that of the
difference; --init begins from what `language-model` trained of WikiText-2 and stories for t-d or t-dmca. `answers`:
paragraphs of SQuAD's articles joined, questions whose answer begins after the 512th word; the arm `short` reads 512
pieces and every way of `long` is tried, the others read --length pieces at once. `memory`: a Transformer-XL on
WikiText-2 reads segments with its memory, the same model without, and in windows that slide by 8.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from common import arguments, hardware, train_recipe, write_json

ARMS = {"t-dmca": "long-tdmca", "t-d": "long-td", "t-ed": "long-ted", "seq2seq": "long-seq2seq"}
CHOOSE = {"truncate": "truncate", "extract": "{kind: extract, by: tfidf}"}
WAYS = ["truncate", "{kind: truncate, keep: tail}", "{kind: truncate, keep: both}", "extract",
        "{kind: extract, by: centrality}", "{kind: extract, by: attention}", "segments"]  # fmt: skip
LONG_ARMS: dict[str, list[str]] = {
    "short": [],
    "full": [],
    "bigbird": ["model.attention.pattern=bigbird"],
    "linformer": ["model.attention.compress={{kind: linformer, length: {length}, size: 256}}"],
}
DRAWN, FAR, SAMPLES = 20_000, 512, 1000
MEMORY = [
    "task={kind: lm, documents: file, boundaries: marked, length: 64, stride: 64}",
    "model={kind: lm, layers: 8, size: 384, inner: 1152, heads: 6, dropout: 0.3, attention: {dropout: 0.1}, "
    "position: transformer_xl, memory: 64}",
    "training={steps: 8000, tokens_per_batch: 4096, clip: 0.25, precision: bf16, schedule: {kind: cosine, peak: 5e-4, "
    "warmup: 400}, validation: {every: 2000}, checkpoints: {every: 2000, keep: 1}}",
]
PRETRAINING = (
    "training={steps: 4000, tokens_per_batch: 16384, clip: 1.0, precision: bf16, schedule: {kind: cosine, peak: 1e-3, "
    "warmup: 400}, validation: {every: 1000}, checkpoints: {every: 1000, keep: 1}}"
)
Row = dict[str, Any]


def bootstrap(values: np.ndarray, weights: np.ndarray) -> tuple[float, float, float]:
    """Σ values / Σ weights, and the ends of its 95% interval over samples of the rows."""
    chosen = np.random.default_rng(0).integers(len(values), size=(SAMPLES, len(values)))
    means = values[chosen].sum(1) / weights[chosen].sum(1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(values.sum() / weights.sum()), float(low), float(high)


# --- leads ---------------------------------------------------------------------------------------------------------


def leads(options: argparse.Namespace) -> Row:
    import regard
    from regard.tasks.translation import held_out_pairs

    keys = [f"task.leads.tokens={max(DRAWN, options.length)}", f"task.long={CHOOSE[options.choose]}"]
    keys += [f"data.filters.max_length={options.length}", f"training.tokens_per_batch={max(8192, 2 * options.length)}"]
    keys += ["decoding={kind: greedy, max_ratio: 0.0, max_extra: 50}"]
    keys += [f"training.init={options.init}", *options.keys] if options.init else options.keys
    trained = train_recipe(ARMS[options.arm], keys, options.out, options.device, test=False)
    translator: Any = regard.load(options.out, options.device)
    pairs = held_out_pairs(translator, translator.recipe.data.valid)
    scored = np.array(translator.score(pairs, batch_tokens=max(8192, 2 * options.length)))
    loss, low, high = bootstrap(-scored[:, 0], scored[:, 1])
    found = {"arm": options.arm, "length": options.length, "choose": options.choose, "loss": loss, "low": low}
    found |= {"high": high, "minutes": trained["seconds"] / 60, "articles": [pair[0][:80] for pair in pairs]}
    found |= {"nats": (-scored[:, 0]).tolist(), "tokens": scored[:, 1].tolist()}
    print(f"{options.arm} at {options.length:,}, {options.choose}: {loss:.3f} nats a token ({low:.3f} … {high:.3f})")
    if options.against:
        other = json.loads(options.against.read_text(encoding="utf-8"))
        if other["tokens"] != found["tokens"]:
            raise SystemExit(f"long_tasks.py: {options.against} is of other leads or another vocabulary")
        found["difference"] = bootstrap(-scored[:, 0] - np.array(other["nats"]), scored[:, 1])
        print("less {arm} at {length:,}, {choose}: ".format(**other) + "{:+.3f} ({:+.3f} … {:+.3f})".format(
            *found["difference"]))  # fmt: skip
    return found


def language_model(options: argparse.Namespace) -> Row:
    """The decoder of an arm, as a language model."""
    from regard import config
    from regard import recipe as recipes

    recipe = recipes.load_recipe(ARMS[options.arm])
    model = config.to_plain(recipe.model)
    if model["kind"] != "decoder_only":
        raise SystemExit(f"long_tasks.py: {options.arm} has an encoder, and no language model to begin with")
    del model["source_weight"]
    model["kind"] = "lm"
    keys = ["task={kind: lm, documents: file, boundaries: marked, length: 1024}", f"model={json.dumps(model)}"]
    keys += [f"text={json.dumps(config.to_plain(recipe.text))}", "data.train=[wikitext-2:train, stories:train]"]
    keys += [PRETRAINING, *options.keys]
    trained = train_recipe("wikitext2-lm", keys, options.out, options.device, test=False)
    measured = trained["valid"]["metrics"]["perplexity"]["value"]
    print(f"{options.arm} as a language model: perplexity {measured:.2f}")
    return {"arm": options.arm, "perplexity": measured, "minutes": trained["seconds"] / 60}


# --- answers -------------------------------------------------------------------------------------------------------


def joined(articles: list[Row], words: int, far: bool) -> Iterator[Row]:
    """Paragraphs of an article joined to texts of about so many words; if `far`, only late questions are kept."""
    for article in articles:
        texts: list[Row] = []
        for paragraph in article["paragraphs"]:
            if not texts or len(texts[-1]["context"].split()) + len(paragraph["context"].split()) > words:
                texts.append({"context": "", "qas": []})
            text = texts[-1]
            begin = len(text["context"]) + 2 * bool(text["context"])
            text["context"] += ("\n\n" if text["context"] else "") + paragraph["context"]
            for question in paragraph["qas"]:
                answers = [one | {"answer_start": one["answer_start"] + begin} for one in question["answers"]]
                if not far or all(len(text["context"][: one["answer_start"]].split()) >= FAR for one in answers):
                    text["qas"].append(question | {"answers": answers})
        yield {"title": article.get("title", ""), "paragraphs": texts}


def write_joined(folder: Path, words: int) -> None:
    from regard.data.catalog import find_set, set_folder
    from regard.data.formats import read_json_data

    home = set_folder(find_set("squad-dev-split"))
    assert home is not None
    folder.mkdir(parents=True, exist_ok=True)
    for split in ("train", "valid"):
        articles = list(joined(read_json_data(home / f"{split}.json.gz")["data"], words, split == "valid"))
        write_json(folder / f"{split}.json", {"version": "joined", "data": articles})


def answers(options: argparse.Namespace) -> Row:
    import regard
    from regard.data.config import Corpus
    from regard.data.questions import read_questions
    from regard.evaluation.squad import answer_metrics

    data = options.out.with_name(options.out.name + "-data")
    write_joined(data, round(0.7 * options.length))  # about 1.3 pieces a word
    keys = [f"training.init={options.init or 'runs/minilm'}"]
    if options.arm == "short":
        keys.append("task.length=512")
    else:
        keys.append("task.long=truncate")
        keys += [f"task.length={options.length}", f"model.position={{kind: learned, length: {options.length}}}"]
        keys += [f"data.train={data}/train.json", f"data.valid={data}/valid.json", "task.batch=8"]
        keys += [key.format(length=options.length) for key in LONG_ARMS[options.arm]]
    trained = train_recipe("squad-minilm", [*keys, *options.keys], options.out, options.device, test=False)
    answerer: Any = regard.load(options.out, options.device)
    questions = list(read_questions(Corpus(path=str(data / "valid.json"))))[: options.questions or None]
    pairs, rows = [(each.question, each.context) for each in questions], []
    answerer.answer(pairs[:8], warn=lambda sentence: None)  # compiles, allocates
    for way in WAYS if options.arm == "short" else ["truncate"]:
        start = time.perf_counter()
        found = answerer.answer(pairs, warn=lambda sentence: None, long=way)
        seconds = time.perf_counter() - start
        metrics = answer_metrics([one.text for one in found], [[span.text for span in q.answers] for q in questions])
        row = {"arm": options.arm, "long": way, "questions": len(questions), "seconds": seconds}
        rows.append(row | {name: metric["value"] for name, metric in metrics.items()})
        print("{arm} {long}: EM {exact_match:.2f}, F1 {f1:.2f}, {seconds:.1f} s".format(**rows[-1]), flush=True)
    return {"rows": rows, "minutes": trained["seconds"] / 60}


# --- a memory ------------------------------------------------------------------------------------------------------


def memory(options: argparse.Namespace) -> Row:
    import regard

    trained = train_recipe("wikitext2-lm", [*MEMORY, *options.keys], options.out, options.device, test=False)
    writer: Any = regard.load(options.out, options.device)
    length, held = writer.recipe.task.length, writer.recipe.model.memory
    ways = {"memory": {}, "segments": {"memory": 0}, "windows": {"context": length + held, "stride": 8, "memory": 0}}
    rows: list[Row] = []
    for name, how in ways.items():
        took = []
        for _ in range(1 if name == "windows" else 2):  # the first one compiles
            start = time.perf_counter()
            report = writer.recipe.task.evaluate(writer, "valid", how)
            took.append(time.perf_counter() - start)
        seconds, perplexity = min(took), report["metrics"]["perplexity"]["value"]
        rows.append({"read": name, **how, "perplexity": perplexity, "seconds": seconds})
        print(f"{name}: perplexity {perplexity:.2f}, {seconds:.1f} s", flush=True)
    with_memory, alone, sliding = rows
    found = {"gain": 1 - with_memory["perplexity"] / alone["perplexity"], "rows": rows}
    found |= {"above_windows": with_memory["perplexity"] / sliding["perplexity"] - 1}
    return found | {"times": sliding["seconds"] / with_memory["seconds"], "minutes": trained["seconds"] / 60}


# --- the command ---------------------------------------------------------------------------------------------------

WHAT: dict[str, Callable[[argparse.Namespace], Row]] = {
    "leads": leads,
    "language-model": language_model,
    "answers": answers,
    "memory": memory,
}


def parser() -> argparse.ArgumentParser:
    parser = arguments(__doc__)
    parser.add_argument("what", choices=WHAT)
    parser.add_argument("keys", nargs="*", metavar="KEY=VALUE", help="keys of the recipe to change, as seed=2")
    parser.add_argument("--out", type=Path, required=True, help="the run folder")
    parser.add_argument("--arm", default="", help=f"leads: {', '.join(ARMS)}; answers: {', '.join(LONG_ARMS)}")
    parser.add_argument("--length", type=int, default=2000, help="tokens that are read")
    parser.add_argument("--choose", choices=CHOOSE, default="truncate", help="leads: which of the passages are read")
    parser.add_argument("--against", type=Path, metavar="FILE", help="leads: what another arm wrote with --json")
    parser.add_argument("--init", help="the run to begin with; answers: runs/minilm unless given")
    parser.add_argument("--questions", type=int, default=0, help="answers: only so many")
    parser.add_argument("--device", default="auto")
    return parser


def main() -> None:
    options = parser().parse_args()
    arms = {"leads": ARMS, "language-model": ARMS, "answers": LONG_ARMS}.get(options.what)
    if arms is not None and options.arm not in arms:
        raise SystemExit(f"long_tasks.py: --arm is {options.arm!r}; write {', '.join(arms)}")
    print(hardware(), flush=True)
    write_json(options.json, WHAT[options.what](options) | {"where": hardware()})


if __name__ == "__main__":
    main()

"""The parts of `all.py`, a row of the table in docs/results.md each: what is run, what it needs, how its figures read.

A part with seeds is one run for each; its row is their mean. No run takes longer than nine minutes. `read` makes
figures of what a script wrote with `--json`. Imports nothing of regard or torch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

Figures = dict[str, Any]  # numbers by name; "signature" is that of a metric


class Target(NamedTuple):
    figure: str
    sign: str  # >= or <=
    value: float

    def __str__(self) -> str:
        return f"{self.figure} {self.sign} {self.value:,g}"

    def reached(self, figures: Figures) -> bool:
        return figures[self.figure] >= self.value if self.sign == ">=" else figures[self.figure] <= self.value


@dataclass(frozen=True)
class Part:
    name: str
    title: str
    figure: str  # the cell of the table, a format string over the figures
    script: str
    arguments: str  # {folder}: a run folder of its own, {seed}, {after}: the run folder of the part `after`
    read: Callable[[Any], Figures]
    minutes: float  # that a run is expected to take
    gpu: bool = True
    seeds: tuple[int, ...] = ()
    data: tuple[str, ...] = ()  # sets of the catalog
    libraries: tuple[str, ...] = ()
    folder: str = ""  # must be there
    program: str = ""
    after: str = ""  # another part that must have been run at this commit
    targets: tuple[Target, ...] = ()

    def needs(self) -> list[str]:
        found = ["GPU"] if self.gpu else []
        found += [f"data {name}" for name in self.data] + list(self.libraries)
        found += [f"folder {self.folder}"] if self.folder else []
        found += [self.program] if self.program else []
        return found + ([f"part {self.after} before it"] if self.after else [])

    def runs(self) -> list["Run"]:
        return [Run(self, seed) for seed in self.seeds] or [Run(self)]


class Run(NamedTuple):
    part: Part
    seed: int | None = None

    @property
    def name(self) -> str:
        return self.part.name if self.seed is None else f"{self.part.name}-{self.seed}"

    def words(self, folder: str, after: str) -> list[str]:
        """The arguments of its script."""
        return self.part.arguments.format(folder=folder, seed=self.seed, after=after).split()

    def command(self) -> str:
        """As a person types it."""
        return " ".join(
            ["python", f"benchmarks/{self.part.script}", *self.words(f"runs/{self.name}", f"runs/{self.part.after}")]
        )


# --- what the scripts write, as figures ----------------------------------------------------------------------------


def _recipe(split: str, *metrics: str) -> Callable[[Any], Figures]:
    def read(found: Any) -> Figures:
        measured = found[split]["metrics"]
        figures: Figures = {name: measured[name]["value"] for name in metrics}
        figures |= {"minutes": found["seconds"] / 60, "tokens_per_second": found.get("tokens_per_second")}
        signature = measured[metrics[0]].get("signature")
        return figures | ({"signature": signature} if signature else {})

    return read


def _marian(split: str, *metrics: str) -> Callable[[Any], Figures]:
    def read(found: Any) -> Figures:
        row = found["marian"]
        measured = row if split == "valid" else row[split]
        figures: Figures = {name: measured[name] for name in metrics}
        return figures | {"minutes": row["training_s"] / 60, "signature": measured["signature"]}

    return read


def _speed(found: Any) -> Figures:
    row = found["regard"]
    return {"tokens_per_second": row["tokens/s"], "times": row["times"], "of_peak": row["of peak"]}


def _speed_on_a_cpu(found: Any) -> Figures:
    figures = {"tokens_per_second": found["regard"]["tokens/s"], "times": found["regard"]["times"]}
    half = found.get("regard, bf16", {})  # not every processor has it
    return figures | {"bf16": half.get("tokens/s", 0.0), "bf16_times": half.get("times", 0.0)}


def _sparse(found: Any) -> Figures:
    took = {(row["pattern"], row["n"]): row["ms"] for row in found["rows"]}
    return {f"{pattern}_{n}": took["full", n] / took[pattern, n] for pattern in ("window", "bigbird")
            for n in (16_384, 65_536)}  # fmt: skip


def _long_layer(found: Any) -> Figures:
    """How time grows with the length n, as p of n^p."""
    exponents = {name.partition("(")[0]: each["ms"] for name, each in found["exponents"].items()}
    return {name: p for name, (p, _) in exponents.items()} | {f"{name}_error": e for name, (_, e) in exponents.items()}


def _long_model(found: Any) -> Figures:
    rows = {(row["mechanism"], row["n"]): row for row in found["rows"]}
    figures = {f"times_{n}": rows["full", n]["ms"] / rows["bigbird", n]["ms"] for n in (4096, 16_384, 65_536)}
    return figures | {"tokens_per_second": rows["bigbird", 16_384]["tokens_per_second"]}


def _long_decode(found: Any) -> Figures:
    rows = {(row["mechanism"].partition("(")[0], row["n"]): row for row in found["rows"]}
    return {f"{name}_{key}": rows[name, 65_536][key] for name in ("full", "window", "strided_conv") for key in
            ("ms", "mb")}  # fmt: skip


def _long_answers(found: Any) -> Figures:
    """Of the arm that reads 512 pieces every way with longer texts, by its first and last word."""
    names = [row["long"].strip("{}").replace("kind: ", "").split(", ") for row in found["rows"]]
    short = ["_".join([words[0], *(word.partition(": ")[2] for word in words[1:])]) for words in names]
    return {f"{name}_{key}": row[key] for name, row in zip(short, found["rows"], strict=True)
            for key in ("exact_match", "f1", "seconds")}  # fmt: skip


def _named(*names: str) -> Callable[[Any], Figures]:
    return lambda found: {name: found[name] for name in names}


def _decoding(engine: str, *keys: str) -> Callable[[Any], Figures]:
    def read(found: Any) -> Figures:
        return {f"beam{row['beam']}_{key}": row[key] for row in found if row["engine"] == engine for key in keys}

    return read


def _parallel(found: Any) -> Figures:
    rows = [row for row in found["rows"] if "gain" in row]
    names = [f"{row['search'].split(', ')[1].partition('(')[0]}_{row['batch']}" for row in rows]
    figures = dict(zip(names, (row["decoder_times"] for row in rows), strict=True))
    return figures | {f"{name}_gain": row["gain"] for name, row in zip(names, rows, strict=True)}


def _decoding_on_a_cpu(found: Any) -> Figures:
    ours = [row for row in found if row["engine"].startswith("regard")]
    names = [f"{row['work']} beam {row['beam']} {row['engine'].split()[-1]}".replace(" ", "_") for row in ours]
    return dict(zip(names, [row["times"] for row in ours], strict=True))


def _minilm(task: str, metric: str) -> Callable[[Any], Figures]:
    def read(found: Any) -> Figures:
        rows = {row["who"]: row for row in found["tasks"][task]["rows"]}
        quality = {"regard": rows["regard"][metric], "transformers": rows["transformers"][metric]}
        return quality | {
            "step_ms": 1000 * rows["regard"]["seconds_per_step"],
            "their_step_ms": 1000 * rows["transformers"]["seconds_per_step"],
        }

    return read


def _serving(m: Any) -> Figures:
    return {
        "texts_32": m["many"], "texts_1": m["one"], "times": m["many"] / m["one"], "p50_ms": 1000 * m["alone"],
        "p99_ms": 1000 * m["alone99"], "loaded_p99_ms": 1000 * m["load99"], "texts_lists": m["lists"],
        "of_file": m["lists"] / m["file"],
    }  # fmt: skip


def _students(found: Any) -> Figures:
    rows = {row["model"]: row for row in found["rows"]}
    named = {"teacher": "teacher", "shallow": "deep-shallow", "ssru": "ssru"}
    keys = {"bleu": "bleu", "speed": "sentences_per_second", "ms": "milliseconds", "mb": "megabytes"}
    return {f"{name}_{key}": rows[model][kept] for name, model in named.items() for key, kept in keys.items()}


def _look(found: Any) -> Figures:
    rows = found["interactions"].values()
    slowest = {key: max(row[key] for row in rows) for key in ("median_ms", "p95_ms", "busy_ms")}
    return slowest | {"page_mb": found["page_bytes"] / 1e6}


# --- the parts -----------------------------------------------------------------------------------------------------


def _minilm_part(task: str, title: str, metric: str, data: str, minutes: float) -> Part:
    shown = "regard {regard:.2f}, transformers {transformers:.2f}; a step {step_ms:.1f} and {their_step_ms:.1f} ms"
    return Part(
        f"minilm-{task}", f"Fine-tuning MiniLM on {title}, beside `transformers`",
        f"{metric.replace('f1', 'F1')}: {shown}", "finetuning.py", f"runs/minilm --task {task} --seeds {{seed}}",
        _minilm(task, metric), minutes, seeds=(1, 2, 3), data=(data,), libraries=("transformers",),
        folder="runs/minilm",
    )  # fmt: skip


def _language_pair(recipe: str, title: str, split: str, data: str, minutes: float, rate: str = "") -> list[Part]:
    """A recipe of translation, and Marian beside it; `rate` is one that post-norm residuals stand."""
    cell = "{bleu:.2f} BLEU, {chrf:.2f} chrF; {minutes:.1f} minutes of training"
    own = f" training.schedule.peak={rate}" if rate else ""
    return [
        Part(recipe, title, cell, "recipe.py", f"{recipe} seed={{seed}} --out {{folder}}",
             _recipe(split, "bleu", "chrf"), minutes, seeds=(1, 2), data=(data,)),
        Part(f"{recipe}-marian", f"{title}: Hugging Face's Marian on the same batches", cell, "versus_marian.py",
             f"{recipe} seed={{seed}}{own} --only marian --out {{folder}}", _marian(split, "bleu", "chrf"),
             min(8.5, 2 * minutes), seeds=(1, 2), data=(data,), libraries=("transformers",)),
    ]  # fmt: skip


def _sst2(name: str, title: str, recipe: str, after: str, minutes: float) -> Part:
    """Fine-tuning on all labels of SST-2 from the run of the part `after`; without one, from scratch."""
    origin = "{after}" if after else "null"
    return Part(
        f"sst2-{name}", f"SST-2, all labels: {title}", "accuracy {accuracy:.2f}", "recipe.py",
        f"{recipe} seed={{seed}} training.init={origin} --out {{folder}}", _recipe("valid", "accuracy"), minutes,
        seeds=(1, 2, 3), data=("glue/SST-2",), after=after,
    )  # fmt: skip


def _pretrained(name: str, title: str, command: str, metric: str, minutes: float, data: str, after: str = "") -> Part:
    """A model that the parts of SST-2 begin with."""
    return Part(
        f"sst2-{name}", f"For SST-2: {title}", f"{metric.replace('_', ' ')} {{{metric}:.2f}}", "recipe.py",
        f"{command} --out {{folder}}", _recipe("valid", metric), minutes, data=(data, "glue/SST-2"), after=after,
    )  # fmt: skip


_LONG = (
    "full {full:.2f} ± {full_error:.2f}, window(256) {window:.2f} ± {window_error:.2f}, BigBird {bigbird:.2f} ± "
    "{bigbird_error:.2f}, Linformer {linformer:.2f} ± {linformer_error:.2f}, strided convolution "
    "{strided_conv:.2f} ± {strided_conv_error:.2f}, a memory {memory:.2f} ± {memory_error:.2f}"
)


def _parallel_part(name: str, title: str, options: str) -> Part:
    """Trains a model, a student and heads, and decodes with each."""
    return Part(
        name, title,
        "decoder beside greedy search, batch 1: blockwise {frozen_1:.2f} × (frozen), {along_1:.2f} × (trained along); "
        "speculative {student_1:.2f} × (student), {layers_1:.2f} × (first layers), {ngrams_1:.2f} × (n-grams)",
        "parallel.py", "--precision bf16 --folder {folder}" + options, _parallel, 8, data=("multi30k",),
    )  # fmt: skip


LEADS = [(arm, length, choose) for length in (500, 2000, 11_000) for choose in ("truncate", "extract")
         for arm in ("seq2seq", "t-ed", "t-d", "t-dmca") if arm != "seq2seq" or length == 500]  # fmt: skip
LONG_ARMS = ("short", "full", "bigbird", "linformer")


def _leads_parts() -> list[Part]:
    """Every model at every length, with the first passages and with extracted ones."""
    return [
        Part(f"long-leads-{arm}-{length}-{choose}", f"Leads of WikiText-2: {arm}, {length:,} tokens, {choose}",
             "{loss:.3f} nats a token, {low:.3f} to {high:.3f}", "long_tasks.py",
             f"leads --arm {arm} --length {length} --choose {choose} --out {{folder}}", _named("loss", "low", "high"),
             3, data=("wikitext-2",)) for arm, length, choose in LEADS
    ]  # fmt: skip


def _answers_part(arm: str) -> Part:
    ways = ("truncate", "truncate_tail", "truncate_both", "extract", "extract_centrality", "extract_attention",
            "segments") if arm == "short" else ("truncate",)  # fmt: skip
    cells = [f"{{{way}_exact_match:.1f}} / {{{way}_f1:.1f}}, {{{way}_seconds:.1f}} s" for way in ways]
    labels = [f"{way.replace('_', ' ')} " if arm == "short" else "" for way in ways]
    return Part(
        f"long-answers-{arm}", f"SQuAD, answers after the first 512 words: {arm}",
        "EM / F1: " + "; ".join(label + cell for label, cell in zip(labels, cells, strict=True)), "long_tasks.py",
        f"answers --arm {arm} --length 2048 --out {{folder}}", _long_answers, 5, data=("squad-dev-split",),
        folder="runs/minilm",
    )  # fmt: skip


def _characters_part(name: str, title: str, keys: str) -> Part:
    return Part(
        name, f"WikiText-2 by characters, 24 layers, {title}",
        "{bits_per_character:.3f} bits per character; {minutes:.1f} minutes of training", "recipe.py",
        f"char-transformer model.layers=24 seed={{seed}}{keys} --out {{folder}}",
        _recipe("valid", "bits_per_character"), 5, seeds=(1, 2, 3), data=("wikitext-2",),
    )  # fmt: skip


_ALL_LABELS = "task.limit=0 training.steps=6315 training.validation.every=1000 training.checkpoints.every=1000"
_PRETRAINING = "{tokens_per_second:,.0f} tokens/s, {times:.2f} × the fastest peer, {of_peak:.0%} of peak"

PARTS = [
    Part("tatoeba", "Tatoeba en→de, `valid`, small (13.1M parameters)",
         "{bleu:.2f} BLEU; {minutes:.1f} minutes of training", "recipe.py", "tatoeba-en-de seed={seed} --out {folder}",
         _recipe("valid", "bleu", "chrf"), 4, seeds=(1, 2), data=("tatoeba-en-de",),
         targets=(Target("bleu", ">=", 44.3), Target("minutes", "<=", 4))),
    Part("tatoeba-marian", "Tatoeba en→de, Hugging Face's Marian on the same batches",
         "{bleu:.2f} BLEU; {minutes:.1f} minutes of training", "versus_marian.py",
         "tatoeba-en-de seed={seed} --only marian --out {folder}", _marian("valid", "bleu"), 6, seeds=(1, 2),
         data=("tatoeba-en-de",), libraries=("transformers",)),
    Part("students", "Students of Tatoeba en→de's model, `valid`, 1,000 lines, on its device",
         "teacher {teacher_bleu:.2f} BLEU, {teacher_speed:,.0f} sentences/s, {teacher_ms:.1f} ms, {teacher_mb:.0f} MB; "
         "deep-shallow {shallow_bleu:.2f}, {shallow_speed:,.0f}, {shallow_ms:.1f}, {shallow_mb:.0f}; "
         "ssru {ssru_bleu:.2f}, {ssru_speed:,.0f}, {ssru_ms:.1f}, {ssru_mb:.0f}", "students.py",
         "{after} --students deep-shallow ssru --out {folder}", _students, 8.5, data=("tatoeba-en-de",),
         after="tatoeba-1"),
    Part("training-base", "Training, Transformer base",
         "{tokens_per_second:,.0f} target tokens/s, {times:.2f} × the fastest peer, {of_peak:.0%} of peak",
         "training.py", "--preset base", _speed, 3, libraries=("transformers",),
         targets=(Target("tokens_per_second", ">=", 900_000), Target("times", ">=", 2.2))),
    Part("training-big", "Training, Transformer big", "{tokens_per_second:,.0f} target tokens/s, {of_peak:.0%} of peak",
         "training.py", "--preset big --only regard", _speed, 2, targets=(Target("of_peak", ">=", 0.57),)),
    Part("language-model", "Training, GPT-2 small (124M), 1,024 tokens", _PRETRAINING, "pretraining.py", "--model lm",
         lambda found: _speed(found["lm"]), 3, libraries=("transformers",)),
    Part("bert", "Pretraining, BERT base, 512 tokens", _PRETRAINING, "pretraining.py", "--model bert",
         lambda found: _speed(found["bert"]), 3, libraries=("transformers",)),
    Part("sparse-attention", "Sparse against full attention, 16,384 and 65,536 tokens",
         "window(256) {window_16384:.1f} × and {window_65536:.1f} ×, BigBird {bigbird_16384:.1f} × and "
         "{bigbird_65536:.1f} × as fast", "sparse.py", "", _sparse, 1),
    Part("long-layer", "A layer at 512 to 65,536 tokens: exponent of the length in its time", _LONG, "long.py", "",
         _long_layer, 2),
    Part("long-model", "Training BERT base on long rows, BigBird beside full attention",
         "{times_4096:.2f} × as fast at 4,096 tokens, {times_16384:.1f} × at 16,384 with {tokens_per_second:,.0f} "
         "tokens/s, {times_65536:.1f} × at 65,536", "long.py", "--model", _long_model, 4,
         targets=(Target("times_16384", ">=", 2.6), Target("times_65536", ">=", 10))),
    Part("long-decode", "A step of decoding after 65,536 tokens, GPT-2 small, four rows",
         "full {full_ms:.1f} ms, {full_mb:,.0f} MB of caches; window(256) {window_ms:.1f} ms, {window_mb:,.0f} MB; "
         "strided convolution {strided_conv_ms:.1f} ms, {strided_conv_mb:,.0f} MB", "long.py", "--decode", _long_decode,
         3),
    *_leads_parts(),
    *(_answers_part(arm) for arm in LONG_ARMS),
    Part("long-memory", "WikiText-2 read by segments of 64 with a memory of 64",
         "perplexity {gain:.1%} below segments side by side, {above_windows:+.2%} from windows that slide by 8, "
         "{times:.0f} × as fast as these", "long_tasks.py", "memory seed={seed} --out {folder}",
         _named("gain", "above_windows", "times"), 5, seeds=(1, 2, 3), data=("wikitext-2",),
         targets=(Target("gain", ">=", 0.04), Target("above_windows", "<=", 0.005), Target("times", ">=", 20))),
    _characters_part("long-characters", "with the auxiliary losses", ""),
    _characters_part("long-characters-plain", "without", " model.layer_losses=false model.targets=1"),
    Part("decoding-64", "Decoding, base, batch 64, beam 4",
         "{beam4_tokens_per_second:,.0f} tokens/s, {beam4_times:.1f} × Hugging Face generate", "decoding.py",
         "--device cuda --beam 4 --batch 64 --file 0", _decoding("regard, bf16", "tokens_per_second", "times"), 2,
         libraries=("transformers",),
         targets=(Target("beam4_tokens_per_second", ">=", 28_000), Target("beam4_times", ">=", 5.5))),
    Part("decoding-1", "Decoding, base, one sentence at a time",
         "beam 1: {beam1_tokens_per_second:,.0f} tokens/s, {beam1_times:.1f} ×, p50 {beam1_p50_ms:.1f} ms; "
         "beam 4: {beam4_tokens_per_second:,.0f}, {beam4_times:.1f} × Hugging Face generate, p50 {beam4_p50_ms:.1f} ms",
         "decoding.py", "--device cuda --beam 1 4 --batch 1 --file 0",
         _decoding("regard, bf16", "tokens_per_second", "times", "p50_ms"), 4, libraries=("transformers",)),
    _parallel_part("parallel-multi30k", "Parallel decoding, base, Multi30k", ""),
    _parallel_part("parallel-distilled", "Parallel decoding, base, Multi30k; own translations", " --distil"),
    Part("multi30k", "Multi30k en→de, `test_2016_flickr`, 7.8M parameters",
         "{bleu:.2f} BLEU, {chrf:.2f} chrF, {ter:.2f} TER; {minutes:.1f} minutes of training", "recipe.py",
         "multi30k-en-de seed={seed} --out {folder}", _recipe("test", "bleu", "chrf", "ter"), 5, seeds=(1, 2, 3),
         data=("multi30k",)),
    *_language_pair("multi30k-fr-en", "Multi30k fr→en, raw text, `test_2016_flickr`", "test", "multi30k", 5, "1e-3"),
    *_language_pair("tatoeba-en-zh", "Tatoeba en→zh, `valid`", "valid", "tatoeba-en-zh", 3, "1e-3"),
    *_language_pair("tatoeba-zh-en", "Tatoeba zh→en, `valid`", "valid", "tatoeba-en-zh", 3, "1e-3"),
    *_language_pair("classical-modern-zh", "Classical → modern Chinese, `valid`", "valid", "classical-modern-zh", 4),
    Part("tinyshakespeare", "tinyshakespeare, 10.7M parameters", "{loss:.3f} nats a character", "recipe.py",
         "tinyshakespeare --out {folder}", _recipe("valid", "loss"), 3, data=("tinyshakespeare",)),
    _minilm_part("sst2", "SST-2", "accuracy", "glue/SST-2", 4),
    _minilm_part("mrpc", "MRPC", "accuracy", "glue/MRPC", 1),
    _minilm_part("conll2003", "CoNLL-2003", "f1", "conll2003", 2),
    _minilm_part("squad", "SQuAD's shared split", "f1", "squad-dev-split", 3),
    _minilm_part("dream", "DREAM", "accuracy", "dream", 2),
    _pretrained("gpt-pretraining", "GPT of 4 layers of 512 on WikiText-2", "gpt-small-wikitext2", "perplexity", 4,
                "wikitext-2"),
    _pretrained("bert-pretraining", "BERT-small on WikiText-2", "bert-small-wikitext2", "gap_accuracy", 8,
                "wikitext-2"),
    _pretrained("ulmfit-pretraining", "LSTM language model on WikiText-2", "ulmfit-wikitext2", "perplexity", 8,
                "wikitext-2"),
    _pretrained("ulmfit-text", "that one tuned to SST-2's text", "ulmfit-sst2-lm training.init={after}", "perplexity",
                4, "wikitext-2", "sst2-ulmfit-pretraining"),
    _sst2("gpt", "a pretrained GPT", "sst2-gpt", "sst2-gpt-pretraining", 3),
    _sst2("gpt-scratch", "the same GPT from scratch", "sst2-gpt", "", 3),
    _sst2("bert", "BERT-small", "sst2-bert-small", "sst2-bert-pretraining", 3),
    _sst2("ulmfit", "ULMFiT", f"ulmfit-sst2 {_ALL_LABELS}", "sst2-ulmfit-text", 8),
    Part("quickstart", "Quickstart, the embedded corpus",
         "{exact_match:.2f}% exact match, {pronouns:.2f}% of pronouns; {tokens_per_second:,.0f} tokens/s in training",
         "recipe.py", "quickstart --device cpu --out {folder}", _recipe("test", "exact_match", "pronouns"), 3,
         gpu=False),
    Part("training-tiny", "Training, Transformer tiny",
         "float32: {tokens_per_second:,.0f} target tokens/s, {times:.2f} × the fastest peer; "
         "bf16: {bf16:,.0f}, {bf16_times:.2f} ×", "training.py", "--preset tiny", _speed_on_a_cpu, 2, gpu=False,
         libraries=("transformers",)),
    Part("decoding-cpu", "Decoding, base, × Hugging Face generate in float32",
         "batch 1: beam 1 {batch_1_beam_1_float32:.2f} ×, bf16 {batch_1_beam_1_bf16:.2f} ×, beam 4 "
         "{batch_1_beam_4_float32:.2f} ×, bf16 {batch_1_beam_4_bf16:.2f} ×; batch 64: beam 1 "
         "{batch_64_beam_1_float32:.2f} ×, bf16 {batch_64_beam_1_bf16:.2f} ×, beam 4 {batch_64_beam_4_float32:.2f} ×, "
         "bf16 {batch_64_beam_4_bf16:.2f} ×", "decoding.py", "--device cpu", _decoding_on_a_cpu, 6.5, gpu=False,
         libraries=("transformers",)),
    Part("long-cpu", "A layer at 512 to 8,192 tokens: exponent of the length in its time", _LONG, "long.py", "",
         _long_layer, 3, gpu=False),
    Part("serving", "Serving the quickstart's model",
         "one client {texts_1:,.0f} texts/s, p50 {p50_ms:.0f}, p99 {p99_ms:.0f} ms; 32 clients {texts_32:,.0f}, "
         "{times:.1f} ×; 70% of that: p99 {loaded_p99_ms:.0f} ms; 16 texts a request: {texts_lists:,.0f}, "
         "{of_file:.2f} of `regard translate`", "serving.py", "{after} --seconds 4 --rounds 5", _serving, 4, gpu=False,
         libraries=("psutil", "fastapi", "uvicorn", "prometheus_client"), after="quickstart"),
    Part("batches", "Batches of 4,096 tokens, Multi30k",
         "{target:.1%} of target tokens are real, {both:.1%} of both sides", "batches.py", "",
         lambda found: {"target": found["target"], "both": found["both"]}, 1, gpu=False, data=("multi30k",)),
    Part("preparing", "Preparing 2,000,000 pairs", "{seconds:.0f} s, {peak_gib:.2f} GiB at most", "preparing.py", "",
         lambda found: {"seconds": found["seconds"], "peak_gib": found["peak_gib"]}, 4, gpu=False),
    Part("vocabulary", "Unigram vocabularies of en, de and zh, held-out text",
         "at most {more:.2%} more tokens than sentencepiece's own", "vocabulary.py", "",
         lambda found: {"more": max(row["more"] for row in found["rows"])}, 4, gpu=False,
         data=("multi30k", "wikitext-2", "classical-modern-zh"), libraries=("sentencepiece",),
         targets=(Target("more", "<=", 0.03),)),
    Part("look", "The page of `regard look`, 60 × 60 tokens, 6 layers, 8 heads",
         "slowest interaction: median {median_ms:.0f} ms, p95 {p95_ms:.0f} ms, of which the page computes "
         "{busy_ms:.0f}; page {page_mb:.1f} MB", "look.py", "", _look, 2, gpu=False, libraries=("playwright",),
         program="/usr/bin/chromium", targets=(Target("busy_ms", "<=", 100),)),
]  # fmt: skip

"""Every choice that the package offers, as one table made from the classes themselves: names, formulas, papers.

`regard info --mechanisms` prints it; docs/mechanisms.md says more about each, and `python -m regard.mechanisms` writes
the table of what combines with what into it.
"""

import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import MISSING, asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from rich.padding import Padding as Indented
from rich.text import Text

from regard.config import Choice, choices
from regard.config.registry import SLOTS
from regard.console import Console
from regard.language import language, localise
from regard.models.transformer import AttentionsConfig, PositionsConfig, TransformerConfig
from regard.nn.attention import AttentionConfig
from regard.nn.layout import AttentionContext, Layout, Tree
from regard.nn.pattern import Document, Padding
from regard.nn.record import ROLES
from regard.tasks import TaskConfig


@dataclass(frozen=True)
class Mechanism:
    id: str  # row of the list of mechanisms
    slot: str
    name: str
    meaning: str
    formula: str
    paper: str
    config: str  # what chooses it, as one types it after a recipe; `always` where there is no choice
    file: str


BLOCKS = [  # choices of the Transformer that are no classes with a `kind`
    ("I1", "embedding", "scaled", "Word vectors are multiplied by √D, to match the positions.", "√D · E[w]",
     "Vaswani 2017, 3.4", "model.scale_embedding=true", "nn/embedding.py"),
    ("I2", "embedding", "shared", "One matrix for source, target and output, or for target and output.",
     "logits = x Eᵀ", "Press 2017", "model.share=all", "nn/embedding.py"),
    ("I3", "embedding", "joined", "Positions are added to word vectors, or put beside them and projected.",
     "x + p, or W [x; p]", "Vaswani 2017, 3.5", "model.position.join=concat",
     "nn/position/join.py"),
    ("B1", "projection", "separate", "Queries and keys have matrices of their own; d_k and d_v are free.",
     "softmax(QW_q (KW_k)ᵀ / √d_k) VW_v", "Vaswani 2017, 3.2.2", "model.attention.projection=separate",
     "nn/multi_head.py"),
    ("B2", "projection", "shared", "One matrix for queries and keys: scores are symmetric.", "xᵢᵀWWᵀxⱼ",
     "Kitaev 2020, 2", "model.attention.projection=shared", "nn/multi_head.py"),
    ("B7", "projection", "heads", "Encoder, decoder and cross-attention may differ in their number of heads.",
     "d_k = d_v = D/H", "Vaswani 2017, 3.2.2", "model.attention.cross.heads=8", "nn/multi_head.py"),
    ("B7", "projection", "kv_heads", "Several heads of queries share the keys and values of one: the cache is smaller.",
     "softmax(Q_h K_gᵀ / √d_k) V_g, g = ⌊h · G/H⌋", "Ainslie 2023", "model.attention.kv_heads=2", "nn/multi_head.py"),
    ("B7", "projection", "qk_norm", "Queries and keys of each head are normalised: scores cannot grow without bound.",
     "RMSNorm(q)ᵀ RMSNorm(k) / √d_k", "Henry 2020", "model.attention.qk_norm=true", "nn/multi_head.py"),
    ("B3", "feed_forward", "dense", "A network of two layers at every place, with a choice of activation.",
     "max(0, xW₁ + b₁)W₂ + b₂", "Vaswani 2017, eq. 2", "model.activation=gelu", "nn/feed_forward.py"),
    ("B3", "feed_forward", "swiglu", "The same with a gate.", "(swish(xW₁) ⊙ xW₃)W₂", "Shazeer 2020",
     "model.activation=swiglu", "nn/feed_forward.py"),
    ("B3", "feed_forward", "none", "Attention alone, for the comparison.", "—", "Dong 2021",
     "model.feed_forward=none", "nn/feed_forward.py"),
    ("B4", "residual", "post_norm", "The paper's order: add, then normalise.", "norm(x + f(x))", "Vaswani 2017, 3.1",
     "model.residual=post_norm", "nn/layers.py"),
    ("B4", "residual", "pre_norm", "Normalise first: easier to train deep.", "x + f(norm(x))", "Xiong 2020",
     "model.residual=pre_norm", "nn/layers.py"),
    ("B4", "residual", "none", "Nothing passes by the sub-layer, for the comparison.", "norm(f(x))", "He 2016",
     "model.residual=none", "nn/layers.py"),
    ("B5", "norm", "layer", "Over the features of each place.", "(x − mean) / √(var + ε)", "Ba 2016",
     "model.norm=layer", "nn/norm.py"),
    ("B5", "norm", "rms", "Over the features of each place, by their size alone.", "x / √(mean(x²) + ε)",
     "Zhang 2019, 4", "model.norm=rms", "nn/norm.py"),
    ("B5", "norm", "none", "No norm at all, for the comparison.", "x", "—", "model.norm=none", "nn/norm.py"),
    ("B5", "norm", "batch", "Over all real places of the batch, for the comparison.", "the same, by feature",
     "Ioffe 2015", "model.norm=batch", "nn/norm.py"),
    ("A10", "recurrence", "memory", "Every layer also sees what it read before the block, without gradients.",
     "k, v from [stop(x_τ−1); x_τ]", "Dai 2019, 3.2",
     "task.kind=lm task.boundaries=marked model.kind=lm model.position=transformer_xl model.memory=128",
     "nn/cache/segment_memory.py"),
    ("A9", "losses", "layer_losses", "Layers below the last predict too, until their share of the training is done.",
     "Σ_l L_l over layers l of n with (step − 1)/steps < l/2n, and l = n", "Al-Rfou 2018, 3",
     "task.kind=lm model.kind=lm model.layer_losses=true", "models/decoders/auxiliary.py"),
    ("A9", "losses", "targets", "Every position predicts more than the next token, each by a classifier of its own.",
     "L + Σ_k further_weight · −log p_k(w_t+k | w_≤t), k = 2 … targets", "Al-Rfou 2018, 3",
     "task.kind=lm model.kind=lm model.targets=2", "models/decoders/auxiliary.py"),
    ("A9", "losses", "last", "The last position of a block alone is learned from, for the comparison.",
     "L = −log p(w_T+1 | w_1 … w_T)", "Al-Rfou 2018, 3",
     "task.kind=lm model.kind=lm task.learn=last", "examples/blocks.py"),
    ("A13", "rates", "slanted_triangle", "The rate rises for a short while and falls for the rest.",
     "peak · (1 + p · (ratio − 1)) / ratio; p = t/cut, then 1 − (t − cut)/(cut · (1/cut_frac − 1))",
     "Howard 2018, eq. 3", "training.schedule.kind=slanted_triangle", "training/schedule.py"),
    ("A13", "rates", "layerwise", "Lower layers learn at smaller rates, and begin one after the other.",
     "η_l−1 = η_l / 2.6, or 0 while it is frozen", "Howard 2018, 3.2 and 3.3",
     "training.layerwise.divide=2.6", "training/config.py"),
]  # fmt: skip


FIRST_TASKS = ("translation", "lm", "pretraining")  # by which models are learned from nothing
ATTENTION_SLOTS = ("score", "position", "pattern", "compress", "normalise")
KEYS = {  # of slots that docs/recipes.md describes: here are only what plugins add
    "task": "task.kind",
    "text": "text.kind",
    "decoding": "decoding.kind",
    "optimiser": "training.optimiser.kind",
    "schedule": "training.schedule.kind",
    "long": "task.long.kind",
    "callback": "training.callbacks.0.kind",
    "metric": "evaluation.metrics.0.kind",
}


def all_mechanisms() -> list[Mechanism]:
    """All choices, by slot."""
    mechanisms = []
    for slot in ATTENTION_SLOTS:
        always = (Padding, Document) if slot == "pattern" else ()
        mechanisms += [_mechanism(slot, cls.__name__.lower(), cls, "always") for cls in always]
        mechanisms += [
            _mechanism(slot, name, cls, _assignment(slot, choice)) for name, cls, choice in slot_choices(slot)
        ]
    mechanisms += [Mechanism(*row) for row in BLOCKS]
    mechanisms += [_mechanism("model", kind, cls, _model_assignment(kind)) for kind, cls in by_id("model")]
    key = "model.decoder_self"
    others = [(kind, cls) for kind, cls in by_id("decoder_self") if kind != "attention"]  # which the slots above are
    mechanisms += [_mechanism("decoder_self", kind, cls, f"{key}={kind}") for kind, cls in others]
    key = "model.kind=conv model.encoder"
    mechanisms += [_mechanism("encoder", kind, cls, f"{key}={kind}") for kind, cls in by_id("encoder")]
    plugins = [(slot, kind, cls) for slot in KEYS if slot in SLOTS for kind, cls in choices(slot).items() if cls.plugin]
    return mechanisms + [_mechanism(slot, kind, cls, f"{KEYS[slot]}={kind}") for slot, kind, cls in plugins]


def by_id(slot: str) -> list[tuple[str, type[Choice]]]:
    """The choices of a slot in the order of their numbers, and those without one at the end."""
    return sorted(choices(slot).items(), key=lambda item: [int(n) for n in re.findall(r"\d+", item[1].id)] or [1000])


def _model_assignment(model: str) -> str:
    """A model that does not translate comes with its task: what it learns first, if it has no other use."""
    tasks = [kind for kind, cls in choices(TaskConfig).items() if model in cls.models]
    first = next((kind for kind in (*FIRST_TASKS, *tasks) if kind in tasks), "")
    return f"model.kind={model}" if first in ("translation", "") else f"task.kind={first} model.kind={model}"


def slot_choices(slot: str) -> Iterator[tuple[str, type[Choice], object]]:
    """The choices of a slot of attention: name, class and value in a config."""
    if slot == "pattern":
        yield from ((name, cls, example_pattern(name)) for name, cls in by_id(slot))
    else:
        yield from ((kind, cls, _default(cls)) for kind, cls in by_id(slot))


def _default(cls: Any) -> object:
    """The choice with its defaults; the class itself where an option has none."""
    needed = any(f.init and f.default is MISSING and f.default_factory is MISSING for f in fields(cls))
    return cls if needed else cls()


def _mechanism(slot: str, name: str, cls: type[Choice], config: str) -> Mechanism:
    meaning = (inspect.getdoc(cls) or "").partition("\n")[0]
    home = cls.plugin or Path(inspect.getfile(cls)).as_posix().rpartition("/regard/")[2]
    return Mechanism(cls.id, slot, name, meaning, cls.formula, cls.paper, config, home)


def _assignment(slot: str, choice: object) -> str:
    """The assignment that chooses it: everywhere, or in the one place that can have it."""
    if isinstance(choice, type) and issubclass(choice, Choice):  # it needs options
        return (
            f"model.position.kind={choice.kind}" if slot == "position" else f"model.attention.{slot}.kind={choice.kind}"
        )
    key, places = ("model.position", ROLES[:2]) if slot == "position" else ("model.attention", ROLES)
    fitting = [place for place in places if placement_error(slot, choice, place) is None]
    parts = [key] if len(fitting) == len(places) else [key, fitting[0]]
    parts += [] if slot == "position" else [slot]
    name = (
        f'"{choice}"'
        if "(" in str(choice) and slot == "pattern"
        else choice.kind
        if isinstance(choice, Choice)
        else choice
    )
    return f"{'.'.join(parts)}={name}"


def example_pattern(name: str) -> str:
    """A pattern as one would write it: the numbers that it needs, at 2."""
    needed = [f for f in fields(choices("pattern")[name]) if f.init and f.default is MISSING]  # type: ignore[arg-type]
    return f"{name}({', '.join('2' for _ in needed)})" if needed else name


def print_mechanisms(as_json: bool) -> None:
    """Every choice with its meaning, formula and paper, a table for each slot."""
    mechanisms = all_mechanisms()
    if as_json:
        print(json.dumps([asdict(m) for m in mechanisms], indent=1, ensure_ascii=False))
        return
    console = Console(highlight=False, markup=False)
    for slot in dict.fromkeys(m.slot for m in mechanisms):
        chosen = [m for m in mechanisms if m.slot == slot]
        heading = slot if language() == "en" else f"{localise(slot)} {slot}"
        console.print(f"\n{heading}", style="bold", end="")
        console.print(f"   {chosen[-1].config}", style="dim")
        for m in chosen:
            source = (f"{localise(m.paper)} · {m.id}", "dim")
            console.print(Text.assemble((f"  {m.name:<12}", "cyan"), f" {localise(m.formula)}   ", source))
            console.print(Indented(localise(m.meaning), (0, 0, 0, 15)))


# --- what combines with what ---------------------------------------------------------------------------------------


LONGEST = 256  # places, in the recipe's checks
LENGTHS = {"pattern": 2048}  # places of the sentence that is tried; a sparse pattern is worth its kernel on long ones


def placement_error(slot: str, choice: object, place: str) -> str | None:
    """Why a choice cannot stand in a place of a Transformer; None where it can."""
    if slot == "position" and place == "cross":
        return "positions of source and target have nothing to do with each other"
    try:
        _with(slot, choice, place).check(LONGEST, LONGEST)
    except ValueError as error:
        return str(error)
    return None


def _with(slot: str, choice: Any, place: str) -> TransformerConfig:
    base = TransformerConfig(layers=1, size=16, inner=16, heads=2)
    if slot == "position":
        return replace(base, position=replace(PositionsConfig(), **{place: choice}))
    attention = replace(AttentionConfig(), **{slot: choice})
    return replace(base, attention=replace(AttentionsConfig(), **{place: attention}))


@cache
def _kernel(model: TransformerConfig, place: str, length: int) -> str:
    """By trying it on a sentence, without the reason that no faster one serves."""
    net = model.build(8, 8).eval()
    layers: dict[str, Any] = {
        "encoder": net.encoder[0].attention,
        "decoder": net.decoder[0].attention,
        "cross": net.decoder[0].cross,
    }
    zeros = torch.zeros(1, length, dtype=torch.long)
    layout = Layout.of(length, tree=Tree(zeros, zeros, zeros + 1))
    x = torch.randn(1, length, model.size)
    with torch.no_grad():
        layers[place](x, x, AttentionContext(layout, layout))
    return str(layers[place].path).partition(" ")[0]


def combination_table() -> str:
    """The table of docs/mechanisms.md: every choice tried in every place of a small Transformer, the kernel that serves
    it there, or why it is refused."""
    lines = ["| slot | choice | encoder | decoder | cross |", "|---|---|---|---|---|"]
    reasons: dict[str, int] = {}

    def cell(slot: str, choice: object, place: str) -> str:
        if why := placement_error(slot, choice, place):
            return f"no ({reasons.setdefault(_short(why), len(reasons) + 1)})"
        return _kernel(_with(slot, choice, place), place, LENGTHS.get(slot, 5))

    for slot in ATTENTION_SLOTS:
        for name, _, choice in slot_choices(slot):
            shown = choice if slot == "pattern" else name
            lines.append(f"| {slot} | `{shown}` | {' | '.join(cell(slot, choice, place) for place in ROLES)} |")
    return "\n".join([*lines, "", *(f"{number}. {reason}" for reason, number in reasons.items())])


def _short(reason: str) -> str:
    """Without what the table says already: which choice, and where."""
    return re.sub(r"^the pattern '.*?' |, not (the )?(encoder|decoder|cross)", "", reason)


MARKS = "<!-- combinations -->\n", "\n<!-- /combinations -->"


def with_table(page: str) -> str:
    """A page of the docs with the table as it is now between its marks."""
    before, start, rest = page.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    return f"{before}{start}{combination_table()}{end}{after}"


if __name__ == "__main__":
    docs = Path(__file__).parents[2] / "docs"
    for path in (docs / "mechanisms.md", docs / "zh" / "mechanisms.md"):
        path.write_text(with_table(path.read_text(encoding="utf-8")), encoding="utf-8")

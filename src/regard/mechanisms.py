"""Every choice that the package offers, as one table made from the classes themselves: names, formulas, papers.

`regard info --mechanisms` prints it; docs/mechanisms.md says more about each.
"""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

import torch

from regard.models.transformer import AttentionsConfig, PositionsConfig, TransformerConfig
from regard.nn.attention import AttentionConfig
from regard.nn.compress import CompressConfig
from regard.nn.layout import Call, Layout, Tree
from regard.nn.normalise import NormaliseConfig
from regard.nn.pattern import PATTERNS
from regard.nn.position import PositionConfig
from regard.nn.score import ScoreConfig
from regard.recipe import ModelConfig

PLACES = ("encoder", "decoder", "cross")


@dataclass(frozen=True)
class Mechanism:
    id: str  # row of the list of mechanisms
    slot: str
    name: str
    meaning: str
    formula: str
    paper: str
    config: str  # what chooses it
    file: str


BLOCKS = [  # choices of the Transformer that are no classes with a `kind`
    ("I1", "embedding", "scaled", "Word vectors are multiplied by √D, to match the positions.", "√D · E[w]",
     "Vaswani 2017, 3.4", "model.scale_embedding=true", "nn/embedding.py"),
    ("I2", "embedding", "shared", "One matrix for source, target and output, or for target and output.", "logits = x Eᵀ",
     "Press 2017", "model.share=all", "nn/embedding.py"),
    ("I3", "embedding", "joined", "Positions are added to word vectors, or put beside them and projected.",
     "x + p, or W [x; p]", "Vaswani 2017, 3.5", "model.position={kind: sinusoidal, join: concat}",
     "nn/position/join.py"),
    ("B1", "projection", "separate", "Queries and keys have matrices of their own; d_k and d_v are free.",
     "softmax(QW_q (KW_k)ᵀ / √d_k) VW_v", "Vaswani 2017, 3.2.2", "model.attention.projection=separate",
     "nn/attention.py"),
    ("B2", "projection", "shared", "One matrix for queries and keys: scores are symmetric.", "xᵢᵀWWᵀxⱼ",
     "Kitaev 2020, 2", "model.attention.projection=shared", "nn/attention.py"),
    ("B3", "feed_forward", "dense", "A network of two layers at every place, with a choice of activation.",
     "max(0, xW₁ + b₁)W₂ + b₂", "Vaswani 2017, eq. 2", "model.activation=gelu", "nn/feed_forward.py"),
    ("B3", "feed_forward", "swiglu", "The same with a gate.", "(swish(xW₁) ⊙ xW₃)W₂", "Shazeer 2020",
     "model.activation=swiglu", "nn/feed_forward.py"),
    ("B3", "feed_forward", "none", "Attention alone, for the comparison.", "—", "Dong 2021",
     "model.feed_forward=none", "nn/feed_forward.py"),
    ("B4", "residual", "post_norm", "The paper's order: add, then normalise.", "norm(x + f(x))", "Vaswani 2017, 3.1",
     "model.residual=post_norm", "nn/residual.py"),
    ("B4", "residual", "pre_norm", "Normalise first: easier to train deep.", "x + f(norm(x))", "Xiong 2020",
     "model.residual=pre_norm", "nn/residual.py"),
    ("B4", "residual", "none", "Nothing passes by the sub-layer, for the comparison.", "norm(f(x))", "He 2016",
     "model.residual=none", "nn/residual.py"),
    ("B5", "norm", "layer", "Over the features of each place.", "(x − mean) / √(var + ε)", "Ba 2016",
     "model.norm=layer", "nn/norm.py"),
    ("B5", "norm", "batch", "Over all real places of the batch, for the comparison.", "the same, by feature",
     "Ioffe 2015", "model.norm=batch", "nn/norm.py"),
]  # fmt: skip


def kinds(union: Any) -> tuple[Any, ...]:
    """The classes of a choice, be it a union or a single one."""
    return get_args(union) or (union,)


def everything() -> list[Mechanism]:
    """All choices, by slot."""
    found = [*_of("score", ScoreConfig, "model.attention.score"), *_of("position", PositionConfig, "model.position")]
    for name, pattern in PATTERNS.items():
        found.append(_mechanism("pattern", name, pattern, f'model.attention.pattern="{example(name)}"'))
    found += _of("compress", CompressConfig, "model.attention.compress")
    found += _of("normalise", NormaliseConfig, "model.attention.normalise")
    found += [Mechanism(*row) for row in BLOCKS]
    return [*found, *_of("model", ModelConfig, "model.kind")]


def _of(slot: str, union: Any, key: str) -> Iterator[Mechanism]:
    for cls in kinds(union):
        kind = cls.__dataclass_fields__["kind"].default
        yield _mechanism(slot, kind, cls, f"{key}={kind}")


def _mechanism(slot: str, name: str, cls: Any, config: str) -> Mechanism:
    meaning = (inspect.getdoc(cls) or "").partition("\n")[0]
    home = str(Path(inspect.getfile(cls)).as_posix()).rpartition("/regard/")[2]
    return Mechanism(cls.id, slot, name, meaning, cls.formula, cls.paper, config, home)


def example(name: str) -> str:
    """A pattern as one would write it: the numbers that it needs, at 2."""
    needed = [f for f in fields(PATTERNS[name]) if f.init and f.default is f.default_factory]  # type: ignore[arg-type]
    return f"{name}({', '.join('2' for _ in needed)})" if needed else name


# --- what combines with what ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fit:
    slot: str
    name: str
    places: dict[str, str]  # for each place: the kernel that serves it, or why it is refused


def combinations() -> list[Fit]:
    """Every choice tried in every place of a small Transformer: what serves it there, or why it is refused."""
    found = []
    for slot, union in (("score", ScoreConfig), ("position", PositionConfig), ("pattern", None),
                        ("compress", CompressConfig), ("normalise", NormaliseConfig)):  # fmt: skip
        choices = [c() for c in kinds(union)] if union else [example(name) for name in PATTERNS]
        for choice in choices:
            name = choice if isinstance(choice, str) else choice.kind
            found.append(Fit(slot, name, {place: _tried(slot, choice, place) for place in PLACES}))
    return found


LONGEST = 256


def _tried(slot: str, choice: Any, place: str) -> str:
    if slot == "position" and place == "cross":
        return "refused: positions of source and target have nothing to do with each other"
    base = TransformerConfig(layers=1, size=16, inner=16, heads=2)
    try:
        if slot == "position":
            model = replace(base, position=replace(PositionsConfig(), **{place: choice}))
        else:
            attention = replace(AttentionConfig(), **{slot: choice})
            model = replace(base, attention=replace(AttentionsConfig(), **{place: attention}))
        model.check(LONGEST, LONGEST)
    except ValueError as error:
        return f"refused: {error}"
    return _kernel(model, place)


@cache
def _kernel(model: TransformerConfig, place: str) -> str:
    """By trying it on a short sentence, without the reason that no faster one serves."""
    net = model.build(8, 8).eval()
    n = 5
    layers: dict[str, Any] = {
        "encoder": net.encoder[0].attention,
        "decoder": net.decoder[0].attention,
        "cross": net.decoder[0].cross,
    }
    zeros = torch.zeros(1, n, dtype=torch.long)
    layout = Layout.of(n, tree=Tree(zeros, zeros, zeros + 1))
    x = torch.randn(1, n, model.size)
    with torch.no_grad():
        layers[place](x, x, Call(layout, layout))
    return str(layers[place].path).partition(" ")[0]


def combination_table() -> str:
    """The table of docs/mechanisms.md."""
    lines = ["| slot | choice | encoder | decoder | cross |", "|---|---|---|---|---|"]
    reasons: dict[str, int] = {}
    for fit in combinations():
        cells = []
        for place in PLACES:
            said = fit.places[place]
            if said.startswith("refused: "):
                number = reasons.setdefault(said.removeprefix("refused: "), len(reasons) + 1)
                cells.append(f"no ({number})")
            else:
                cells.append(said)
        lines.append(f"| {fit.slot} | `{fit.name.replace('|', chr(92) + '|')}` | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *(f"{number}. {reason}" for reason, number in reasons.items())])

"""Figures of the ideas behind attention, computed by the package's own functions and drawn by matplotlib.

`regard figures` writes those of the docs. Knows no trained model.
"""

from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.config import nearest
from regard.errors import RegardError
from regard.look.plot import pyplot_for, save_figure
from regard.nn.feed_forward import FeedForward
from regard.nn.layers import EncoderLayer
from regard.nn.layout import AttentionContext, Layout
from regard.nn.multi_head import MultiHeadAttention
from regard.nn.pattern import PATTERNS, Causal, Document, Padding, Pattern, parse_pattern
from regard.nn.position import sinusoids
from regard.training.schedule import (
    CosineSchedule,
    LinearSchedule,
    NoamSchedule,
    ScheduleConfig,
    SlantedTriangleSchedule,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, GREY = "#2f6fb0", "#d1702a", "#3f8f57", "#8a8f98"
LANGUAGES = ("en", "zh")


class Words:
    """The words of a figure in one language: each is written as English and Chinese."""

    def __init__(self, language: str) -> None:
        self.index = LANGUAGES.index(language)

    def __call__(self, *words: str) -> str:
        return words[self.index]


# --- positions -----------------------------------------------------------------------------------------------------


def positions(figure: "Figure", words: Words) -> None:
    """Sinusoidal positions as a heat map, and the matrix T(k) that moves every one of them k further."""
    size, count, step = 32, 60, 5
    waves = sinusoids(torch.arange(count), size)  # [60, 32]
    shift = shift_matrix(step, size)
    left, right = figure.subplots(1, 2, width_ratios=(2, 1.2))
    left.imshow(waves.T, cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
    left.set(xlabel=words("position", "位置"), ylabel=words("dimension", "维数"), title="PE(p)")
    worst = (sinusoids(torch.arange(count) + step, size) - waves @ shift.T).abs().max()
    right.imshow(shift, cmap="RdBu", vmin=-1, vmax=1)
    right.set(title=f"T({step}):  PE(p+{step}) = T({step}) PE(p)", xlabel=words("error", "误差") + f" ≤ {worst:.0e}")
    right.set(xticks=[], yticks=[])


def shift_matrix(step: int, size: int, base: float = 10000.0) -> Tensor:
    """T(k) [D, D]: each pair of a sine and a cosine is turned by k times its frequency; no position enters."""
    frequency = base ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    sin, cos = (step * frequency).sin(), (step * frequency).cos()
    turns = torch.stack([torch.stack([cos, sin], -1), torch.stack([-sin, cos], -1)], -2)  # [D/2, 2, 2]
    return torch.block_diag(*turns)


# --- masks ---------------------------------------------------------------------------------------------------------

MASKS = ("full", "causal", "window(3)", "window(3) & causal", "global(2)", "window(2) | global(2)",
         "bigbird(2, window=3, global=1, random=1)")  # fmt: skip


def masks(figure: "Figure", words: Words) -> None:
    """Which key each query attends to, under patterns, padding and packed documents."""
    n = 16
    layout = Layout.of(n)
    real = torch.arange(n)[None] < 11
    document = (torch.arange(n)[None] >= 6).long() + (torch.arange(n)[None] >= 11).long()
    drawn = [(text.replace(", ", ",\n", 1), mask_of(parse_pattern(text, PATTERNS), layout)) for text in MASKS]
    drawn.append((words("padding", "填充掩码"), mask_of(Padding(), Layout.of(n, real))))
    packed = Layout(layout.position, n, None, document)
    drawn.append((words("documents & causal", "文档 & causal"), mask_of(Document() & Causal(), packed)))
    for axis, (title, mask) in zip(figure.subplots(3, 3).flat, drawn, strict=True):
        axis.imshow(mask, cmap="Blues", vmin=0, vmax=1.4)
        axis.set_title(title, fontsize=9)
        axis.set(xticks=[], yticks=[])
        axis.set(xlabel=words("keys", "键"), ylabel=words("queries", "查询"))


def mask_of(pattern: Pattern, layout: Layout) -> Tensor:
    """True where a query attends to a key [Q, K]."""
    context, n = AttentionContext(layout, layout), layout.length
    mask = pattern.bind(torch.zeros(1, 1, n, 2), context, 0).mask(context)
    return torch.ones(n, n, dtype=torch.bool) if mask is None else mask[0, 0].expand(n, n)


# --- paths ---------------------------------------------------------------------------------------------------------


def paths(figure: "Figure", words: Words) -> None:
    """How many layers, or steps, lie between two words, found by multiplying the matrices of who reads whom."""
    n = 33
    away = torch.arange(n)[:, None] - torch.arange(n)
    reads = {
        words("recurrent, steps", "循环网络，步数"): [(away == 0) | (away == 1)],
        words("convolution of 3, layers", "卷积（宽 3），层数"): [away.abs() <= 1],
        words("dilated 1, 2, 4, 8, 16, layers", "膨胀卷积 1, 2, 4, 8, 16，层数"): [
            (away == 0) | (away.abs() == 2**k) for k in range(5)
        ],
        words("window(4), layers", "window(4)，层数"): [away.abs() <= 4],
        words("self-attention, layers", "自注意力，层数"): [away > -n],
    }
    axes = figure.subplots(1, len(reads)).flat
    for axis, (title, layers) in zip(axes, reads.items(), strict=True):
        distance = depths(layers, n)
        seen = distance >= 0
        axis.imshow(distance.double().masked_fill(~seen, float("nan")), cmap="Blues", vmin=0, vmax=n - 1)
        axis.set_title(f"{title}\n≤ {int(distance.max())}", fontsize=9)
        axis.set(xticks=[], yticks=[])
    axes[0].set(xlabel=words("input", "输入"), ylabel=words("output", "输出"))


def depths(layers: list[Tensor], n: int) -> Tensor:
    """After how many layers output i depends on input j [N, N]; the layers come again and again; -1: never."""
    reached = torch.eye(n, dtype=torch.bool)
    found = torch.where(reached, 0, -1)
    for depth in range(1, n + 1):
        reached = (layers[(depth - 1) % len(layers)].float() @ reached.float()) > 0
        found = torch.where((found < 0) & reached, depth, found)
    return found


# --- softmax -------------------------------------------------------------------------------------------------------


def softmax(figure: "Figure", words: Words) -> None:
    """What the size of queries and keys does to softmax: its entropy and its slope, with and without 1/√d_k."""
    sizes = [2**k for k in range(1, 11)]
    rows = {scaled: [saturation(d_k, scaled) for d_k in sizes] for scaled in (False, True)}
    left, right = figure.subplots(1, 2)
    for scaled, colour in ((False, ORANGE), (True, BLUE)):
        label = "qᵀk / √d_k" if scaled else "qᵀk"
        for axis, values in zip((left, right), zip(*rows[scaled], strict=True), strict=True):
            axis.semilogx(sizes, values, "o-", base=2, color=colour, label=label)
            axis.set_xlabel("d_k")
    left.set_title(words("entropy of the weights, in nats", "权重的熵（nat）"))
    right.set_title(words("size of the slope ‖∂softmax‖", "softmax 的梯度大小 ‖∂softmax‖"))
    left.legend(frameon=False)


def saturation(d_k: int, scaled: bool, keys: int = 32, draws: int = 500) -> tuple[float, float]:
    """Means of the entropy of softmax(qᵀk) over `keys` keys and of the norm of its Jacobian; q, k standard normal."""
    generator = torch.Generator().manual_seed(d_k)
    q, k = (torch.randn(draws, rows, d_k, generator=generator) for rows in (1, keys))
    scores = (q @ k.mT)[:, 0] / (d_k**0.5 if scaled else 1)  # [draws, keys]
    weights = scores.double().softmax(-1)
    jacobian = torch.diag_embed(weights) - weights[:, :, None] * weights[:, None]
    entropy = torch.special.entr(weights).sum(-1).mean()
    return float(entropy), float(jacobian.flatten(1).norm(dim=-1).mean())


# --- depth ---------------------------------------------------------------------------------------------------------

DEPTH, WIDTH, LENGTH = 12, 64, 24


def differences_over_depth(figure: "Figure", words: Words) -> None:
    """How much words still differ after so many layers, with and without residual and feed-forward; fresh weights."""
    kinds = {
        words("attention alone", "只有注意力"): ("none", False),
        words("and feed-forward", "加前馈网络"): ("none", True),
        words("and residual", "加残差"): ("pre_norm", False),
        words("and both", "两者都加"): ("pre_norm", True),
    }
    axis = figure.subplots()
    for (label, choices), (colour, line) in zip(
        kinds.items(), ((ORANGE, "-"), (ORANGE, "--"), (BLUE, "-"), (BLUE, "--")), strict=True
    ):
        axis.plot(differences(*choices), line, color=colour, label=label)
    axis.set(
        ylabel=words("differences of words, of their size", "词与词的差别占其大小的比例"),
        xlabel=words("layers", "层数"),
    )
    axis.legend(frameon=False)


@torch.no_grad()
def differences(residual: str, feed_forward: bool) -> list[float]:
    """What is left of words without their mean, as a share of all, after each encoder layer with fresh weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        x = torch.nn.functional.layer_norm(torch.randn(8, LENGTH, WIDTH), (WIDTH,))  # [B, T, D]
        layers = [
            EncoderLayer(
                MultiHeadAttention(WIDTH, 4), FeedForward(WIDTH, 4 * WIDTH) if feed_forward else None, residual, 0.0
            )
            for _ in range(DEPTH)
        ]
    states = list(accumulate(layers, lambda state, layer: layer(state), initial=x))
    return [float((x - x.mean(1, keepdim=True)).norm() / x.norm()) for x in states]


# --- training ------------------------------------------------------------------------------------------------------


def schedule(figure: "Figure", words: Words) -> None:
    """Learning rates over 20,000 steps."""
    steps = 20_000
    shown: dict[str, ScheduleConfig] = {
        words("noam, the paper's, size 512", "noam（论文），512 维"): NoamSchedule(),
        words("noam, size 1,024", "noam，1024 维"): NoamSchedule(),
        "cosine": CosineSchedule(peak=7e-4, warmup=1000),
        "linear": LinearSchedule(peak=7e-4, warmup=1000),
        "slanted_triangle": SlantedTriangleSchedule(peak=7e-4),
    }
    axis = figure.subplots()
    at = range(1, steps + 1, 50)
    for n, (label, each) in enumerate(shown.items()):
        size = 1024 if n == 1 else 512
        axis.plot(at, [each.rate(step, size, steps) for step in at], label=label)
    axis.set(xlabel=words("step", "步"), ylabel=words("learning rate", "学习率"))
    axis.legend(frameon=False)


TABLE = torch.tensor([[1, 3, 6], [2, 2, 2], [0, 1, 5], [4, 6, 1], [5, 2, 3], [1, 0, 1]], dtype=torch.float64)


def norms(figure: "Figure", words: Words) -> None:
    """Three examples (columns) of six features (rows): what LayerNorm and BatchNorm take the mean over."""
    rows = [words("feature", "特征") + f" {n}" for n in range(1, 7)]
    columns = [words("example", "样本") + f" {n}" for n in range(1, 4)]
    spread = {axis: TABLE.std(axis, correction=0) for axis in (0, 1)}
    tables = (
        (words("BatchNorm: each feature over the batch", "BatchNorm：每个特征跨样本"), 1, rows, ORANGE),
        (words("LayerNorm: each example over its features", "LayerNorm：每个样本跨特征"), 0, columns, BLUE),
    )
    for axis, (title, over, names, colour) in zip(figure.subplots(1, 2), tables, strict=True):
        mean, std = TABLE.mean(over), spread[over]
        for n in range(0, len(names), 2):  # every second of what shares a mean is shaded
            band = axis.axhspan if over == 1 else axis.axvspan
            span = (0, 0.76) if over == 1 else (0.09, 1)
            band(n - 0.5, n + 0.5, *span, color=colour, alpha=0.12, linewidth=0)
        for i, j in ((i, j) for i in range(6) for j in range(3)):
            axis.text(j, i, f"{TABLE[i, j]:.0f}", ha="center", va="center")
        for n in range(len(names)):
            label = f"{mean[n]:.2f} ± {std[n]:.2f}"
            if over == 1:
                axis.text(2.6, n, label, va="center", color=colour)
            else:
                axis.text(n, 5.75, label, ha="center", color=colour)
        axis.set_title(title, color=colour, fontsize=10)
        axis.set_xticks(range(3), columns)
        axis.set_yticks(range(6), rows)
        axis.tick_params(length=0)
        axis.set(xlim=(-0.5, 3.7), ylim=(6.1, -0.5))
        axis.spines[:].set_visible(False)


# --- history -------------------------------------------------------------------------------------------------------

PAPERS = (  # year and month of the first version, name, authors
    (2014.67, "RNN + attention", "Bahdanau"), (2015.6, "global, local", "Luong"), (2016.8, "ByteNet", "Kalchbrenner"),
    (2017.35, "ConvS2S", "Gehring"), (2017.45, "Transformer", "Vaswani"), (2018.04, "ULMFiT", "Howard"),
    (2018.08, "memory-compressed", "Liu"), (2018.12, "ELMo", "Peters"), (2018.17, "relative positions", "Shaw"),
    (2018.45, "GPT", "Radford"), (2018.6, "character Transformer", "Al-Rfou"), (2018.78, "BERT", "Devlin"),
    (2019.02, "Transformer-XL", "Dai"), (2019.67, "structural positions", "Wang"), (2019.8, "T5", "Raffel"),
    (2020.44, "Linformer", "Wang"), (2020.55, "BigBird", "Zaheer"), (2021.3, "rotary", "Su"),
    (2021.65, "ALiBi", "Press"),
)  # fmt: skip


def timeline(figure: "Figure", words: Words) -> None:
    """The papers whose mechanisms are here, by the date of their first version."""
    axis: Axes = figure.subplots()
    axis.axhline(0, color=GREY, linewidth=1)
    for n, (year, name, authors) in enumerate(PAPERS):
        height = (1 + n // 2 % 4) * (1 if n % 2 else -1)
        axis.plot([year, year], [0, height], color=GREY, linewidth=0.7)
        axis.plot(year, 0, "o", color=BLUE, markersize=4)
        edge = "bottom" if height > 0 else "top"
        axis.text(
            year,
            height,
            f"{name}\n{authors}",
            ha="center",
            va=edge,
            fontsize=8,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )
    axis.set(ylim=(-5.2, 5.2), xlim=(2014.1, 2022.2), yticks=[], title=words("attention, by paper", "注意力：论文年表"))
    axis.set_xticks(range(2015, 2023))
    axis.spines[["left", "right", "top"]].set_visible(False)


Draw = Callable[["Figure", Words], None]
FIGURES: dict[str, tuple[Draw, tuple[float, float]]] = {  # by name: how it is drawn, and its size in inches
    "positions": (positions, (9, 3.6)),
    "masks": (masks, (6.4, 7)),
    "paths": (paths, (12, 3)),
    "softmax": (softmax, (9, 3.4)),
    "depth": (differences_over_depth, (7, 3.6)),
    "schedule": (schedule, (7, 3.6)),
    "norms": (norms, (9, 3.6)),
    "timeline": (timeline, (11, 4.4)),
}


def draw(name: str, path: Path, language: str = "en") -> None:
    """Write one figure; the ending of the path says in which format."""
    if name not in FIGURES:
        raise RegardError(f"there is no figure {name!r}; {nearest(name, FIGURES)}")
    if language not in LANGUAGES:
        raise RegardError(f"--language is {language!r}; write {' or '.join(LANGUAGES)}")
    with pyplot_for("regard figures") as pyplot:
        drawing, size = FIGURES[name]
        figure = pyplot.figure(figsize=size, layout="constrained")
        drawing(figure, Words(language))
        save_figure(figure, path)
        pyplot.close(figure)

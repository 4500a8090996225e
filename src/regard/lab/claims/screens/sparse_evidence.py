"""C17: sparse and compressed attention where the evidence stands far away, and what it costs."""

from typing import Any

import torch
from torch import Tensor

from regard.lab.claim import Claim, Figure, Measurement, Setup, TextExperiment, lower_bound, upper_bound
from regard.lab.tiny import TinyEncoder, learned, points
from regard.nn.layout import AttentionContext, Layout
from regard.nn.pattern import PATTERNS, parse_pattern

FILLERS, PAYLOADS, LENGTH, STEPS, SIZE = 6, 8, 64, 300, 32
ENTRIES = FILLERS + PAYLOADS
BIGBIRD = "bigbird(4, window=3, global=1, random=1)"
CHOICES: dict[str, dict[str, Any]] = {
    "full": {},
    "bigbird": {"pattern": BIGBIRD},
    "linformer": {"compress": {"kind": "linformer", "length": LENGTH, "size": 16}},
    "window": {"pattern": "window(4)"},
}


def distant_evidence(rows: int = 24) -> tuple[Tensor, Tensor]:
    """One telling word in the first half; the last place is to name it."""
    ids = torch.randint(FILLERS, (rows, LENGTH))
    payload = torch.randint(FILLERS, ENTRIES, (rows,))
    ids[torch.arange(rows), torch.randint(LENGTH // 2, (rows,))] = payload
    labels = torch.full_like(ids, -100)
    labels[:, -1] = payload
    return ids, labels


def visible_share(pattern: str, length: int) -> float:
    """Of all pairs of positions how many a pattern sees."""
    layout = Layout.of(length)
    context = AttentionContext(layout, layout)
    mask = parse_pattern(pattern, PATTERNS).bind(torch.zeros(1, 1, length, 2), context, 0).mask(context)
    assert mask is not None
    return float(mask.double().mean())


def _measure(seed: int, setup: Setup) -> Measurement:
    right, losses = {}, {}
    for name, choices in CHOICES.items():
        own = CHOICES["window"] if setup.fault and name != "full" else choices
        model = learned(seed, lambda: TinyEncoder(ENTRIES, SIZE, layers=2, **own), distant_evidence, STEPS, 4e-3)  # noqa: B023
        losses[name], right[name] = model.curve(10), model.right(*distant_evidence(300))
    numbers = {name: right["full"] - right[name] for name in ("bigbird", "linformer", "window")}
    numbers["cost"] = visible_share(BIGBIRD, LENGTH)
    lengths = (64, 128, 256, 512)
    shares = points(lengths, [visible_share(BIGBIRD, n) for n in lengths])
    return Measurement(numbers, {"loss": losses, "cost": {"BigBird": shares}})


CLAIM = Claim(
    title="Sparse attention keeps quality",
    sentence="Linformer and BigBird keep the quality of full attention at a lower cost.",
    source="notes 002; Wang 2020; Zaheer 2020",
    predictions=(
        upper_bound("bigbird", "accuracy of full attention less BigBird's", 0.05, "BigBird"),
        upper_bound("cost", "pairs of positions that BigBird sees, of all", 0.5, "BigBird"),
        upper_bound(
            "linformer", "accuracy of full attention less Linformer's, a quarter of the keys", 0.05, "Linformer"
        ),
        lower_bound("window", "accuracy of full attention less that of a window alone", 0.5, "BigBird", control=True),
    ),
    measure=_measure,
    seconds=14.0,
    seeds=(3, 6),
    depends_on="Two layers over 64 places; one telling word in the first half is named at the last place. A window "
    "cannot reach it; BigBird can in two layers, through its global places. What it costs at a length that is worth it "
    "is in docs/results.md, as times on a GPU.",
    figures=(
        Figure("loss", "training loss", "step", ""),
        Figure("cost", "pairs that are seen, of all", "length", "share", True, True),
    ),
    faults={"a window for all": "sparse and compressed attention are a window alone"},
    on_text=TextExperiment(
        "bert-small-wikitext2",
        {
            "full": (),
            "bigbird": ("model.attention.pattern='bigbird(32, window=3, global=1, random=2)'",),
            "window": ("model.attention.pattern='window(48)'",),
        },
        (upper_bound("bigbird less full", "loss, BigBird less full, 512 places", 0.02),),
        ("task.length=512", "training.steps=800", "training.schedule.warmup=80"),
        metric="masked_loss",
        seconds=100,
    ),
)

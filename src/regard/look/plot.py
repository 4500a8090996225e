"""One attention as a heat map with its tokens, by matplotlib."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from regard.errors import RegardError
from regard.io.atomic import atomic_write
from regard.look.quantize import Json, unpack_weights

FONTS = ("DejaVu Sans", "Noto Sans CJK SC", "Noto Serif CJK SC", "PingFang SC", "Microsoft YaHei", "SimHei")


@contextlib.contextmanager
def pyplot_for(user: str) -> Iterator[Any]:
    """matplotlib.pyplot without a window, with fonts that have Chinese characters where there are any."""
    try:
        import matplotlib
    except ImportError:
        raise RegardError(f"{user} needs matplotlib; install regard[plot]") from None
    matplotlib.use("Agg")
    from matplotlib import font_manager, pyplot

    known = {font.name for font in font_manager.fontManager.ttflist}
    fonts = [font for font in FONTS if font in known]
    with matplotlib.rc_context({"font.family": fonts, "svg.fonttype": "none", "svg.hashsalt": "regard"}):
        yield pyplot


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure in the format that the ending of the path names; the same figure is the same bytes."""
    kind = path.suffix[1:] or "png"
    try:
        with atomic_write(path, "wb") as file:  # tight: few tokens are narrower than the label below them
            metadata = {"Date": None} if kind == "svg" else {}
            figure.savefig(file, format=kind, dpi=200, bbox_inches="tight", metadata=metadata)
    except ValueError as error:  # a format that is not known
        raise RegardError(f"{path}: cannot be written ({error})") from None


def plot_attention(
    data: Json, path: Path, place: str | None = None, layer: int | None = None, head: int | None = None
) -> None:
    """Weights of a place (by default the last: to the source), of a layer (by default the last) and of a head, from 1
    on (by default the mean of all)."""
    places = {each["name"]: each for each in data["places"]}
    if place is not None and place not in places:
        raise RegardError(f"this model has no attention {place!r}; it has {', '.join(places)}")
    attention = places[place or data["places"][-1]["name"]]
    for name, value in (("layer", layer), ("head", head)):
        if value is not None and not 1 <= value <= attention[f"{name}s"]:
            raise RegardError(f"there is no {name} {value}; write 1 to {attention[f'{name}s']}")
    chosen = np.array(
        unpack_weights(attention["weights"])[(layer or attention["layers"]) - 1], dtype=float
    )  # [H, Q, K], NaN: hidden
    weights = np.nan_to_num(chosen).mean(0) if head is None else np.nan_to_num(chosen[head - 1])
    queries, keys = ([_shown(word) for word in attention[side]] for side in ("queries", "keys"))
    with pyplot_for("--png") as pyplot:
        figure, axes = pyplot.subplots(figsize=(2 + 0.27 * len(keys), 1.6 + 0.27 * len(queries)), layout="constrained")
        axes.imshow(weights, cmap="Blues", vmin=0, vmax=1, aspect="equal")
        axes.set_xticks(range(len(keys)), keys, rotation=90, parse_math=False)
        axes.set_yticks(range(len(queries)), queries, parse_math=False)
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        which = "mean of heads" if head is None else f"head {head}"
        axes.set_xlabel(f"{attention['title']}, layer {layer or attention['layers']}, {which}")
        save_figure(figure, path)
        pyplot.close(figure)


def _shown(word: str) -> str:
    return "".join(c if c.isprintable() else f"<{ord(c):04x}>" for c in word)

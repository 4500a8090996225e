"""`regard look`: what a model's attention does with one text, as a page, a picture or JSON."""

import json
import sys
from pathlib import Path
from typing import Any

from regard.api import load
from regard.cli.streams import decode, separate, warn, writing
from regard.errors import RegardError
from regard.look.attention import look as recorded
from regard.look.html import LANGUAGES, page
from regard.look.quantize import unpack_weights

DEFAULT = Path("look.html")


def look(
    run: Path,
    text: str | None,
    target: str | None,
    out: Path | None,
    png: Path | None,
    chosen: tuple[str | None, int | None, int | None],
    language: str,
    device: str,
    as_json: bool,
) -> None:
    if language not in LANGUAGES:
        raise RegardError(f"--language is {language!r}; write {' or '.join(filter(None, LANGUAGES))}")
    if any(choice is not None for choice in chosen) and png is None:
        raise RegardError("--place, --layer and --head choose what --png draws; the page shows all of them")
    separate([out, png], [None] if text is None else [])
    if text is None:
        text = "\n".join(decode(sys.stdin.buffer, "standard input"))
    data = recorded(load(run, device), text.strip("\r\n"), target)
    if png is not None:
        from regard.look.plot import plot_attention

        plot_attention(data, png, *chosen)
        warn(f"{png} shows it")
    if as_json:
        print(json.dumps(plain(data), ensure_ascii=False))
    if out is not None or not (png or as_json):
        with writing(out or DEFAULT) as file:
            file.write(page(data, language))
        warn(f"{out or DEFAULT} shows it; open it in a browser")


def plain(data: dict[str, Any]) -> dict[str, Any]:
    """The same for programs: numbers as numbers, none where a place is hidden, and no walk."""
    places = [{**place, "weights": unpack_weights(place["weights"])} for place in data["places"]]
    rolled = {place: unpack_weights(found) for place, found in data["rollout"].items()}
    return {**{key: value for key, value in data.items() if key != "walk"}, "places": places, "rollout": rolled}

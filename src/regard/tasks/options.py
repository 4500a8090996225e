"""What commands change of a recipe: the search, and which of its data are measured on. Knows no task."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from regard.data.config import Corpus
from regard.decoding import Beam, DecodingConfig, Greedy, Sample
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.recipe import Recipe

SPLITS = ("test", "valid")
DRAWN = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")  # what may be said of drawing words


def split_of(recipe: "Recipe", split: str | None, instead: str) -> list[Corpus]:
    """The corpora of a split, by default test if there is one; `instead` says what to do where there is none."""
    corpora: list[Corpus] = getattr(recipe.data, split) if split else recipe.data.test or recipe.data.valid
    if not corpora:
        raise RegardError(f"the recipe names no {split or 'test or valid'} data; {instead}")
    return corpora


def texts_of(recipe: "Recipe", split: str | None, text: object) -> list[Corpus]:
    """A text that is given, else the corpora of a split."""
    return [Corpus(path=str(text))] if text else split_of(recipe, split, "give --text FILE")


def with_beam(base: DecodingConfig, size: int | None) -> DecodingConfig:
    """The recipe's search, or one with a beam of another size; 1 is greedy."""
    if size is None:
        return base
    if size == 1:
        return Greedy(**_limits(base))
    kept: dict[str, Any] = {}
    if isinstance(base, Beam):
        kept = {"length_penalty": base.length_penalty, "penalty": base.penalty}
    return Beam(size=size, **kept, **_limits(base))


def searching(base: DecodingConfig, phrases: bool, outputs: int = 1) -> DecodingConfig:
    """The recipe's search, or a beam where a greedy one cannot give what is asked: phrases, or several outputs."""
    size = max(Beam().size if phrases else 1, outputs)
    return with_beam(base, size) if isinstance(base, Greedy) and size > 1 else base


def drawing(base: DecodingConfig, **choices: Any) -> DecodingConfig:
    """Words drawn at random, as chosen, at a temperature of 0 the likeliest; what cannot be is told in one sentence."""
    temperature = choices.get("temperature", 1.0)
    if temperature == 0:
        return Greedy(**_limits(base))
    if not 0 < temperature < 1e6:  # a recipe has no 0: it says greedy
        raise RegardError(f"temperature must be 0 or more, and less than a million, not {temperature}")
    try:
        return Sample(**choices, **_limits(base))
    except ValueError as error:
        raise RegardError(str(error)) from None


def chosen(
    base: DecodingConfig, beam: int | None, drawn: Mapping[str, Any], named: Callable[[str], str] = str
) -> DecodingConfig:
    """The recipe's search, with what is said of it: a beam (1 is greedy), or keys of sampling; one is enough."""
    drawn = {key: value for key, value in drawn.items() if value is not None}
    if beam is not None:
        if drawn:
            raise RegardError(f"{named(next(iter(drawn)))} is about drawing words, not about searching")
        return with_beam(base, beam or 1)
    kept = {key: getattr(base, key) for key in DRAWN} if isinstance(base, Sample) else {}
    return drawing(base, **(kept | drawn)) if drawn else base


def asked(
    base: DecodingConfig, call: str, others: str, drawn: Mapping[str, Any], greedy: bool, beam: int | None
) -> DecodingConfig:
    """The same, from the keywords of a call in Python; `others` are those that are not about the search."""
    if strange := [key for key in drawn if key not in DRAWN]:
        raise RegardError(f"{call} has no option {strange[0]}; there are {', '.join(DRAWN)}, greedy, beam, {others}")
    return chosen(base, either(greedy, beam), drawn)


def either(greedy: bool, beam: int | None, dashes: str = "") -> int | None:
    """The beam that is meant; a greedy search is one of 1."""
    if greedy and beam not in (None, 1):
        raise RegardError(f"{dashes}greedy takes the likeliest word and {dashes}beam searches; give one of them")
    return 1 if greedy else beam


def _limits(base: DecodingConfig) -> dict[str, Any]:
    return {"max_ratio": base.max_ratio, "max_extra": base.max_extra}

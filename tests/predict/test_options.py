"""Options of Python calls: names and values are checked, renamed ones are taken, and what a search becomes."""

import warnings
from dataclasses import fields

import pytest

from regard.decoding import Beam, Greedy, Sample
from regard.errors import RegardError
from regard.predict.options import GenerationOptions, ReplyOptions, SearchOptions, TranslationOptions, TranslationSearch


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (TranslationOptions, {"prefixs": [""]}, r"call has no option prefixs; did you mean prefixes\?"),
        (TranslationOptions, {"attention": ["cros"]}, r"call: attention is \['cros'\]; did you mean cross\?"),
        (GenerationOptions, {"stop": "\n"}, r"call: stop is '\\n'; write a list"),
        (ReplyOptions, {"max_tokens": 2.5}, "call: max_tokens is 2.5; write a whole number"),
    ],
)
def test_a_wrong_name_or_value_is_one_sentence(kind: type, options: dict[str, object], message: str) -> None:
    with pytest.raises(RegardError, match=message):
        kind.from_kwargs("call", options)  # type: ignore[attr-defined]


def test_the_old_name_of_an_option_is_taken_with_a_warning_at_the_caller() -> None:
    with pytest.warns(UserWarning, match="translate: heads is now called trees") as caught:
        options = TranslationOptions.from_kwargs("translate", {"heads": [[0]]})
    assert options.trees == [[0]]
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert TranslationOptions.from_kwargs("translate", {"trees": [[0]]}) == options


def test_what_a_search_becomes() -> None:
    base = Beam(size=3, length_penalty=0.6, max_extra=7)
    assert SearchOptions(beam=4).decoding_config(base) == Beam(size=4, length_penalty=0.6, max_extra=7)
    assert SearchOptions(greedy=True).decoding_config(base) == Greedy(max_extra=7)
    assert SearchOptions(top_k=5).decoding_config(Sample(min_p=0.1)) == Sample(min_p=0.1, top_k=5)
    assert ReplyOptions(max_tokens=4).decoding_config(base) == Beam(
        size=3, length_penalty=0.6, max_ratio=0.0, max_extra=4
    )
    assert TranslationSearch().decoding_config(Greedy(), phrases=True, nbest=1) == Beam(size=Beam().size)
    assert TranslationSearch().decoding_config(Greedy(), phrases=False, nbest=3) == Beam(size=3)
    with pytest.raises(RegardError, match="--top-k is for drawing words at random; add --sample"):
        TranslationSearch(top_k=3).decoding_config(base, False, 1, cli=True)
    with pytest.raises(RegardError, match="decoding is a whole search; leave out seed, or decoding"):
        TranslationOptions(decoding=base, seed=3).chosen_search(base)


def test_every_option_of_a_search_has_no_value_unless_it_is_given() -> None:
    """None and False mean that the recipe decides."""
    given = SearchOptions()
    assert {field.name for field in fields(given) if getattr(given, field.name) not in (None, False)} == set()

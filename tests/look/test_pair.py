"""Two texts beside each other: which words stand for each other, and which weights moved."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.look import look, look_pair
from regard.look.pair import match_tokens
from tests.look.small import TEXT, translator, weights

OTHER = TEXT.replace("w5", "w6")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return look_pair(translator(tmp_path_factory.mktemp("pair")), TEXT, OTHER, "W5 W4 W3")


def test_exchanged_words_stand_for_each_other() -> None:
    assert match_tokens(list("abcd"), list("axcd")) == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert match_tokens(list("abc"), list("axyc")) == [(0, 0), (2, 3)]
    assert match_tokens([], ["a"]) == []


def test_heads_are_listed_by_the_weight_that_moved_most(pair: Any) -> None:
    places = {each["name"]: [weights(look["places"][n]["weights"]) for look in pair["looks"]]
              for n, each in enumerate(pair["looks"][0]["places"])}  # fmt: skip
    changes = []
    for head in pair["moved"]["heads"]:
        before, after = (each[head["layer"] - 1, head["head"] - 1] for each in places[head["place"]])
        (i, k), (j, m) = head["query"], head["key"]
        assert head["weights"] == [round(before[i, j], 4), round(after[k, m], 4)]
        change = np.nan_to_num(np.abs(after - before))
        rows = change[:4] if head["place"] == "encoder" else change  # w5 and w6 ask different things
        rows = np.concatenate([rows, change[5:]]) if head["place"] == "encoder" else rows
        assert change[i, j] == pytest.approx(rows.max(), abs=1e-9)
        assert head["moved"] == pytest.approx(rows.sum(-1).mean() / 2, abs=1e-4)
        changes.append(change[i, j])
    assert len(changes) == 3 * 2 * 2
    assert changes == sorted(changes, reverse=True)
    assert changes[0] > 0.01
    json.dumps(pair, allow_nan=False)


def test_each_side_is_what_one_look_gives(pair: Any, tmp_path: Path) -> None:
    assert pair["looks"][1] == look(translator(tmp_path), OTHER, "W5 W4 W3")
    same = look_pair(translator(tmp_path), TEXT, TEXT)
    assert {head["moved"] for head in same["moved"]["heads"]} == {0.0}
    assert "iframe" in pair._repr_html_()

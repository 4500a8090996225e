"""The guided route in a browser, and a view that is saved as a file."""

from pathlib import Path
from typing import Any

import pytest

from regard.look import look, look_pair
from tests.look.small import TEXT, translator
from tests.look.test_page import Opened, browser, chosen, opened, playwright, pytestmark, readout  # noqa: F401

TARGET = "W5 W4 W3"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    made = translator(tmp_path_factory.mktemp("page"))
    return look(made, TEXT, TARGET, referent="w5/W3=w2")


def said(page: Any) -> str:
    return str(page.locator(".route p").inner_text())


def test_each_step_shows_what_it_says(data: dict[str, Any], opened: Opened) -> None:  # noqa: F811
    page = opened(data, last=False)
    start = page.get_by_role("button", name="Guided route: from “w5” to “w2” in 5 steps")
    assert not page.locator(".route p").is_visible()
    assert page.locator(".referred").count() == 0
    start.click()
    for n, step in enumerate(data["route"]["steps"]):
        assert said(page).startswith(f"{n + 1}/5 ")
        place = {"encoder": "Encoder", "cross": "Cross"}[step["place"]]
        assert chosen(page) == (place, str(step["layer"] - 1), str(step["head"] - 1))
        asks = "w5" if place == "Encoder" else "W3"
        assert readout(page).startswith(f"“{asks}” attends to")
        assert page.locator(".referred").all_inner_texts() == [asks, "w2"]
        names = {"question": "most", "usual": "weight", "follows": "weight"}
        if step["step"] in names:
            assert f"{step[names[step['step']]]:.2f}" in said(page)
        if step["step"] == "off":
            assert f"from {100 * step['before']:.0f}% to {100 * step['after']:.0f}%" in said(page)
        if n < 4:
            page.get_by_role("button", name="Next").click()
    assert not page.get_by_role("button", name="Next").is_visible()
    page.get_by_role("button", name="Back").click()
    assert said(page).startswith("4/5 ")
    page.keyboard.press("z")
    assert said(page).startswith("4/5 ")
    assert "交叉注意力" in said(page)
    page.get_by_role("button", name="结束").click()
    assert page.locator(".referred").count() == 0
    page.keyboard.press(".")
    page.keyboard.press(".")
    page.keyboard.press(",")
    assert said(page).startswith("1/5 ")


def test_what_is_measured_is_said_as_it_is(data: dict[str, Any], opened: Opened) -> None:  # noqa: F811
    """A head that moves little is not praised, and one that does not look at the referent is not said to."""
    steps = [dict(step, moved=0.04, right=0.5) for step in data["route"]["steps"] if step["step"] != "single"]
    steps[1] = dict(steps[1], weight=0.2)
    steps.insert(2, dict(steps[1], step="test"))
    steps[3] = dict(steps[3], weight=0.1, most=0.6)
    steps[4] = dict(steps[4], before=0.9, after=0.1)
    pairs = {"count": 40, "example": "It was a/b."}
    page = opened(data | {"route": data["route"] | {"pairs": pairs, "steps": steps}}, last=False)
    texts = []
    for _ in steps:
        page.keyboard.press(".")
        texts.append(said(page))
    assert "hardly attends to “w2”: the largest weight of all its heads is 0.20" in texts[1]
    assert "40 pairs" in texts[2]
    assert "by 0.04 on average: the head hardly follows the meaning" in texts[2]
    assert "a weight of 0.10 on “w2”, and the largest, 0.60, on" in texts[3]
    assert "does not show what the pronoun refers to" in texts[3]
    assert texts[4].endswith("The choice depends on this head.")


def test_a_phone_is_led_by_taps_at_its_width(data: dict[str, Any], opened: Opened) -> None:  # noqa: F811
    page = opened(data, width=390, last=False, has_touch=True, is_mobile=True)
    page.locator(".route > button").tap()
    for _ in range(4):
        page.locator("[data-do=next]").tap()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert said(page).startswith("5/5 ")
    assert not page.locator(".about").is_visible()  # so that the words are in view


def test_a_saved_view_opens_where_it_was(data: dict[str, Any], opened: Opened, browser: Any, tmp_path: Path) -> None:  # noqa: F811
    page = opened(data | {"text": "</script>\u2028w1 <b>"}, last=False)
    for key in (".", ".", "ArrowRight", "t", "z"):
        page.keyboard.press(key)
    for n in range(2):  # what was saved is saved again
        with page.expect_download() as download:
            page.locator("[data-do=save]").click()
        assert download.value.suggested_filename == "look.html"
        download.value.save_as(tmp_path / f"saved{n}.html")
        before = chosen(page), said(page), readout(page), page.locator(".regard-look").get_attribute("data-theme")
        page.goto((tmp_path / f"saved{n}.html").as_uri())
        after = chosen(page), said(page), readout(page), page.locator(".regard-look").get_attribute("data-theme")
        assert after == before
        assert page.locator(".said").first.inner_text() == "</script>⟨2028⟩w1 <b>"
        assert page.evaluate("document.documentElement.lang") == "zh-CN"


def test_a_saved_pair_opens_where_it_was(tmp_path: Path, opened: Opened) -> None:  # noqa: F811
    page = opened(look_pair(translator(tmp_path), TEXT, TEXT.replace("w5", "w6"), TARGET), last=False)
    assert page.locator(".route").count() == 0
    for key in ("c", "m", "ArrowRight"):
        page.keyboard.press(key)
    with page.expect_download() as download:
        page.locator("[data-do=save]").click()
    download.value.save_as(tmp_path / "saved.html")
    before = chosen(page), page.locator(".readout").all_inner_texts()
    page.goto((tmp_path / "saved.html").as_uri())
    assert (chosen(page), page.locator(".readout").all_inner_texts()) == before
    assert page.locator(".map").count() == 2

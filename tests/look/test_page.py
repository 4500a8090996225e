"""The page in a browser: what is shown is what the data says, by pointer and keyboard, and text stays text."""

import copy
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.look import logit_lens, look, look_pair
from regard.look.html import page as whole_page
from regard.look.html import script, style
from tests.look.small import TEXT, translator, vectors, walked, weights

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync",
             "--disable-component-update"]  # fmt: skip
TARGET = "W5 W4 W3 W2"
HALF = 0.5e-4 + 1e-9  # what rounding to four digits may change
Opened = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as engine:
        found = engine.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield found
        found.close()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Opened]:
    """A page of the data; a test ends with an error where anything was asked for, refused or thrown."""
    wrong: list[str] = []
    made = []

    def opened(data: dict[str, Any], language: str = "en", width: int = 1100, last: bool = True, **options: Any) -> Any:
        path = tmp_path / f"look{len(made)}.html"
        path.write_text(whole_page(data, language), encoding="utf-8")
        page = browser.new_page(viewport={"width": width, "height": 800}, **options)
        made.append(page)
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: request.url.startswith("file:") or wrong.append(request.url))
        page.goto(path.as_uri())
        if last:  # the last layer of the attention to the source, where there is one
            page.keyboard.press("c")
            page.keyboard.press("ArrowDown")
        return page

    yield opened
    for page in made:
        page.close()
    assert not wrong


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    made = translator(tmp_path_factory.mktemp("page"), {"layers": 2, "size": 20, "inner": 16, "heads": 2})
    return look(made, TEXT, TARGET)


def at(data: dict[str, Any], place: int, layer: int, head: int) -> np.ndarray:
    return weights(data["places"][place]["weights"])[layer, head]


def readout(page: Any) -> str:
    return str(page.locator(".readout").inner_text())


def told(page: Any) -> list[float]:
    return [float(number) for number in re.findall(r"\d\.\d{4}", readout(page))]


def chosen(page: Any) -> tuple[str, str, str]:
    """Place, layer and head."""
    picked = [page.locator(f"[data-pick={name}]").input_value() for name in ("layer", "head")]
    return page.locator("[data-choose^=place][aria-pressed=true]").inner_text(), *picked


def largest(row: np.ndarray) -> list[float]:
    return sorted(np.nan_to_num(row), reverse=True)[:5]


# --- pointer and keyboard ------------------------------------------------------------------------------------------


def test_it_opens_where_a_newcomer_begins(data: dict[str, Any], opened: Opened) -> None:
    page = opened(data, last=False)
    assert chosen(page) == ("Encoder", "0", "0")
    about = page.locator(".about")
    assert about.inner_text().count(". ") + 1 == 4
    assert "Point at a word" in about.inner_text()
    assert page.locator(".lines").bounding_box()["width"] > 1000  # of 1100
    assert page.evaluate("document.documentElement.lang") == "en"
    page.keyboard.press("z")
    assert page.evaluate("document.documentElement.lang") == "zh-CN"
    assert about.inner_text().count("。") == 4
    page.keyboard.press("z")
    assert page.evaluate("document.documentElement.lang") == "en"


def test_a_phone_is_told_to_tap(data: dict[str, Any], opened: Opened) -> None:
    page = opened(data, width=390, last=False, has_touch=True, is_mobile=True)
    text = page.locator("body").inner_text()
    assert "Tap a word" in text
    assert "Point" not in text
    assert "press" not in text
    assert page.locator("kbd").count() == 0
    page.locator(".lines ol").first.get_by_role("button", name="w2", exact=True).tap()
    assert readout(page).startswith("“w2” attends to")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_pointing_at_a_word_shows_its_weights(data: dict[str, Any], opened: Opened) -> None:
    page = opened(data)
    assert chosen(page) == ("Cross", "1", "0")
    page.locator(".lines ol").first.get_by_role("button", name="W4", exact=True).hover()
    own = at(data, 2, 1, 0)
    assert readout(page).startswith("“W4” attends to “w")
    assert told(page) == pytest.approx(largest(own[1]), abs=HALF)
    beside = page.locator(".lines ol").last.locator("li").evaluate_all("all => all.map((li) => li.dataset.w)")
    assert [float(text or 0) for text in beside] == pytest.approx(list(own[1]), abs=1e-4)
    page.locator(".lines ol").last.get_by_role("button", name="w2", exact=True).hover()
    assert told(page) == pytest.approx(largest(own[:, 1])[: len(told(page))], abs=HALF)
    assert "is attended to by" in readout(page)
    page.locator("header").hover()  # nothing is pinned
    assert told(page) == []


def test_a_click_keeps_a_word_and_keys_change_layer_head_and_place(data: dict[str, Any], opened: Opened) -> None:
    page = opened(data)
    page.locator(".lines ol").first.get_by_role("button", name="W3", exact=True).click()
    page.locator("header").hover()
    for key, place, layer, head in (
        ("ArrowRight", 2, 1, 1),
        ("ArrowUp", 2, 0, 1),
        ("ArrowLeft", 2, 0, 0),
        ("ArrowDown", 2, 1, 0),
    ):
        page.keyboard.press(key)
        assert chosen(page) == ("Cross", str(layer), str(head))
        assert told(page) == pytest.approx(largest(at(data, place, layer, head)[2]), abs=HALF)
    page.keyboard.press("e")
    assert chosen(page)[0] == "Encoder"
    assert told(page) == []
    for _ in range(3):
        page.keyboard.press("j")
    page.keyboard.press("k")
    assert readout(page).startswith("“w2”")
    assert told(page) == pytest.approx(largest(at(data, 0, 1, 0)[1]), abs=HALF)
    page.keyboard.press("d")
    page.keyboard.press("j")
    assert readout(page).startswith("“<s>” (predicts “W5”) attends to “<s>” 1.0000")
    page.keyboard.press("Escape")
    assert told(page) == []


def test_selects_do_what_keys_do(data: dict[str, Any], opened: Opened) -> None:
    page = opened(data)
    page.locator(".lines ol").first.get_by_role("button").nth(1).click()
    page.get_by_label("Head").select_option("1")
    page.get_by_label("Layer").select_option("0")
    page.locator("header").hover()
    assert told(page) == pytest.approx(largest(at(data, 2, 0, 1)[1]), abs=HALF)


def test_every_view_has_a_key_a_tab_and_a_name(data: dict[str, Any], opened: Opened) -> None:
    page = opened(data)
    for key, name in (("m", "Map"), ("h", "Heads"), ("r", "Rollout"), ("w", "Walk"), ("l", "Lines")):
        page.keyboard.press(key)
        assert page.get_by_role("tab", selected=True).all_inner_texts() == [name]
    for name, inside in (("Map", ".map canvas"), ("Heads", ".grid canvas"), ("Walk", ".steps"), ("Lines", ".lines")):
        page.get_by_role("tab", name=name).click()
        assert page.locator(inside).count() > 0
    unnamed = page.locator("button, select, canvas[role]").evaluate_all(
        "all => all.filter((one) => !(one.ariaLabel || one.textContent || one.labels?.length)).length"
    )
    assert unnamed == 0
    assert page.locator("[role=status][aria-live=polite]").count() == 1
    page.locator("summary").click()
    assert page.locator("dl").get_by_text("layer below, above").is_visible()


def test_the_map_has_a_cell_for_each_weight(data: dict[str, Any], opened: Opened) -> None:
    page = opened(data)
    page.keyboard.press("m")
    own = at(data, 2, 1, 0)
    box, (rows, columns) = page.locator(".cells canvas").bounding_box(), own.shape
    cell = box["width"] / columns
    for i, j in ((0, 0), (3, 2), (4, 5)):
        page.mouse.move(box["x"] + (j + 0.5) * cell, box["y"] + (i + 0.5) * box["height"] / rows)
        queries, keys = (data["places"][2][side] for side in ("queries", "keys"))
        assert readout(page) == f"“{queries[i]}” → “{keys[j]}”: {own[i, j]:.4f}"
    i, j = np.unravel_index(own.argmax(), own.shape)
    colour = page.locator(".cells canvas").evaluate(
        f"(c) => [...c.getContext('2d').getImageData({(j + 0.5) * cell}, {(i + 0.5) * cell}, 1, 1).data]"
    )
    assert colour == [16, 28, 105, 255]
    page.keyboard.press("d")
    hidden = page.locator(".cells canvas").evaluate(
        "(c) => [...c.getContext('2d').getImageData(c.width - 3, 3, 1, 1).data]"
    )
    assert hidden == [236, 238, 243, 255]


def test_a_head_is_chosen_among_all(data: dict[str, Any], opened: Opened) -> None:
    page = opened(data)
    page.keyboard.press("h")
    assert page.locator(".grid button").count() == 4
    page.keyboard.press("ArrowRight")
    assert page.locator(".grid [aria-pressed=true]").get_attribute("aria-label") == "layer 2, head 2"
    page.keyboard.press("z")
    assert page.locator(".grid [aria-pressed=true]").get_attribute("aria-label") == "第 2 层第 2 头"
    page.keyboard.press("z")
    page.get_by_role("button", name="layer 1, head 2").click()
    assert chosen(page) == ("Cross", "0", "1")
    assert page.locator(".map").is_visible()


def test_rollout_is_shown_by_layer(data: dict[str, Any], opened: Opened) -> None:
    page = opened(data)
    page.keyboard.press("r")
    page.keyboard.press("j")
    for layer, key in ((1, "ArrowDown"), (0, "e")):
        own = weights(data["rollout"]["cross"])[layer]
        assert told(page) == pytest.approx(largest(own[0]), abs=HALF)
        page.keyboard.press(key)
    page.keyboard.press("j")
    assert told(page) == pytest.approx(largest(weights(data["rollout"]["encoder"])[0][0]), abs=HALF)
    without = data | {"rollout": {}}
    page = opened(without)
    page.keyboard.press("r")
    assert "follows words through layers" in page.locator(".view").inner_text()


# --- the walk ------------------------------------------------------------------------------------------------------


def table(page: Any, rows: str) -> list[list[str]]:
    return page.locator(rows).evaluate_all("all => all.map((row) => [...row.cells].map((cell) => cell.textContent))")


def numbers(cells: list[str]) -> np.ndarray:
    return np.array([float(cell) for cell in cells])


def walk_is_right(page: Any, data: dict[str, Any], place: str, layer: int, head: int, query: int) -> None:
    """Every number that the walk shows, from the data and from the numbers before it."""
    pressed = page.locator(".chips button").evaluate_all("all => all.map((one) => one.ariaPressed === 'true')")
    assert [n for n, one in enumerate(pressed) if one] == [query]
    step = data["walk"][place][layer]
    found, sums = walked(data, place, layer)
    q, k, v = (vectors(step[name])[head] for name in "qkv")
    recorded = next(each for each in data["places"] if each["name"] == place)
    hidden = np.isnan(weights(recorded["weights"])[layer, head, query])
    own = found[head, query]
    key = int(own.argmax())
    # 3: the chosen key's products and their sum
    terms = table(page, "tr[data-term]")
    width = q.shape[1]
    caption = page.locator("table:has(tr[data-term]) caption").inner_text()
    assert f": all {width} numbers of q and k, the sum of their terms, and all {v.shape[1]} numbers of v" in caption
    assert [[bool(cell) for cell in row[1:]] for row in terms] == [
        [n < width] * 3 + [n < v.shape[1]] for n in range(max(width, v.shape[1]))
    ]
    vector = vectors(step["score"]["vector"])[head] if "vector" in step["score"] else None
    products = q[query] * k[key] if vector is None else vector * np.tanh(q[query] + k[key])
    shown = np.array([numbers(row[1:4]) for row in terms[:width]])
    np.testing.assert_allclose(shown, np.stack([q[query], k[key], products], 1), atol=HALF)
    np.testing.assert_allclose(numbers([row[4] for row in terms[: v.shape[1]]]), v[key], atol=HALF)
    total = float(page.locator("table:has(tr[data-term]) tfoot td").nth(2).inner_text())
    assert total == pytest.approx(products.sum(), abs=HALF)
    assert total == pytest.approx(shown[:, 2].sum(), abs=HALF * width + HALF)  # with a pencil
    # 4: all keys, from score to weight
    scores = table(page, "tr[data-key]")
    head_row = table(page, "table:has(tr[data-key]) thead tr")[0]
    assert len(scores) == len(recorded["keys"]) == k.shape[0]
    final = numbers([row[-1] for row in scores])
    np.testing.assert_allclose(final, own, atol=HALF)
    assert told(page) == sorted(final, reverse=True)[: len(told(page))]  # above the tables stands what they show
    np.testing.assert_allclose(final, np.nan_to_num(weights(recorded["weights"])[layer, head, query]), atol=5e-4)
    raw = numbers([row[1] for row in scores])
    assert raw[key] == pytest.approx(total, abs=1e-9)
    if step["score"]["kind"] == "scaled_dot":
        assert head_row[2] == f"÷ √{step['d_k']}"
        text = page.locator(".steps").inner_text()
        assert f"√d_k = {step['d_k'] ** 0.5:.4f}" in text
        assert re.search(rf"× {step['d_k']} and \d+ × {step['d_v']}\) are not shown", text)
        np.testing.assert_allclose(numbers([row[2] for row in scores]), raw / step["d_k"] ** 0.5, atol=2 * HALF)
    if "bias" in step:
        place_of = head_row.index("+ position")
        before, added, after = (numbers([row[place_of + n] for row in scores]) for n in (-1, 0, 1))
        np.testing.assert_allclose(added, vectors(step["bias"])[head, query], atol=HALF)
        np.testing.assert_allclose(after, before + added, atol=3 * HALF)
    if step["normalise"]["kind"] == "softmax":
        place_of = head_row.index("exp(s − max)")
        assert [row[place_of - 1] == "−∞" for row in scores] == list(hidden)
        exps = numbers([row[place_of] for row in scores])
        seen = numbers([row[place_of - 1] for row, gone in zip(scores, hidden, strict=True) if not gone])
        np.testing.assert_allclose(exps[~hidden], np.exp(seen - seen.max()), atol=3 * HALF)
        assert (exps[hidden] == 0).all()
        sum_of = float(page.locator("table:has(tr[data-key]) tfoot td").nth(place_of - 1).inner_text())
        assert sum_of == pytest.approx(exps.sum(), abs=HALF * len(exps) + HALF)
        if "gain" not in step:
            np.testing.assert_allclose(final, exps / sum_of, atol=3 * HALF)
    # 5: values by their weights
    values = table(page, "tr[data-value]")
    count = min(8, v.shape[1])
    parts = np.array([numbers(row[2:]) for row in values])
    np.testing.assert_allclose(parts[: len(own)], own[:, None] * v[:, :count], atol=HALF)
    out = numbers(page.locator("table:has(tr[data-value]) tfoot td").all_inner_texts()[1:])
    np.testing.assert_allclose(out, sums[head, query, :count], atol=HALF)
    np.testing.assert_allclose(out, parts.sum(0), atol=HALF * len(parts) + HALF)


def test_the_sums_of_the_walk_add_up(data: dict[str, Any], opened: Opened) -> None:
    page = opened(data)
    page.keyboard.press("w")
    walk_is_right(page, data, "cross", 1, 0, 0)
    page.keyboard.press("j")
    page.keyboard.press("ArrowRight")
    walk_is_right(page, data, "cross", 1, 1, 1)
    assert "reads “W5” and predicts “W4”" in page.locator(".steps").inner_text()
    page.keyboard.press("d")
    page.get_by_role("button", name="W4", exact=True).click()
    page.keyboard.press("ArrowDown")
    walk_is_right(page, data, "decoder", 0, 1, 2)
    page.keyboard.press("e")
    for _ in range(3):
        page.keyboard.press("j")
    walk_is_right(page, data, "encoder", 0, 1, 3)
    parts = {row[0]: numbers(row[1:]) for row in table(page, "tr[data-part]")}
    np.testing.assert_allclose(parts["sum"], parts["word"] + parts["position"], atol=2 * HALF)
    page.locator("tr[data-key='5']").click()  # another key's products
    step = data["walk"]["encoder"][0]
    expected = vectors(step["q"])[1, 3] @ vectors(step["k"])[1, 5]
    assert float(page.locator("table:has(tr[data-term]) tfoot td").nth(2).inner_text()) == pytest.approx(
        expected, abs=HALF
    )


@pytest.mark.parametrize(
    "model, said",
    [
        ({"position": {"kind": "relative", "distance": 2}}, ["+ position", "relative positions add"]),
        ({"position": "rotary", "attention": {"score": "cosine"}}, ["turned by their positions", "‖q‖‖k‖"]),
        ({"attention": {"score": "additive", "normalise": "entmax"}}, ["Σ v·tanh", "entmax"]),
        ({"attention": {"normalise": "sparsemax", "d_v": 3}}, ["sparsemax", "3 of 3 numbers"]),
        ({"attention": {"normalise": "hard"}}, ["1 at argmax s"]),
        ({"attention": {"cross": {"pattern": "local_p(2)"}}}, ["× nearness"]),
        ({"kind": "rnn", "preset": "bahdanau", "size": 8}, ["There are no projections", "goes on with this vector"]),
        ({"kind": "conv", "layers": 1, "size": 8}, ["come between this and the attention"]),
    ],
    ids=lambda given: None if isinstance(given, list) else " ".join(re.findall(r"[a-z_0-9]+", str(given))),
)
def test_the_walk_is_true_for_other_choices(
    model: dict[str, Any], said: list[str], tmp_path: Path, opened: Opened
) -> None:
    small = {} if "kind" in model else {"layers": 1, "size": 8, "inner": 8, "heads": 2}
    data = look(translator(tmp_path, small | model), TEXT, TARGET)
    page = opened(data)
    text = ""
    page.keyboard.press("w")
    for place in [each["name"] for each in data["places"]]:
        page.keyboard.press(place[0])
        for _ in range(2):
            page.keyboard.press("j")
        walk_is_right(page, data, place, 0, 0, 2)
        text += page.locator(".steps").inner_text()
    for sentence in said:
        assert sentence in text


def shown_rows(page: Any, name: str) -> dict[str, np.ndarray]:
    return {row[0]: numbers(row[1:]) for row in table(page, f"tr[data-{name}]")}


def test_the_walk_goes_on_to_the_words(data: dict[str, Any], opened: Opened) -> None:
    """All heads, projection, residual and norm, feed-forward, and the scores of words."""
    page = opened(data)
    page.keyboard.press("w")
    page.keyboard.press("j")
    _, sums = walked(data, "cross", 1)
    after = data["walk"]["cross"][1]["after"]
    added = np.einsum("hv,hdv->hd", sums[:, 1], vectors(after["output"]["weight"]))
    heads = shown_rows(page, "head")
    np.testing.assert_allclose(np.stack([heads["Head 1"], heads["Head 2"]]), added, atol=HALF)
    y = numbers(page.locator("table:has(tr[data-head]) tfoot td").all_inner_texts())
    np.testing.assert_allclose(y, sum(heads.values()), atol=HALF * 4)
    lines = table(page, "tr[data-vector]")
    assert [line[0] for line in lines] == ["x", "y = f(…)", "s = x + y", "norm(s)"] * 2
    for n, part in enumerate(after["parts"]):
        x, own, out = vectors(part["vectors"])[:, 1]
        shown = [numbers(line[1:]) for line in lines[4 * n : 4 * n + 4]]
        np.testing.assert_allclose(shown[:3], [x, own, x + own], atol=HALF)
        np.testing.assert_allclose(shown[3], out, atol=2e-3)
    np.testing.assert_allclose(shown_rows(page, "inner")["y"], own, atol=HALF)
    assert (
        f"16 inner numbers, of which {after['parts'][1]['feed_forward']['above'][1]} are above 0"
        in page.locator(".steps").inner_text()
    )
    for step, formula in (("heads", "Wᴼ"), ("residual", "norm(x + f(x))"), ("feed_forward", "max(0, xW₁ + b₁)")):
        text = page.locator(f".formula[data-step={step}]").first.inner_text()
        assert formula in text
        assert data["walk"]["cross"][1]["sources"][step] in text
    page.keyboard.press("ArrowDown")
    assert "Layer 2 goes on with this vector" in page.locator(".steps").inner_text()
    assert page.locator("tr[data-word]").count() == 0
    page.keyboard.press("d")
    assert "(Cross) goes on with this vector" in page.locator(".steps").inner_text()


def test_temperature_and_top_k_move_the_words(data: dict[str, Any], opened: Opened) -> None:
    page = opened(data)
    page.keyboard.press("w")
    logits = vectors(data["walk"]["scores"]["logits"])[0, 0]

    def chances() -> np.ndarray:
        return numbers([row[2] for row in table(page, "tr[data-word]")])

    def slide(name: str, value: float) -> None:
        page.locator(f"[data-slide={name}]").fill(str(value))

    np.testing.assert_allclose([float(row[1]) for row in table(page, "tr[data-word]")], logits[:12], atol=HALF)
    first = chances()
    slide("k", 3)
    wanted = np.exp(logits[:3] - logits[0]) / np.exp(logits[:3] - logits[0]).sum()
    np.testing.assert_allclose(chances(), [*wanted, *[0] * 9], atol=HALF)
    slide("temperature", 0.5)
    wanted = np.exp(2 * (logits[:3] - logits[0])) / np.exp(2 * (logits[:3] - logits[0])).sum()
    np.testing.assert_allclose(chances()[:3], wanted, atol=HALF)
    page.keyboard.press("Escape")
    slide("k", int(page.locator("[data-slide=k]").get_attribute("max")))
    assert chances()[0] > first[0]
    rest = float(page.locator("table:has(tr[data-word]) tfoot td").nth(1).inner_text())
    assert chances().sum() + rest == pytest.approx(1, abs=1e-3)


def test_keys_go_on_from_what_the_walk_shows(data: dict[str, Any], opened: Opened) -> None:
    """The walk shows a word, and a key, before any is chosen."""
    queries, keys = (len(data["places"][2][side]) for side in ("queries", "keys"))
    for key, query in (("j", 1), ("k", queries - 1)):
        page = opened(data)
        page.keyboard.press("w")
        page.keyboard.press(key)
        walk_is_right(page, data, "cross", 1, 0, query)
    best = int(walked(data, "cross", 1)[0][0, 0].argmax())
    for key, by in (("n", 1), ("b", -1)):
        page = opened(data)
        page.keyboard.press("w")
        page.keyboard.press(key)
        assert page.locator("tr[data-key].on").get_attribute("data-key") == str((best + by) % keys)
    page.keyboard.press("l")
    page.keyboard.press("Escape")
    page.keyboard.press("j")  # lines choose no word by themselves
    assert told(page) == pytest.approx(largest(at(data, 2, 1, 0)[0]), abs=HALF)


def test_a_walk_that_was_left_out_is_told(data: dict[str, Any], opened: Opened) -> None:
    page = opened(data | {"walk": {"left_out": "size"}})
    page.keyboard.press("w")
    assert "too large" in page.locator(".view").inner_text()
    page = opened(data | {"walk": {"left_out": "Strange"}})
    page.keyboard.press("w")
    assert "does not know the choice Strange" in page.locator(".view").inner_text()


# --- two texts -----------------------------------------------------------------------------------------------------


def test_a_pair_is_shown_side_by_side(tmp_path: Path, opened: Opened) -> None:
    pair = look_pair(translator(tmp_path), TEXT, TEXT.replace("w5", "w6"), TARGET)
    page = opened(pair, last=False, width=1280)
    sides = page.locator(".columns > div")
    assert [sides.nth(n).locator(".said").first.inner_text() for n in (0, 1)] == [
        look["text"] for look in pair["looks"]
    ]
    first = sides.nth(0).bounding_box(), sides.nth(1).bounding_box()
    assert first[0]["y"] == first[1]["y"]
    assert first[0]["x"] + first[0]["width"] <= first[1]["x"]

    def both(place: int, layer: int, head: int, query: int) -> None:
        for side in (0, 1):
            own = weights(pair["looks"][side]["places"][place]["weights"])[layer, head][query]
            shown = sides.nth(side).locator(".readout").inner_text()
            assert [float(n) for n in re.findall(r"\d\.\d{4}", shown)] == pytest.approx(largest(own), abs=HALF)

    names = [each["name"] for each in pair["looks"][0]["places"]]
    for n in (0, 3):
        head = pair["moved"]["heads"][n]
        page.locator(".moved button").nth(n).click()
        assert page.locator(".moved [aria-pressed=true]").count() == 1
        both(names.index(head["place"]), head["layer"] - 1, head["head"] - 1, head["query"][0])
        before, after = head["weights"]
        marked = sides.nth(1).locator(".lines ol").last.locator("li").nth(head["key"][1]).get_attribute("data-w")
        assert marked == f"{after:.4f} ({'+' if after > before else '−'}{abs(after - before):.2f})"
    page.keyboard.press("e")
    page.keyboard.press("j")
    page.keyboard.press("ArrowRight")
    both(0, pair["moved"]["heads"][3]["layer"] - 1, (pair["moved"]["heads"][3]["head"]) % 2, 0)
    page.keyboard.press("t")
    page.keyboard.press("z")
    themes = page.locator(".regard-look").evaluate_all("all => all.map((one) => [one.dataset.theme, one.lang])")
    assert themes == [["dark", "zh-CN"]] * 3
    for key in "mhrw":
        page.keyboard.press(key)
        assert page.locator(".columns .view > *").count() >= 2
        assert not re.search(r"\{\w\}|undefined|NaN", page.locator("body").inner_text())
    assert page.locator(".columns h3").count() % 2 == 0
    narrow = opened(pair, last=False, width=390)
    boxes = [narrow.locator(".columns > div").nth(n).bounding_box() for n in (0, 1)]
    assert boxes[0]["x"] == boxes[1]["x"]
    assert boxes[1]["y"] > boxes[0]["y"]
    assert narrow.evaluate("document.documentElement.scrollWidth") <= 390


# --- asking for more -----------------------------------------------------------------------------------------------


def test_a_head_that_is_off_is_named(tmp_path: Path, opened: Opened) -> None:
    given = look(translator(tmp_path), TEXT, ablate=["cross.2.1"])
    page = opened(given)
    assert page.locator(".ablated").inner_text().startswith("Switched off: Cross, layer 2, head 1. With all heads: ")
    assert page.locator("[data-do=ablate], form").count() == 0  # a file cannot compute
    page.keyboard.press("w")
    off = table(page, "tr[data-head]")[0]
    assert off[0] == "Head 1 (off)"
    assert set(off[1:]) == {"0.0000"}
    page.keyboard.press("z")
    assert "已关闭：交叉第 2 层第 1 头" in page.locator(".ablated").inner_text()


def test_another_text_and_a_head_off_where_a_model_answers(tmp_path: Path, browser: Any) -> None:
    """As inside the server's page: `ask` gives the data of another look, or an error."""
    made = translator(tmp_path)
    page = browser.new_page()
    page.set_content(f'<div id="a"></div><style>{style()}</style>')
    page.add_script_tag(content=script())
    asked: list[dict[str, Any]] = []

    def ask(given: dict[str, Any]) -> Any:
        asked.append(given)
        return look(made, given["text"], ablate=given["ablate"])

    page.expose_function("ask", ask)
    first = look(made, TEXT)
    page.evaluate(
        "(data) => { regardLook(document.getElementById('a'), data, {compact: true, language: 'en', ask}); }", first
    )
    switch = page.get_by_role("button", name="Switch this head off")
    switch.click()
    playwright.expect(switch).to_have_attribute("aria-pressed", "true")
    assert asked == [{"text": TEXT, "ablate": ["encoder.1.1"]}]
    assert "Encoder, layer 1, head 1" in page.locator(".ablated").inner_text()
    page.get_by_label("Text").fill("w3 w1")
    page.get_by_role("button", name="Show").click()
    playwright.expect(page.locator(".lines ol").first.locator("button")).to_have_text(["w3", "w1", "</s>"])
    assert asked[-1] == {"text": "w3 w1", "ablate": ["encoder.1.1"]}
    switch.click()
    playwright.expect(page.locator(".ablated")).to_have_count(0)
    page.get_by_label("Text").fill("w1 " * 300)
    page.get_by_role("button", name="Show").click()
    playwright.expect(page.locator(".told")).to_contain_text("more than the 200")
    page.close()


# --- looks ---------------------------------------------------------------------------------------------------------


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_what_each_layer_would_say(tmp_path: Path, opened: Opened) -> None:
    made = translator(tmp_path, {"layers": 2, "size": 20, "inner": 16, "heads": 2})
    lens = logit_lens(made, TEXT, TARGET)
    page = opened({**look(made, TEXT, TARGET), "lens": lens}, last=False)
    assert page.get_by_role("tab", selected=True).all_inner_texts() == ["After layers"]
    rows = page.locator(".lens tbody tr")
    assert rows.count() == len(lens["rows"])
    for n, row in enumerate(lens["rows"]):
        cells = rows.nth(n).locator("td")
        assert cells.count() == len(lens["stages"])
        settled = cells.evaluate_all("all => all.map((one) => one.className === 'settled')")
        assert settled == [stage >= row["settled"] for stage in range(len(lens["stages"]))]
    rows.nth(1).locator("button").nth(2).hover()
    first = lens["rows"][1]["stages"][2]
    assert f"{first['probabilities'][0]:.2f}" in readout(page)
    assert f"{first['probability']:.4f}" in readout(page)
    page.keyboard.press("l")
    assert page.locator(".lines").count() == 1
    page.keyboard.press("a")
    assert page.locator(".lens").count() == 1
    page.keyboard.press("z")
    assert "前馈" in page.locator(".lens thead").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_can_be_read(scheme: str, data: dict[str, Any], opened: Opened) -> None:
    page = opened(data, color_scheme=scheme)
    style_of = "(one) => [getComputedStyle(one).color, getComputedStyle(one).backgroundColor]"
    ground = page.locator(".regard-look").evaluate(style_of)[1]
    assert (luminance(ground) < 0.05) == (scheme == "dark")
    for selector in (".said", ".soft", ".note", ".readout", ".bar [aria-selected=true]", "[data-do=language]"):
        ink, own = page.locator(selector).first.evaluate(style_of)
        behind = ground if own.endswith(" 0)") else own
        high, low = sorted((luminance(ink), luminance(behind)), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, selector
    page.keyboard.press("t")
    assert page.locator(".regard-look").get_attribute("data-theme") != scheme
    page.get_by_role("button", name="Light or dark").click()
    assert page.locator(".regard-look").get_attribute("data-theme") == scheme
    page.emulate_media(color_scheme="dark" if scheme == "light" else "light")
    playwright.expect(page.locator(".regard-look")).not_to_have_attribute("data-theme", scheme)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    made = translator(tmp_path_factory.mktemp("long"), {"layers": 1, "size": 8, "inner": 8, "heads": 2})
    return look(made, "w1 w2 w3 " * 40, "W1 W2 " * 60)


@pytest.mark.parametrize("width", [360, 1000])
def test_any_length_fits_any_width(width: int, data: dict[str, Any], long: dict[str, Any], opened: Opened) -> None:
    for given in (data, long):
        page = opened(given, width=width)
        for key in "lmhrw":
            page.keyboard.press(key)
            page.keyboard.press("j")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, key
        assert page.locator("tr[data-key]").count() == len(given["places"][2]["keys"])
        page.keyboard.press("m")
        size = page.locator(".left .label").first.evaluate("(one) => parseFloat(getComputedStyle(one).fontSize)")
        assert size >= 10


def test_chinese(data: dict[str, Any], opened: Opened) -> None:
    given = copy.deepcopy(data)
    for place in given["places"]:
        place["queries"] = ["你好", "世界", *place["queries"][2:]]
    page = opened(given, language="zh")
    assert page.get_by_role("tab").all_inner_texts() == ["连线", "热图", "各头", "累积", "演算"]
    page.keyboard.press("j")
    assert readout(page).startswith("“你好” 关注 “")
    page.keyboard.press("z")
    assert page.get_by_role("tab", name="Lines").is_visible()
    assert readout(page).startswith("“你好” attends to “")
    page.get_by_role("button", name="中文").click()
    page.keyboard.press("w")
    assert "加权和" in page.locator(".steps").inner_text()
    caption = page.locator("table:has(tr[data-term]) caption").inner_text()
    assert caption.endswith("：q、k 的全部 10 个数，各项之和，以及 v 的全部 10 个数")
    assert "w1a" not in page.locator(".steps").inner_text()
    assert not re.search(r"\{\w\}|undefined", page.locator(".regard-look").inner_text())
    assert opened(data, language="", locale="zh-CN").get_by_role("tab", name="热图").is_visible()


# --- text stays text, and the page stays in its place --------------------------------------------------------------

HOSTILE = [
    "</script><script>window.hacked=1</script>",
    "<img src=x onerror='window.hacked=1'>",
    "a\u2028b\u2029c",
    "\u202eright to left\u2066",
    "\x00\x07\x1b[31m",
    "<!--<script>",
    "${alert(1)} {l} $& \\u003c",
    "",
]


def test_the_heading_speaks_the_language_of_the_page(data: dict[str, Any], opened: Opened) -> None:
    assert opened(data).locator("header p").first.inner_text() == data["model"]["title"]
    chinese = opened(data, language="zh").locator("header p").first.inner_text()
    assert chinese == "transformer · 翻译 en→de · 层数 × 头数 2 × 2"
    recurrent = copy.deepcopy(data)
    recurrent["model"]["recurrence"] = "SSRU"
    chinese = opened(recurrent, language="zh").locator("header p").first.inner_text()
    assert chinese.endswith(" · 解码器用 SSRU 代替自注意力，没有权重")


@pytest.mark.parametrize("width, columns", [(390, 1), (1280, 2)])
def test_the_walk_uses_the_width(width: int, columns: int, data: dict[str, Any], opened: Opened) -> None:
    page = opened(data, width=width)
    page.keyboard.press("w")
    steps = page.locator(".steps section")
    assert steps.locator("h3").count() == steps.count() == 10
    left = {round(steps.nth(n).bounding_box()["x"]) for n in range(steps.count())}
    assert len(left) == columns
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_text_is_shown_as_text(data: dict[str, Any], opened: Opened) -> None:
    given = copy.deepcopy(data)
    given["text"], given["output"] = "\n".join(HOSTILE), HOSTILE[0] + HOSTILE[3]
    given["model"]["languages"] = HOSTILE[1]
    for place in given["places"]:
        for side in ("queries", "keys"):
            place[side] = (HOSTILE * 2)[: len(place[side])]
    page = opened(given)
    for key in "lmhrw":
        page.keyboard.press(key)
        page.keyboard.press("j")
    assert page.evaluate("window.hacked") is None
    assert page.locator("img, script:not([id]) ~ script").count() == 0
    assert page.evaluate("document.scripts.length") == 2
    said = page.locator(".said").first.inner_text()
    assert HOSTILE[0] in said
    assert "⟨202e⟩right to left⟨2066⟩" in said
    assert "⟨0000⟩⟨0007⟩⟨001b⟩[31m" in said
    page.keyboard.press("e")
    page.keyboard.press("l")
    words = page.locator(".lines ol").first.locator("button").all_inner_texts()
    assert words[:4] == [HOSTILE[0], HOSTILE[1].replace(" ", "▁"), "a⟨2028⟩b⟨2029⟩c", "⟨202e⟩right▁to▁left⟨2066⟩"]
    source = whole_page(given)
    assert source.count("</script>") == 2
    assert "\u2028" not in source
    assert "\u202e" not in source.split("</title>")[1]


@pytest.mark.parametrize(
    "output, said",
    [("\n", "⟨000a⟩"), (" \t", "⟨0020⟩⟨0009⟩"), ("\u3000a b\nc\n\n", "⟨3000⟩a b\nc⟨000a⟩⟨000a⟩"), ("a b", "a b")],
)
def test_space_at_the_ends_is_shown(output: str, said: str, data: dict[str, Any], opened: Opened) -> None:
    """What a model of characters says is often a line end, and a text it goes on with may end in one."""
    page = opened(data | {"text": output, "output": output})
    assert page.locator(".said").all_inner_texts() == [said, f"→ {said}"]


def test_inside_another_page_under_a_strict_policy(data: dict[str, Any], browser: Any) -> None:
    """Two of them; they leave no other name, hear no key that is not theirs, and go without a trace."""
    page = browser.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'"
    files = {
        "/": ("text/html", '<!doctype html><link rel="stylesheet" href="/look.css"><h2>Other</h2><div id="a"></div>'
              '<div id="b"></div><input><script src="/look.js"></script>'),
        "/look.js": ("text/javascript", script()),
        "/look.css": ("text/css", style()),
    }  # fmt: skip

    def serve(route: Any) -> None:
        kind, body = files.get("/" + route.request.url.split("/", 3)[3], ("text/plain", ""))
        route.fulfill(body=body, headers={"content-type": f"{kind}; charset=utf-8", "content-security-policy": policy})

    page.route("**/*", serve)
    page.goto("http://look.test/")
    before = page.evaluate("Object.keys(globalThis).length")
    assert page.evaluate("typeof regardLook") == "function"
    mount = """(data) => {
        window.first = regardLook(document.getElementById("a"), data, {compact: true, language: "en"});
        window.second = regardLook(document.getElementById("b"), data, {compact: true, language: "zh"}); }"""
    page.evaluate(mount, data)
    assert page.evaluate("Object.keys(globalThis).length") == before + 2  # the two of this test
    assert page.locator("header").count() == 0
    page.locator("input").focus()
    page.keyboard.press("m")
    assert page.locator(".map").count() == 0
    page.locator("#a [role=tab]").first.focus()
    page.keyboard.press("m")
    assert [page.locator(f"#{name} .map").count() for name in "ab"] == [1, 0]
    plain = page.locator("h2").evaluate("(one) => getComputedStyle(one).color")
    assert plain == "rgb(0, 0, 0)"
    page.evaluate("first.destroy(), second.destroy()")
    assert page.locator(".regard-look").count() == 0
    page.close()
    assert not [text for text in wrong if "favicon" not in text]

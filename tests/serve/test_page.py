"""The page at `/` in a browser, before a server that says what the test wants: see stub.py."""

import re
import shutil
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.serve.stub import ALL, Refusal, Stub, translate

api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync"]  # fmt: skip
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here")
GOAT = "The goat couldn't carry the basket because it was too thirsty."
STREET = "The animal didn't cross the capital because it was too tired."
ZIEGE = "Die Ziege konnte den Korb nicht tragen, weil sie zu durstig war."
TABS = ["translate", "chat", "story", "fill", "classify", "tag", "answer", "choose"]
NASTY = "<img src=x onerror=alert(1)><b>bold</b>"
expect: Any = api.expect
expect.set_options(timeout=20_000)  # the machine may be busy


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        yield browser
        browser.close()


@pytest.fixture
def stub() -> Iterator[Stub]:
    stub = Stub()
    yield stub
    for event in stub.held.values():
        event.set()
    stub.stop()


class Visit:
    """A page, and what went wrong on it: nothing may, but what a test says."""

    def __init__(self, browser: Any, **context: Any) -> None:
        self.page = browser.new_context(**{"locale": "en-GB", **context}).new_page()
        self.page.set_default_timeout(20_000)
        self.wrong: list[str] = []
        self.dropped: list[str] = []
        self.hosts: set[str] = set()
        self.page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", lambda request: self.hosts.add(re.sub(r"^\w+://|/.*", "", request.url)))
        self.page.on("requestfailed", lambda request: self.dropped.append(request.post_data or request.url))

    def panel(self, name: str) -> Any:
        self.page.click(f"#tab-{name}")
        return self.page.locator(f"#panel-{name}")


@pytest.fixture
def visit(browser: Any, stub: Stub, request: pytest.FixtureRequest) -> Iterator[Visit]:
    visit = Visit(browser, **getattr(request, "param", {}))
    visit.page.goto(stub.url)
    yield visit
    visit.page.context.close()
    assert not visit.wrong
    assert visit.hosts == {f"127.0.0.1:{stub.port}"}


def write(visit: Visit, text: str) -> None:
    visit.page.get_by_label("Text to translate").fill(text)


# --- translation ---------------------------------------------------------------------------------------------------


def test_each_line_stands_beside_its_translation(visit: Visit, stub: Stub) -> None:
    write(visit, f"{GOAT}\n\nEvery evening my sister washes her car.\n")
    pairs = visit.page.locator(".pair")
    expect(pairs.locator(".to")).to_have_text([ZIEGE, "Jeden Abend wäscht meine Schwester ihr Auto."])
    expect(pairs.locator(".from")).to_have_text([GOAT, "Every evening my sister washes her car."])
    expect(pairs.first.locator(".to")).to_have_attribute("lang", "de")
    write(visit, f"{GOAT}\nA new line.")
    expect(pairs.locator(".to")).to_have_text([ZIEGE, "A NEW LINE."])
    assert stub.bodies("translate")[-1] == {"text": ["A new line."], "model": "en-de"}  # the goat is known


def test_a_long_line_is_translated_by_sentence_and_copied_as_a_line(visit: Visit) -> None:
    visit.page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    sentence = f"Dr. Berg reads {'very ' * 30}long books. "
    write(visit, f"{sentence * 2}\n\nShort. Line.")
    expect(visit.page.locator(".to")).to_have_text([sentence.strip().upper()] * 2 + ["SHORT. LINE."])
    visit.page.get_by_role("button", name="Copy everything").click()
    visit.page.wait_for_function("window.copied")
    assert visit.page.evaluate("window.copied") == f"{(sentence * 2).strip().upper()}\n\nSHORT. LINE."


def test_nothing_is_asked_while_keys_are_pressed(browser: Any, stub: Stub) -> None:
    visit = Visit(browser)
    visit.page.clock.install(time=0)
    visit.page.goto(stub.url)
    visit.page.clock.pause_at(3600)
    for _ in range(3):
        visit.page.get_by_label("Text to translate").press_sequentially("abc ")
        visit.page.clock.run_for(240)
    assert stub.bodies("translate") == []
    visit.page.clock.run_for(20)
    expect(visit.page.locator(".to")).to_have_text("ABC ABC ABC")
    assert [body["text"] for body in stub.bodies("translate")] == [["abc abc abc"]]
    visit.page.context.close()


def test_a_stale_answer_is_dropped(visit: Visit, stub: Stub) -> None:
    with visit.page.expect_request("**/v1/translate"):
        stub.held["slow"] = threading.Event()
        write(visit, "slow one")
    write(visit, "quick")
    expect(visit.page.locator(".to")).to_have_text("QUICK")
    assert ["slow one" in body for body in visit.dropped] == [True]
    stub.held["slow"].set()
    write(visit, "quick\nlast")
    expect(visit.page.locator(".to")).to_have_text(["QUICK", "LAST"])


def test_alternatives_are_shown_with_scores_and_can_be_taken(visit: Visit) -> None:
    write(visit, GOAT)
    more = visit.page.get_by_role("button", name="Alternatives")
    more.click()
    options = visit.page.locator(".alternatives button")
    expect(options.locator(".number")).to_have_text(["−0.12", "−0.57", "−0.65"])
    expect(options.locator("em")).to_have_text(["hungrig"])
    expect(options.first).to_have_attribute("aria-pressed", "true")
    options.nth(1).click()
    expect(visit.page.locator(".to")).to_have_text(ZIEGE.replace("durstig", "hungrig"))
    expect(options.nth(1)).to_have_attribute("aria-pressed", "true")
    more.click()
    expect(options.first).to_be_hidden()
    write(visit, f"{GOAT}\nanother line")
    expect(visit.page.locator(".to")).to_have_text([ZIEGE.replace("durstig", "hungrig"), "ANOTHER LINE"])  # it stays


def lit(visit: Visit, line: str) -> dict[str, float]:
    """Words of a line that are lit, and how much."""
    read = "words => words.map(word => [word.textContent, Number(word.style.getPropertyValue('--weight'))])"
    return {word: weight for word, weight in visit.page.locator(f".{line} .word").evaluate_all(read) if weight}


def test_pointing_at_a_word_lights_what_it_attended_to(visit: Visit, stub: Stub) -> None:
    write(visit, "goats carry baskets")
    caption = visit.page.locator(".caption")
    visit.page.locator(".to .word").nth(2).hover()
    expect(caption).to_have_text("“BASKETS” looks at baskets 75 %")  # of two pieces: one asks each, both are summed
    assert lit(visit, "from") == {"baskets": 1.0}
    assert lit(visit, "to") == {}
    assert stub.bodies("look") == [{"text": "goats carry baskets", "target": "GOATS CARRY BASKETS", "model": "en-de"}]
    visit.page.locator(".from .word").nth(0).hover()  # itself 0.5, the second piece 0.3, the end 0.2
    expect(caption).to_have_text("“goats” looks at goats 50 %, carry 30 %; seen by GOATS 75 %")
    assert lit(visit, "from") == {"goats": 1.0, "carry": 0.6}
    assert lit(visit, "to") == {"GOATS": 1.0}
    visit.page.get_by_label("Text to translate").hover()
    expect(caption).to_contain_text("Point at a word")
    assert lit(visit, "from") == lit(visit, "to") == {}
    assert len(stub.bodies("look")) == 1


@pytest.mark.parametrize("visit", [{"has_touch": True, "viewport": {"width": 360, "height": 740}}], indirect=True)
def test_a_tap_shows_it_until_the_next(visit: Visit) -> None:
    write(visit, "goats carry baskets")
    visit.page.locator(".to .word").nth(1).tap()
    expect(visit.page.locator(".caption")).to_have_text("“CARRY” looks at carry 75 %")
    visit.page.locator(".to .word").nth(0).tap()
    expect(visit.page.locator(".caption")).to_have_text("“GOATS” looks at goats 75 %")
    visit.page.get_by_label("Text to translate").tap()
    expect(visit.page.locator(".caption")).to_contain_text("Point at a word")


def test_arrow_keys_go_from_word_to_word(visit: Visit) -> None:
    write(visit, "goats carry baskets")
    expect(visit.page.locator(".to")).to_have_text("GOATS CARRY BASKETS")
    visit.page.locator(".to").focus()
    heard = visit.page.locator(".pair > [aria-live]").last
    for key, word in [("ArrowRight", "GOATS"), ("ArrowRight", "CARRY"), ("End", "BASKETS"), ("ArrowLeft", "CARRY")]:
        visit.page.keyboard.press(key)
        expect(heard).to_have_text(f"“{word}” looks at {word.lower()} 75 %")
        expect(visit.page.locator(".word.current")).to_have_text(word)
    visit.page.keyboard.press("Escape")
    expect(visit.page.locator(".word.current")).to_have_count(0)


@pytest.mark.parametrize(
    "pieces, text, owners",
    [
        (["▁The", "▁bas", "ket", ".", "</s>"], "The basket.", [0, 1, 1, -1, -1]),
        (["un@@", "known", "<unk>", "it"], "unknown ☃ it", [0, 0, -1, 1]),
        (["[CLS]", "play", "##ing", "the"], "Playing the", [-1, 0, 0, 1]),
        (["▁", "山羊", "搬", "不", "动", "。"], "山羊搬不动。", [-1, 0, 1, 2, 2, -1]),
    ],
)
def test_pieces_find_their_words(visit: Visit, pieces: list[str], text: str, owners: list[int]) -> None:
    script = "async ([pieces, text]) => (await import('/static/attention.js')).wordOfPiece(pieces, text)"
    assert visit.page.evaluate(script, [pieces, text]) == owners


# --- the other tabs ------------------------------------------------------------------------------------------------


def test_tabs_follow_the_keyboard(visit: Visit) -> None:
    tabs = visit.page.get_by_role("tab")
    expect(tabs).to_have_text(["Translate", "Chat", "Story", "Fill gaps", "Classify", "Tags", "Answers", "Choices"])
    tabs.first.focus()
    for key, name in [("ArrowRight", "chat"), ("End", "choose"), ("ArrowRight", "translate"), ("ArrowLeft", "choose"),
                      ("Home", "translate")]:  # fmt: skip
        visit.page.keyboard.press(key)
        expect(visit.page.locator(f"#tab-{name}")).to_be_focused()
        expect(visit.page.locator("[role=tab][aria-selected=true]")).to_have_id(f"tab-{name}")
        expect(visit.page.locator("[role=tabpanel]:not([hidden])")).to_have_id(f"panel-{name}")
    visit.page.goto(visit.page.url.split("#")[0] + "#fill")
    expect(visit.page.get_by_role("tabpanel")).to_have_id("panel-fill")


def test_only_what_models_can_do_is_shown(browser: Any, stub: Stub) -> None:
    stub.models = [{"name": "e", "title": "", "can": ["embed"]}]
    visit = Visit(browser)
    visit.page.goto(stub.url)
    expect(visit.page.locator("main")).to_contain_text("No model here")
    stub.models = ALL[:1]
    visit.page.reload()
    expect(visit.page.get_by_label("Text to translate")).to_be_visible()
    expect(visit.page.get_by_role("tablist")).to_be_hidden()
    stub.models = [ALL[0], {**ALL[0], "name": "second", "can": ["translate"]}]
    visit.page.reload()
    write(visit, "one")
    expect(visit.page.get_by_role("button", name="Attention")).to_be_visible()
    visit.page.get_by_label("Model", exact=True).select_option("second")
    expect(visit.page.get_by_role("button", name="Attention")).to_be_hidden()
    assert [body["model"] for body in stub.bodies("translate")] == ["en-de", "second"]
    assert not visit.wrong
    visit.page.context.close()


def test_a_story_appears_as_it_is_written_and_stops(visit: Visit, stub: Stub) -> None:
    stub.endless = True
    panel = visit.panel("story")
    panel.get_by_label("Model", exact=True).select_option("novels")
    panel.get_by_label("Beginning").fill("Once")
    panel.get_by_role("button", name="Write").click()
    expect(panel.locator(".page")).to_contain_text("OnceThere was a lighthouse.more more ")
    panel.get_by_role("button", name="Stop").click()
    assert stub.gone.wait(20)  # the server need not write on
    expect(panel.get_by_role("button", name="Write")).to_be_visible()
    text = panel.locator(".page").text_content()
    stub.endless, stub.pieces = False, ["The end."]
    panel.get_by_role("button", name="Go on").click()
    expect(panel.locator(".page")).to_have_text(f"{text}The end.")
    expect(panel.locator(".note")).to_have_text("")
    first, second = stub.bodies("generate")
    assert (first["prompt"], second["prompt"], first["model"], first["stream"]) == ("Once", text, "novels", True)
    assert "seed" not in first
    assert first["max_tokens"] == 200


def test_a_conversation_remembers_what_was_said(visit: Visit, stub: Stub) -> None:
    panel = visit.panel("chat")
    message = panel.get_by_label("Message")
    stub.pieces = ["Good ", "day."]
    message.fill("Hello")
    message.press("Enter")
    expect(panel.locator(".log p")).to_have_text(["Hello", "Good day."])
    expect(panel.get_by_role("button", name="Send")).to_be_visible()
    message.fill(NASTY)
    message.press("Enter")
    expect(panel.locator(".log p")).to_have_text(["Hello", "Good day.", NASTY, "Good day."])
    said = [("user", "Hello"), ("assistant", "Good day."), ("user", NASTY)]
    assert stub.bodies("chat")[1]["messages"] == [{"role": role, "text": text} for role, text in said]
    panel.get_by_role("button", name="New conversation").click()
    expect(panel.locator(".log p")).to_have_count(0)
    stub.endless = True
    message.fill("Go on")
    message.press("Enter")
    expect(panel.locator(".log p").last).to_contain_text("more more")
    panel.get_by_role("button", name="New conversation").click()  # in the middle of an answer
    assert stub.gone.wait(20)
    stub.endless = False
    message.fill("Again")
    message.press("Enter")
    expect(panel.locator(".log p")).to_have_text(["Again", "Good day."])
    assert stub.bodies("chat")[-1]["messages"] == [{"role": "user", "text": "Again"}]


@pytest.mark.parametrize(
    "name, shown",
    [
        ("fill", f"{STREET}capital62 %heart21 %centre8.0 %##s4.0 %Attention"),
        ("classify", "goodgood93 %bad7.0 %"),
        ("tag", "Anna BergPER moved from Hamburg to Paris in May . "),
        ("choose", "On a cliff80 %In a forest10 %On a ship10 %"),
    ],
)
def test_answers_follow_the_examples(visit: Visit, name: str, shown: str) -> None:
    panel = visit.panel(name)
    panel.locator(".chip").first.click()
    expect(panel.locator(".output")).to_have_text(shown, use_inner_text=False)


def test_gaps_are_filled_by_hand_too(visit: Visit, stub: Stub) -> None:
    panel = visit.panel("fill")
    panel.get_by_label("Text with gaps").fill("A town")
    expect(panel.locator(".output")).to_contain_text("Write [MASK]")
    panel.get_by_label("Text with gaps").fill("The ___ of ")
    panel.get_by_role("button", name="Insert a gap").click()
    expect(panel.locator(".page")).to_have_text("The capital of capital")
    panel.locator(".columns > div").nth(1).get_by_role("button", name="heart").click()
    expect(panel.locator(".page")).to_have_text("The capital of heart")
    assert stub.bodies("fill")[-1]["text"] == "The [MASK] of [MASK]"


def test_an_answer_is_marked_in_its_text(visit: Visit) -> None:
    panel = visit.panel("answer")
    panel.get_by_label("Question").fill("Who?")
    panel.get_by_label("Text that may answer it").fill(
        "😀 Built by Anna Berg."
    )  # Python counts 😀 once, JavaScript twice
    expect(panel.locator(".quote mark")).to_have_text("Anna Berg")
    panel.get_by_label("Text that may answer it").fill("Nobody knows.")
    expect(panel.locator(".output")).to_have_text("The text does not say.")


# --- people ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("visit", [{"locale": "zh-CN"}], indirect=True)
def test_chinese_readers_are_spoken_to_in_chinese(visit: Visit) -> None:
    tabs = visit.page.get_by_role("tab")
    names = ["翻译", "对话", "续写", "填空", "分类", "标注", "问答", "选择"]
    expect(tabs).to_have_text(names)
    expect(visit.page.get_by_label("要翻译的文本")).to_be_visible()
    assert visit.page.evaluate("document.documentElement.lang") == "zh-CN"
    visit.page.get_by_role("button", name="English").click()
    expect(tabs.first).to_have_text("Translate")
    visit.page.reload()
    expect(tabs.first).to_have_text("Translate")
    visit.page.get_by_role("button", name="中文").click()
    expect(tabs).to_have_text(names)
    messages = "Object.values((await import('/static/messages.js')).MESSAGES)"
    english, chinese = visit.page.evaluate(f"async () => {messages}.map(each => Object.keys(each).sort())")
    assert english == chinese


@pytest.mark.parametrize("visit", [{"locale": "zh-CN"}], indirect=True)
def test_what_a_model_is_follows_the_language(visit: Visit, stub: Stub) -> None:
    stub.models = [{**ALL[0], "kind": "translation", "title": "translation en→de"}]
    visit.page.reload()
    expect(visit.page.get_by_text("en-de · 翻译 en→de")).to_be_visible()
    visit.page.get_by_role("button", name="English").click()
    expect(visit.page.get_by_text("en-de · translation en→de")).to_be_visible()


def every_tab(visit: Visit) -> Iterator[str]:
    """Each tab, with something in it."""
    for name in TABS:
        panel = visit.panel(name)
        panel.locator(".chip").first.click()
        told = {"translate": ".to:not(.pending)", "chat": ".log .assistant", "story": ".page"}.get(name, ".output > *")
        expect(panel.locator(told).first).to_be_visible()
        yield name


@pytest.mark.parametrize("visit", [{"viewport": {"width": 360, "height": 740}}], indirect=True)
def test_a_phone_scrolls_down_only(visit: Visit) -> None:
    write(visit, f"{'Donaudampfschifffahrt' * 6}\n{GOAT}")
    expect(visit.page.locator(".to").last).to_have_text(ZIEGE)
    visit.page.get_by_role("button", name="Alternatives").last.click()
    expect(visit.page.locator(".alternatives li").first).to_be_visible()
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert visit.page.evaluate(wide) == 0
    for name in every_tab(visit):
        assert visit.page.evaluate(wide) == 0, name


CONTRAST = """() => {
  const light = (colour) => {
    const parts = colour.match(/[\\d.]+/g).slice(0, 3).map((c) => c / 255);
    const [r, g, b] = parts.map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = light(getComputedStyle(document.body).backgroundColor);
  const shown = [...document.querySelectorAll("h1, p, label, span, [role=tab], .quiet")]
    .filter((e) => e.checkVisibility() && e.textContent.trim());
  const ratios = shown.map((e) => light(getComputedStyle(e).color))
    .map((ink) => (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05));
  return [ground, shown.length, Math.min(...ratios)];
}"""


@pytest.mark.parametrize(
    "visit, dark", [({"color_scheme": "light"}, False), ({"color_scheme": "dark"}, True)], indirect=["visit"]
)
def test_light_and_dark_can_be_read(visit: Visit, dark: bool) -> None:
    for name in every_tab(visit):
        ground, count, least = visit.page.evaluate(CONTRAST)
        assert (ground < 0.05) if dark else (ground > 0.9)
        assert count > 8
        assert least >= 4.5, name  # WCAG AA


UNNAMED = """() =>
  [...document.querySelectorAll("button, input, textarea, select, dialog, [role=tablist], [role=tabpanel]")]
  .filter((e) => e.checkVisibility() && !e.labels?.length && !e.ariaLabel && !e.getAttribute("aria-labelledby")
    && !(e.matches("button") && e.textContent.trim())).map((e) => e.outerHTML)"""


def test_everything_has_a_name(visit: Visit) -> None:
    for _ in every_tab(visit):
        assert visit.page.evaluate(UNNAMED) == []


def test_markup_is_text(visit: Visit, stub: Stub) -> None:
    stub.models = [{**model, "title": NASTY} for model in ALL]
    stub.answers["translate"] = lambda asked: {"results": [{"text": NASTY, "score": 0, "alternatives": []}]}
    stub.answers["classify"] = lambda _: {"results": [{"label": NASTY, "probabilities": {NASTY: 1.0}}]}
    stub.answers["tag"] = lambda _: {"results": [{"words": [NASTY], "tags": [NASTY], "probabilities": [1.0]}]}
    stub.answers["fill"] = lambda _: {"results": [{"gaps": [[{"word": NASTY, "probability": 1.0}]]}]}
    stub.pieces = [NASTY]
    visit.page.reload()
    write(visit, NASTY)
    expect(visit.page.locator(".to")).to_have_text(NASTY)
    for name, shown in [
        ("classify", ".page"),
        ("tag", ".tag"),
        ("fill", "mark"),
        ("chat", ".assistant p"),
        ("story", ".page"),
    ]:
        panel = visit.panel(name)
        panel.locator(".chip").first.click()
        expect(panel.locator(shown)).to_contain_text(NASTY)
    assert visit.page.evaluate("document.querySelectorAll('img, b').length") == 0


# --- what goes wrong ------------------------------------------------------------------------------------------------


def quiet_about_failures(visit: Visit) -> None:
    """The browser itself notes each refused request on the console; nothing else may stand there."""
    assert all(line.startswith("Failed to load resource") for line in visit.wrong)
    visit.wrong.clear()


def refuse(*given: Any) -> Any:
    def act(_: dict[str, Any]) -> Any:
        raise Refusal(*given)

    return act


def test_a_refusal_is_told_and_forgotten(visit: Visit, stub: Stub) -> None:
    stub.answers["translate"] = refuse(413, "text 1 has 9,000 characters; a text has at most {x} 5,000")
    write(visit, "one")
    note = visit.page.locator("#panel-translate > .note")
    expect(note).to_have_text("text 1 has 9,000 characters; a text has at most {x} 5,000")
    stub.answers["translate"] = translate
    write(visit, "two")
    expect(visit.page.locator(".to")).to_have_text("TWO")
    expect(note).to_have_text("")
    quiet_about_failures(visit)


def test_an_answer_that_makes_no_sense_is_told(visit: Visit, stub: Stub) -> None:
    stub.answers["classify"] = lambda _: {"strange": True}
    panel = visit.panel("classify")
    panel.locator(".chip").first.click()
    expect(panel.locator(".note")).to_have_text("The server's answer could not be read.")
    assert [line.split(":")[0] for line in visit.wrong] == ["TypeError"]
    visit.wrong.clear()
    stub.pieces = []
    chat = visit.panel("chat")
    stub.answers["chat"] = lambda _: None
    chat.get_by_label("Message").fill("Hello")
    chat.get_by_label("Message").press("Enter")
    expect(chat.get_by_label("Message")).to_have_value("Hello")  # nothing was said: it can be sent again


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again(visit: Visit, stub: Stub, status: int) -> None:
    stub.answers["translate"] = refuse(status, "too many wait", {"Retry-After": "3"})
    write(visit, "one")
    expect(visit.page.get_by_role("status")).to_have_text("The server is busy. Asking again in 3 s…")
    stub.answers["translate"] = translate
    expect(visit.page.locator(".to")).to_have_text("ONE")
    expect(visit.page.get_by_role("status")).to_have_text("")
    quiet_about_failures(visit)


# --- first steps ---------------------------------------------------------------------------------------------------


def test_first_steps_follow_what_is_done_and_are_shown_once(visit: Visit, stub: Stub) -> None:
    tour = visit.page.get_by_role("complementary", name="First steps")
    expect(tour).to_contain_text("1 of 3Click one of the examples")
    visit.page.locator(".chip").first.click()
    expect(tour).to_contain_text("2 of 3Point at a word")
    visit.page.locator(".to .word").first.hover()
    expect(tour).to_contain_text("3 of 3“Attention” opens every layer and head of the model; the tabs above")
    tour.get_by_role("button", name="Done").click()
    expect(tour).to_have_count(0)
    visit.page.reload()
    expect(visit.page.locator(".chip").first).to_be_visible()
    expect(tour).to_have_count(0)
    visit.page.get_by_role("button", name="First steps").click()
    expect(tour).to_contain_text("1 of 3")
    tour.get_by_role("button", name="Skip").click()
    expect(visit.page.locator(".pointed")).to_have_count(0)


def test_first_steps_point_at_the_tab_that_is_shown(visit: Visit) -> None:
    panel = visit.panel("fill")
    expect(panel.locator(".examples.pointed")).to_have_count(1)
    panel.locator(".chip").first.click()
    expect(visit.page.get_by_role("complementary", name="First steps")).to_contain_text("2 of 3The answer is computed")


def test_the_examples_of_a_models_card_come_before_the_usual_ones(browser: Any, stub: Stub) -> None:
    carded = {"en-de", "bert"}
    stub.models = [model | ({"examples": ["Of its card."]} if model["name"] in carded else {}) for model in ALL]
    visit = Visit(browser)
    visit.page.goto(stub.url)
    expect(visit.panel("translate").locator(".chip")).to_have_text(["Of its card."])
    expect(visit.panel("fill").locator(".chip")).to_have_text(["Of its card."])
    expect(visit.panel("story").locator(".chip").first).to_have_text("As aliens entered our planet")
    visit.page.context.close()


def test_a_server_that_was_away_is_found_again(visit: Visit, stub: Stub) -> None:
    expect(visit.page.get_by_role("tab").first).to_be_visible()
    stub.stop()
    write(visit, "one")
    expect(visit.page.get_by_role("status")).to_have_text("The server does not answer. Trying again…")
    stub.start()
    expect(visit.page.locator(".to")).to_have_text("ONE")
    expect(visit.page.get_by_role("status")).to_have_text("")
    quiet_about_failures(visit)


def test_the_key_is_asked_for_once(visit: Visit, stub: Stub) -> None:
    stub.key = "sesame"
    visit.page.reload()
    dialog = visit.page.get_by_role("dialog")
    for key, title in [("wrong", "This server asks for a key"), ("sesame", "That key was not accepted")]:
        expect(dialog.get_by_role("heading")).to_have_text(title)
        dialog.get_by_label("API key").fill(key)
        dialog.get_by_role("button").click()
    write(visit, "one")
    expect(visit.page.locator(".to")).to_have_text("ONE")
    visit.page.reload()
    write(visit, "two")
    expect(visit.page.locator(".to")).to_have_text("TWO")
    expect(dialog).to_have_count(0)
    quiet_about_failures(visit)


def test_a_proxy_may_put_it_under_a_prefix(browser: Any, stub: Stub) -> None:
    visit, asked = Visit(browser), list[str]()
    visit.page.on("request", lambda request: asked.append(request.url))
    visit.page.goto(f"{stub.url}under/")
    write(visit, "one")
    expect(visit.page.locator(".to")).to_have_text("ONE")
    assert len(asked) > 5
    assert all(url.startswith(f"{stub.url}under/") for url in asked)
    assert not visit.wrong
    visit.page.context.close()


def test_the_first_view_is_light(browser: Any, stub: Stub) -> None:
    visit = Visit(browser)
    found: list[Any] = []
    visit.page.on("response", lambda response: found.append(response))
    visit.page.goto(stub.url)
    expect(visit.page.get_by_label("Text to translate")).to_be_visible()
    visit.page.wait_for_load_state("networkidle")
    weight = sum(len(response.body()) for response in found)
    assert len(found) > 5
    assert 10_000 < weight < 100_000
    assert not visit.wrong
    visit.page.context.close()

"""The page before the real server, with small models of three kinds: what people see first."""

import re
from pathlib import Path
from typing import Any

from tests.serve.live import Server
from tests.serve.test_page import Visit, api, browser, every_tab, expect, pytestmark, write  # noqa: F401

LINES = ["w1 w2 w3", "w4 w5"]


def test_translate_then_look(browser: Any, server: Server) -> None:  # noqa: F811
    visit = Visit(browser)
    visit.page.goto(server.url)
    expect(visit.page.get_by_role("tab")).to_have_text(["Translate", "Chat", "Story", "Fill gaps", "Choices"])
    write(visit, "\n".join(LINES))
    said = [found["text"] for found in server.ask("translate", text=LINES, model="toy").json()["results"]]
    assert all(said)
    expect(visit.page.locator(".to")).to_have_text(said)
    visit.page.locator(".to .word").first.hover()
    expect(visit.page.locator(".pair.lit .caption")).to_contain_text("looks at w")
    visit.page.get_by_role("button", name="Attention").first.click()
    view = visit.page.get_by_role("dialog")
    expect(view.get_by_role("button", name="w1").first).to_be_visible()  # its words, in the view of `regard look`
    view.get_by_role("button", name="Switch this head off").click()
    expect(view.locator(".ablated")).to_contain_text("Encoder, layer 1, head 1")
    view.get_by_label("Text", exact=True).fill("w5 w4")
    assert view.get_by_label("Text", exact=True).bounding_box()["height"] < 60  # one line, as forms elsewhere are not
    view.get_by_role("button", name="Show").click()
    expect(view.locator(".lines ol").first.locator("button")).to_have_text(["w5", "w4", "</s>"])
    with visit.page.expect_download() as download:
        view.get_by_role("button", name="Save this view").click()
    saved = Path(download.value.path()).read_text(encoding="utf-8")
    assert saved.startswith("<!doctype html>")
    assert '"text":"w5 w4"' in saved
    visit.page.keyboard.press("Escape")
    expect(view).to_have_count(0)
    assert not visit.wrong
    assert visit.hosts == {f"127.0.0.1:{server.port}"}
    visit.page.context.close()


def test_a_story_and_gaps(browser: Any, server: Server) -> None:  # noqa: F811
    visit = Visit(browser)
    visit.page.goto(server.url)
    story = visit.panel("story")
    story.get_by_text("How to write").click()
    story.get_by_label("Length").fill("5000")
    story.get_by_label("Beginning").fill("the")
    story.get_by_role("button", name="Write").click()
    expect(story.locator(".page")).to_have_text(re.compile(r"^the\W*\w"))  # with nothing written, nothing goes on
    story.get_by_role("button", name="Stop").click()
    expect(story.get_by_role("button", name="Go on")).to_be_visible()
    fill = visit.panel("fill")
    fill.get_by_label("Text with gaps").fill("the [MASK] sat")
    expect(fill.locator(".bars li")).to_have_count(6)
    choose = visit.panel("choose")
    choose.locator(".chip").first.click()
    expect(choose.locator(".bars li")).to_have_count(3)
    assert not visit.wrong
    visit.page.context.close()

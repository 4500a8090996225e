"""The reference of mechanisms is complete, and says what the code says, in both languages."""

import re
import shlex
from pathlib import Path

import pytest
import torch

from regard import recipe as recipes
from regard.mechanisms import Mechanism, all_mechanisms, with_table
from regard.nn.attention import attention
from regard.nn.normalise import Softmax
from regard.nn.score import ScaledDotScore

ROOT = Path(__file__).parent.parent
ENGLISH, CHINESE = PAGES = (ROOT / "docs" / "mechanisms.md", ROOT / "docs" / "zh" / "mechanisms.md")
IDS = [
    *("I1", "I2", "I3"),
    *(f"P{n}" for n in range(8)),
    *(f"S{n}" for n in range(1, 8)),
    *("N1", "N2", "N3"),
    *(f"M{n}" for n in range(1, 9)),
    *("B1", "B2", "B3", "B4", "B5", "B7"),
    *(f"A{n}" for n in range(1, 8)),
    "A9",
    "A10",
    "A11",
    "P8",
    "P9",
    "M9",
]
# Trees must be given with the text, which no line about the model can do.
PARSED = [f"data.{split}={{set: embedded:{split}, heads: {split}.conllu}}" for split in ("train", "valid", "test")]
OVERRIDE = re.compile(r"`((?:model|training|data)(?:\.\w+)+=[^`]+)`")
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
each_mechanism = pytest.mark.parametrize("mechanism", all_mechanisms(), ids=lambda m: f"{m.slot}-{m.name}")


def sections(page: Path) -> list[str]:
    return re.split(r"^#{2,3} ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]


def section(page: Path, mechanism: Mechanism) -> str:
    """The one whose config line is the mechanism's; what is always on is found by its row."""
    line = re.compile(rf"^- \*\*(Config:|配置：)\*\* `{re.escape(mechanism.config)}`$", re.MULTILINE)
    found = [text for text in sections(page) if line.search(text)]
    if mechanism.config == "always":
        found = [text for text in found if mechanism.id in text.partition("\n")[0]]
    assert len(found) == 1, f"{page.name} has {len(found)} sections with the config line `{mechanism.config}`"
    return found[0]


def test_every_row_of_the_list_is_there() -> None:
    listed = {row for mechanism in all_mechanisms() for row in mechanism.id.split(", ")}
    assert set(IDS) <= listed


@each_mechanism
def test_the_line_chooses_it_in_the_quickstart_recipe(mechanism: Mechanism) -> None:
    if mechanism.config != "always":
        recipes.load_recipe("quickstart", shlex.split(mechanism.config) + PARSED * (mechanism.name == "structural"))


@each_page
@each_mechanism
def test_it_has_a_section(mechanism: Mechanism, page: Path) -> None:
    text = section(page, mechanism)
    named = re.findall(r"\]\(((?:\.\./)+src/regard/[^)]+)\)", text)
    assert [(page.parent / name).resolve() for name in named] == [ROOT / "src" / "regard" / mechanism.file]
    assert (ROOT / "src" / "regard" / mechanism.file).is_file()
    for row in mechanism.id.split(", "):
        assert row == "—" or re.search(rf"[(（].*\b{row}\b.*[)）]$", text.partition("\n")[0]), row
    for paper in cited(mechanism):
        assert paper in text


def cited(mechanism: Mechanism) -> list[str]:
    return re.findall(r"[A-Z][A-Za-z, -]* \d{4}", mechanism.paper)


@each_mechanism
def test_the_formula_is_that_of_the_code(mechanism: Mechanism) -> None:
    assert f"**Formula:** `{mechanism.formula}`" in section(ENGLISH, mechanism)


@each_page
def test_every_paper_is_listed(page: Path) -> None:
    place = r"https://(?:arxiv\.org/abs/\d{4}\.\d{4,5}|\S+\.pdf)"
    row = re.compile(rf"^\| ([^|]+ \d{{4}}) \| \[.*\]\({place}\) \|$", re.MULTILINE)
    rows = row.findall(page.read_text(encoding="utf-8"))
    assert {paper for mechanism in all_mechanisms() for paper in cited(mechanism)} <= set(rows)


@each_page
def test_every_line_shown_parses(page: Path) -> None:
    lines = OVERRIDE.findall(page.read_text(encoding="utf-8"))
    assert len(lines) > len(all_mechanisms())
    for line in lines:
        recipes.load_recipe("quickstart", shlex.split(line) + PARSED * ("structural" in line))


@each_page
def test_the_table_of_combinations_is_that_of_the_code(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == with_table(text), "the table is old: run python -m regard.mechanisms"


def test_the_plain_function_of_the_page_is_the_real_one() -> None:
    names: dict = {}
    exec(re.findall(r"^```python\n(def attention.*?)^```", ENGLISH.read_text(encoding="utf-8"), re.M | re.S)[0], names)
    q, k, v, bias = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 5, 8), torch.randn(2, 3, 5, 6), torch.randn(4, 5)
    parts = (ScaledDotScore(8), Softmax(), torch.rand(4, 5) > 0.3, bias)
    torch.testing.assert_close(names["attention"](q, k, v, *parts), attention(q, k, v, *parts), rtol=0, atol=0)


def test_the_example_of_recording_runs(toy_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = re.findall(r"^```python\n(import regard.*?)^```", ENGLISH.read_text(encoding="utf-8"), re.M | re.S)[0]
    assert '"runs/quickstart"' in code
    exec(code.replace('"runs/quickstart"', repr(str(toy_run))), {})
    shape, links = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"torch\.Size\(\[\d+, \d+, \d+, \d+\]\)", shape)
    assert re.fullmatch(r"\[(\(\d+, \d+\)(, )?)*\]", links)

"""What is said in Chinese: one glossary for all of it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GLOSSARY = ROOT / "docs" / "zh" / "glossary.md"
PAGES = [ROOT / "src/regard/look/page/words.js", ROOT / "src/regard/serve/page/messages.js"]
CHINESE = [*sorted((ROOT / "docs" / "zh").glob("*.md")), ROOT / "README.zh-CN.md", *PAGES]
CHINESE += [ROOT / "src/regard/look/figures.py"]


def glossary() -> list[list[str]]:
    """Its rows: English, Chinese, what is not written, a note."""
    lines = GLOSSARY.read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return [row for row in rows if row[0] != "English" and not row[0].startswith("---")]


def test_a_word_stands_once_in_the_glossary() -> None:
    english = [row[0] for row in glossary()]
    assert len(english) == len(set(english))
    chosen = {word for row in glossary() for word in re.split("、", re.sub("（.*?）", "", row[1]))}
    refused = {word for row in glossary() for word in row[2].split("、") if word}
    assert not chosen & refused


@pytest.mark.parametrize("path", CHINESE, ids=lambda path: path.name)
def test_words_are_those_of_the_glossary(path: Path) -> None:
    refused = {word: row[1] for row in glossary() for word in row[2].split("、") if word}
    if path == GLOSSARY:
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        wrong = [f"{word} (say {right})" for word, right in refused.items() if word in line]
        assert not wrong, f"{path.name}, line {number}: {', '.join(wrong)}"

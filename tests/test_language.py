"""What is said in Chinese: one glossary for all of it, tables for everything, and who sees them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard import language
from regard.cli.data import list_sets
from regard.cli.info import info
from regard.cli.main import main
from regard.language.command_help import cells, wrap
from regard.language.sentences import TABLES, message_table
from regard.mechanisms import print_mechanisms
from tools import messages

ROOT = Path(__file__).parent.parent
GLOSSARY = ROOT / "docs" / "zh" / "glossary.md"
PAGES = [ROOT / "src/regard/look/page/words.js", ROOT / "src/regard/serve/page/messages.js"]
CHINESE = [*sorted((ROOT / "docs" / "zh").glob("*.md")), ROOT / "README.zh-CN.md", *PAGES]
CHINESE += [ROOT / "src/regard/look/figures.py", *sorted((ROOT / "src/regard/language/zh").glob("*.json"))]


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


# --- the tables -------------------------------------------------------------------------------------------------------


def tables() -> list[Path]:
    return sorted(TABLES.glob("*.json"))


def test_everything_that_is_said_has_chinese() -> None:
    """And nothing is Chinese that is said no more: `python -m tools.messages` lists both."""
    assert messages.missing_and_stale() == ([], [])


def test_a_sentence_stands_in_one_table() -> None:
    keys = [key for path in tables() for key in json.loads(path.read_text(encoding="utf-8"))]
    assert len(keys) == len(set(keys)) == len(message_table())


def test_chinese_holds_the_same_values() -> None:
    for key, chinese in message_table().items():
        values = key.count("{}")
        plain, numbered = len(re.findall(r"\{\*?\}", chinese)), set(re.findall(r"\{(\d)\*?\}", chinese))
        assert not (plain and numbered), f"{chinese}: number all values, or none"
        assert plain == values or numbered == {str(n) for n in range(values)}, f"{key}: {chinese}"


@pytest.mark.parametrize("path", tables(), ids=lambda path: path.name)
def test_tables_are_written_well(path: Path) -> None:
    """No English punctuation between Chinese, no Chinese where there is none to say."""
    for key, chinese in json.loads(path.read_text(encoding="utf-8")).items():
        assert not re.search("[\u4e00-\u9fff][,;:!?]", chinese), chinese
        assert key.startswith(("Python", "torch", "{}:{}")) or chinese != key, key


# --- the language ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "variables, chosen",
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LC_ALL": "C", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"LC_ALL": "zh_TW.UTF-8", "LANG": "C"}, "zh"),
        ({"LC_MESSAGES": "zh_CN", "LANG": "de_DE.UTF-8"}, "zh"),
        ({"REGARD_LANG": "en", "LC_ALL": "zh_CN.UTF-8"}, "en"),
        ({"REGARD_LANG": "zh-CN", "LC_ALL": "de_DE.UTF-8"}, "zh"),
    ],
)
def test_the_language_is_that_of_the_locale(
    variables: dict[str, str], chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("REGARD_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert language.language() == chosen


@pytest.fixture
def chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_LANG", "zh")


@pytest.mark.usefixtures("chinese")
@pytest.mark.parametrize(
    "english, expected",
    [
        # a place and what is wrong there
        ("my.yaml, line 9: training.step is not a known key; did you mean steps?",
         "my.yaml，第 9 行：training.step 不是已知的键；是不是 steps？"),
        ("command line, model.layers=x: model.layers must be a whole number, not 'x'",
         "命令行，model.layers=x：model.layers 须是整数，而不是 'x'"),
        # one sentence in another, and in another order
        ("my.yaml, line 3: model is impossible: layers must be at least 1, not 0",
         "my.yaml，第 3 行：model 的设置不可能：layers 至少为 1，而不是 0"),
        ("runs/x: 2 of 3 files of model are there", "runs/x：model 共有 3 个文件，只有 2 个在"),
        ("runs/x has 1 checkpoint, not 5; lower --last", "runs/x 有 1 个检查点，不到 5 个；请减小 --last"),
        # several sentences, and lists
        ("a + b: 9 of 12 rows kept; dropped 2 empty, 1 duplicate; 1 truncated",
         "a + b：保留 9 行，共读入 12 行；丢弃：2 行为空，1 行重复；截断 1 行"),
        ("step 1 of 9  training loss 3.210  900 tokens/s  rate 1.00e-03  0:01:10 left",
         "第 1 / 9 步  训练损失 3.210  900 词元/秒  学习率 1.00e-03  剩余 0:01:10"),
        # words of the user stay
        ("empty: there is no such folder", "empty：没有这个目录"),
        ("text must be a mapping of keys, not 'the file is empty'",
         "text 须是由键组成的映射，而不是 'the file is empty'"),
        ("--stride must be from 1 to the context of 16, not 17", "--stride 须在 1 到上下文 16 之间，而不是 17"),
        ("the prompt has 21 tokens, more than the context of 16: its last ones are kept",
         "提示有 21 个词元，超过上下文 16：只保留末尾部分"),
        ("mask is [2, 5], and this call takes [2, 6]", "mask is [2, 5], and this call takes [2, 6]"),
        ("Nobody said this: not here, and not there.", "Nobody said this: not here, and not there."),
    ],
)  # fmt: skip
def test_sentences_are_recognised(english: str, expected: str) -> None:
    assert language.localise(english) == expected


@pytest.mark.usefixtures("chinese")
@given(st.text(alphabet="ab:;,.()[]{}'\" \n中-", max_size=60))
def test_any_text_can_be_read(text: str) -> None:
    """What no sentence is stays as it is; no text takes long, or fails."""
    assert language.localise(text) == text


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str, **variables: str) -> int:
    """The command, with these variables in place of those that choose a language; its exit code."""
    for name in ("REGARD_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["regard", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_help_and_mistakes_are_chinese(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "generate", "--help", LANG="zh_CN.UTF-8") == 0
    help = capsys.readouterr().out
    assert "用语言模型续写文本，边写边显示。" in help
    assert not re.search(r"\b(Usage|Options|Arguments|default|required|Show|Write)\b", help)
    assert run(monkeypatch, "generate", "x", "--max-tokens", "0", REGARD_LANG="zh") == 2
    assert capsys.readouterr().err.endswith("错误：'--max-tokens' 的值无效：应大于或等于 1\n")
    assert run(monkeypatch, "translate", str(tmp_path / "nowhere"), REGARD_LANG="zh") == 2
    assert capsys.readouterr() == ("", f"regard: {tmp_path / 'nowhere'}：没有这个目录\n")


def test_english_wins_over_the_locale(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--help", REGARD_LANG="en", LANG="zh_CN.UTF-8") == 0
    assert capsys.readouterr().out.startswith("Usage:")
    assert run(monkeypatch, "--help", REGARD_LANG="fr") == 2
    assert capsys.readouterr().err == "regard: REGARD_LANG is 'fr'; write en or zh\n"


def test_help_in_english_reads_no_table() -> None:
    code = (
        "import sys, regard.cli.main, regard.language.sentences as s; sys.exit(s.message_table.cache_info().currsize)"
    )
    environment = os.environ | {"REGARD_LANG": "en"}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


@pytest.mark.usefixtures("chinese")
def test_json_is_the_same_in_both(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = []
    for chosen in ("zh", "en"):
        monkeypatch.setenv("REGARD_LANG", chosen)
        info(None, as_json=True)
        print_mechanisms(as_json=True)
        list_sets(json=True)
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]


@pytest.mark.usefixtures("chinese")
def test_nothing_english_is_left_in_the_list_of_mechanisms(capsys: pytest.CaptureFixture[str]) -> None:
    print_mechanisms(as_json=False)
    shown = capsys.readouterr().out
    assert "打分 score" in shown
    assert not re.search(r"\b(the|every|which|with|and)\b", shown)


@pytest.mark.usefixtures("chinese")
def test_lines_of_help_fit_the_terminal() -> None:
    text = "一行里的汉字各占两格，lines of words stay whole，句号不在行首。" * 4
    lines = list(wrap(text, 30))
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert max(map(cells, lines)) <= 32  # a mark that closes may hang over
    assert not any(line[0] in "，。" for line in lines)
    assert cells("汉字 ab") == 7

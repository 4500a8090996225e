"""Questions as one line of text, with tabs or as JSON: what people type to models that answer and choose."""

from regard.data.items import Item
from regard.data.readers import parse_json
from regard.errors import RegardError, plural


def pair_of(line: str, where: str) -> tuple[str, str]:
    """Question and text, from JSON or with a tab between them."""
    cells = [_object(line, where).text(key) for key in ("question", "context")] if _is_json(line) else line.split("\t")
    if len(cells) != 2:
        raise RegardError(f"{where}: {_number(cells, 'column', line)}; write question TAB text, or JSON")
    return cells[0], cells[1]


def question_of(line: str, where: str) -> tuple[str, str, list[str]]:
    """Text, question and options, from JSON or with tabs between them."""
    if _is_json(line):
        given = _object(line, where)
        question = given.text("question") if "question" in given.values else ""
        found = given.text("context"), question, given.texts("options")
    else:
        cells = [*line.split("\t"), "", ""]
        found = cells[0], cells[1], cells[2:-2]
    if len(found[2]) < 2:
        raise RegardError(
            f"{where}: {_number(found[2], 'option', line)}; write text TAB question TAB option TAB option, or JSON"
        )
    return found


def _number(cells: list[str], what: str, line: str) -> str:
    if line.lstrip().startswith("{") and not _is_json(line):
        return "JSON that is cut short"
    return plural(len(cells), what)


def _is_json(line: str) -> bool:
    return line.lstrip().startswith("{") and line.rstrip().endswith("}")  # a text may begin with a brace, too


def _object(line: str, where: str) -> Item:
    return Item(where, parse_json(line, where))

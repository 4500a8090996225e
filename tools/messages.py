"""What people see of regard, as keys of the tables in src/regard/language/zh; `python -m tools.messages` compares them.

Help is read off the command line and the config classes, mechanisms off their list; every other sentence off the syntax
trees of the package: a string or f-string with a phrase in it, but for docstrings and what `UNSEEN` says.
"""

import ast
import inspect
import json
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import typer

from regard.cli.main import app
from regard.cli.shipped.tour import GOATS, TEXTS
from regard.config.options import describe_options
from regard.language.sentences import TABLES, message_table
from regard.mechanisms import all_mechanisms
from regard.recipe import Recipe

PACKAGE = Path(__file__).parent.parent / "src" / "regard"
PHRASE = re.compile(r"[A-Za-z]{2,}[,;:']? (?:\{\}|[a-z(])|\{\} \(?[a-z]{2,}")
PLACE = re.compile(r"^\{\}(?:, (?:line|question) (?:\{\}|\d+))?: (?=.)")
WORDS = re.compile(  # of a formula that says something
    r"\b(?:all|alike|and|at|clipped|compensated|dilations|feed|in|is|layer|of|or|real|same|signal|the|then|turns|where|while)\b"
)
UNSEEN_FILES = (  # what programs receive, what only a caller in Python sees, and what has its own Chinese beside it
    "__init__.py", "data/embedded.py", "evaluation/squad.py", "interop/ct2_example.py", "language/command_help.py",
    "lab/charts.py", "lab/compare_report.py", "lab/report.py",  # whose files are English
    "look/__init__.py", "look/figures.py", "look/html.py", "mechanisms.py", "nn/cache/kv_cache.py",
    "nn/cache/segment_memory.py", "nn/layout.py",
    "nn/multi_head.py", "serve/app.py", "serve/batch_scheduler.py", "serve/http.py", "serve/log.py",
    "serve/scheduler.py", "serve/schemas.py", "serve/stream_scheduler.py", "serve/translation_scheduler.py",
    "text/moses.py", "text/sentences.py",
)  # fmt: skip
PENDING = ("lab/claims/",)  # what is not in Chinese yet: the experiments' own text
UNSEEN_CALLS = {"choice", "compile", "findall", "fullmatch", "match", "search", "sub"}  # formulas and patterns
UNSEEN_CALLS |= {"Argument", "Option", "Typer", "option"}  # help, which is read off what they make
UNSEEN = {  # commands, code, metric signatures, fingerprints, and mistakes that only a programmer can make
    "a step made {} into {}", "regard {}", "{}, of {}", 'echo "{}" | regard translate {}', "regard evaluate {}",
    "regard train --help", "regard train quickstart model.layers=1 --out {}", "--plugin {}", "regard train {} --out {}",
    "the budget must be at least 1 token", "{} source lengths, {} target lengths", "sqrt length", "{} norm",
    "accumulate and prefetch must be at least 1, rank below world_size, start not negative", "{} residual",
    "mean over labels", "of {}", "{}, entities as conlleval", "{}, of words", "{} of {} ({} masked, {} random)",
    "[spare {}]", "teacher, draft {}", "export {}",
    '<iframe {} srcdoc="{}"></iframe>', "{} · {} · layers × heads {}", "sampled blocks",
    "answer([(question, text)])", "regard {} {}",
    '<td style="background: rgba(70, 110, 200, {})">{}</td>', "{}, {} parameters",
    "choose([(text, question, options)])",
    "<p>{} <small>score {}</small></p>", "score([(source, target)])", "format: {}\n{}", "chat {} {}", "lm {}",
    "{}|words:{}, with ends of lines", "{}|places that read [MASK]:{}", "pretraining {}", "turns {} {}",
    "{}|places:{}|always the most frequent of these", "allocate memory", "--precision int8",
    "bold {}", "--sweep {}", "--vary {}", "from {} import train_beside_parent; train_beside_parent()",
    "as it is",
    'sandbox="allow-scripts allow-downloads" style="width: 100%; height: 640px; border: 0"',
}  # fmt: skip
UNSEEN |= {*GOATS, *(text for texts in TEXTS.values() for text in texts)}  # what models are shown


def normalised(template: str) -> str:
    """A template as a key: without the place, the marks and spaces that it begins with, neighbouring values as one."""
    template = re.sub(r"(\{\}){2,}", "{}", template)
    template = PLACE.sub("", template.removeprefix("regard: "))
    return template.strip(" ;,\n")


def template_of(node: ast.AST) -> str | None:
    """A string, an f-string or a sum of them as a template; None if it is something else."""
    if isinstance(node, ast.Constant):
        return re.sub(r"\{\w+\}", "{}", node.value) if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(str(v.value) if isinstance(v, ast.Constant) else _hole(v.value) for v in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = [template_of(node.left), template_of(node.right)]
        if any(sides):
            return "".join("{}" if side is None else side for side in sides)
    return None


def _hole(value: ast.expr) -> str:
    """`plural(n, "file")` is `{} file(s)`; any other value is `{}`."""
    if isinstance(value, ast.Call) and _name(value) == "plural" and isinstance(value.args[1], ast.Constant):
        return f"{{}} {value.args[1].value}(s)"
    return "{}"


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


class Strings(ast.NodeVisitor):
    """The templates of a syntax tree; `said` are those that `localise` is called with, whatever they look like."""

    def __init__(self) -> None:
        self.all: set[str] = set()
        self.said: set[str] = set()

    def visit(self, node: ast.AST) -> None:
        template = template_of(node)
        if template is None:
            super().visit(node)
            return
        self.all.add(template)
        for part in ast.walk(node):
            if isinstance(part, ast.FormattedValue):
                self.visit(part.value)
            elif isinstance(part, ast.BinOp):
                for side in (part.left, part.right):
                    if template_of(side) is None:
                        self.visit(side)

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # else a docstring
            self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        name, first = _name(node), template_of(node.args[0]) if node.args else None
        if name in UNSEEN_CALLS or (name == "split" and isinstance(node.func, ast.Attribute) and not node.args):
            return  # a list of words, written as one string
        if name == "localise" and first is not None:
            self.said.add(first)
        if name == "_fail" and len(node.args) == 3 and (problem := template_of(node.args[2])):
            self.said.add(f"{{}} {problem}")
            values = [value.value for value in ast.walk(node.args[2]) if isinstance(value, ast.FormattedValue)]
            node = ast.Call(node.func, values, [])
        if name == "plural":
            self.said.add(_hole(node))
            return
        self.generic_visit(node)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def sentences(path: Path) -> set[str]:
    """The keys of a module."""
    strings = Strings()
    strings.visit(tree_of(path))
    seen = strings.said | {template for template in strings.all if PHRASE.search(template)}
    keys = {normalised(template) for template in seen if not template.startswith("$ ")}  # a command as it is typed
    return {key for key in keys if re.search("[A-Za-z]{2}", key.replace("{}", ""))} - UNSEEN


def modules() -> dict[str, Path]:
    """The modules of the package by their paths in it."""
    return {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}


def hidden(module: str) -> bool:
    return module in UNSEEN_FILES or module.startswith(PENDING)


def messages() -> dict[str, set[str]]:
    """The keys of every module whose messages are in Chinese, by its path."""
    return {name: sentences(path) for name, path in modules().items() if not hidden(name)}


def literals() -> set[str]:
    """Everything that stands in the package as a string, as keys: what no string says, nobody sees."""
    found: set[str] = set()
    for path in modules().values():
        for node in ast.walk(tree_of(path)):
            if (template := template_of(node)) is not None:
                found |= {template, normalised(template), normalised(inspect.cleandoc(template))}
    return found


def helps() -> set[str]:
    """The help of every command, option and key of a recipe, and what `info --mechanisms` says."""
    found: set[str] = set()

    def add(command: Any) -> None:
        found.update([command.help or "", *(getattr(option, "help", None) or "" for option in command.params)])
        for child in getattr(command, "commands", {}).values():
            add(child)

    add(typer.main.get_command(app))
    found |= {meaning for *_, meaning in describe_options(Recipe)}
    for mechanism in all_mechanisms():
        found |= {mechanism.meaning, mechanism.slot}
        found |= {text for text in (mechanism.formula, mechanism.paper) if WORDS.search(text)}
    paragraphs = (re.split(r"\n\s*\n", inspect.cleandoc(text)) for text in found)
    return {"\n\n".join(" ".join(part.split()) for part in parts) for parts in paragraphs} - {""}


def missing_and_stale() -> tuple[list[str], list[str]]:
    """What has no Chinese, and what is Chinese for nothing."""
    known, said = message_table(), set().union(*messages().values())
    named = {text for text in helps() if text.startswith("named ")}  # sizes; their key is a template
    missing = sorted((said | helps()) - named - set(known))
    said |= literals() | helps() | set(json.loads((TABLES / "system.json").read_text(encoding="utf-8")))
    words = {key: key.removeprefix("{} ").removesuffix("/s") for key in known}  # `{} tokens`: where tokens are counted
    return missing, sorted(key for key, word in words.items() if not {key, word} & said)


if __name__ == "__main__":
    missing, stale = missing_and_stale()
    print("\n".join([*(f"missing: {key}" for key in missing), *(f"stale: {key}" for key in stale)]))
    sys.exit(bool(missing or stale))

"""The picture in both architecture pages, drawn from the imports: `python tools/draw_architecture.py` writes it anew.

A room is a package or a module of src/regard. Rooms stand in levels: each imports only from levels below it. Beside a
room stand its first docstring sentence (in Chinese, its line of `CHINESE`) and the rooms directly below it, those it
reaches through others left out.
"""

import ast
import sys
import textwrap
import unicodedata
from pathlib import Path

ROOT = Path(__file__).parent.parent / "src" / "regard"
PAGE = ROOT.parent.parent / "docs" / "architecture.md"
COMMON = ("config", "console", "device", "errors", "language", "reporting")  # used by all
BEGIN, END = "<!-- picture: tools/draw_architecture.py -->", "<!-- end of picture -->"
WIDTH = 118
PAGES = {"en": PAGE, "zh": PAGE.parent / "zh" / PAGE.name}
FOOT = {"en": ": known to all; they know no room", "zh": "：各处都可以导入，它们自己不导入上面任何一个"}
CHINESE = {  # what a room is for
    "accel": "nn 与 models 的快速版本：Triton 算子、CUDA graph、无填充的序列、融合的解码步",
    "api": "公开的 Python 接口：`regard.train` 按配方训练，`regard.load` 打开训练好的模型",
    "cli": "命令行：一张命令表，以及每条命令的实现",
    "data": "语料、预处理后的形式、批次与加载器",
    "distil": "学生模型向教师模型的译文学习，并在它旁边评测",
    "decoding": "从带 `start` 和 `step` 的模型到序列：贪心、束搜索、采样",
    "evaluation": "指标：用领域内通行的库计算，并附签名",
    "examples": "从文件的行到样本批次：特征、遮住词、句段、对话、拼接",
    "interop": "导入、导出其他库的权重与配置",
    "io": "文件：原子写入、safetensors、运行目录",
    "lab": "实验：把各种说法做成实验，以及 `compare`：各组在成对的种子上训练，给出区间和图",
    "look": "模型对一段（或两段）文本的注意力：数据、网页、图片",
    "mechanisms": "全部可选项的总表，直接由各个类生成：名称、公式、论文",
    "models": "用 regard.nn 搭成的完整模型，以及它们读入的批次",
    "nn": "注意力及其周围的部件，可用于任何 PyTorch 模型",
    "predict": "预测器，即训练好的模型能为用户做的事：翻译、续写、聊天、填空、向量等",
    "recipe": "配方：一次运行所依赖的一切，一棵带类型的树，由 YAML 和点号路径的改动读入",
    "run_checks": "一次运行开始之前的检查：它的目录、开始时的配方、起点模型、内存、设备",
    "run": "一次运行的始末：给目录加锁并检查，训练或续训，保存最终权重及其结果",
    "serve": "HTTP 服务：一个进程对接客户端，若干工作进程各自持有模型",
    "tasks": "任务：学什么",
    "text": "文本与编号：各种词表，现训的或现成的，统一成一个 Tokenizer",
    "training": "训练循环、优化器、学习率计划、检查点与日志",
}


def rooms() -> dict[str, Path]:
    packages = {path.parent.name: path.parent for path in ROOT.glob("*/__init__.py")}
    modules = {path.stem: path for path in ROOT.glob("*.py") if not path.stem.startswith("__")}
    return {name: path for name, path in (packages | modules).items() if name not in COMMON}


def imports(path: Path, known: set[str]) -> set[str]:
    """The rooms that a file imports, also inside functions; not those for type checkers alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    checked = [n for n in ast.walk(tree) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n.test)]
    skipped = {id(inner) for block in checked for inner in ast.walk(block)}
    names: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.ImportFrom) and node.module == "regard":
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("regard."):
            names.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            names |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("regard.")}
    return names & known


def graph() -> dict[str, set[str]]:
    homes = rooms()
    return {
        name: {
            other for file in (home.rglob("*.py") if home.is_dir() else [home]) for other in imports(file, set(homes))
        } - {name}
        for name, home in homes.items()
    }  # fmt: skip


def reachable(edges: dict[str, set[str]], name: str) -> set[str]:
    seen: set[str] = set()
    todo = list(edges[name])
    while todo:
        room = todo.pop()
        if room not in seen:
            seen.add(room)
            todo += edges[room]
    return seen


def level(edges: dict[str, set[str]], name: str) -> int:
    """How many rooms stand below it in the longest chain."""
    if name in reachable(edges, name):
        raise SystemExit(f"{name} imports itself by way of others")
    return 1 + max((level(edges, other) for other in edges[name]), default=-1)


def purpose(path: Path) -> str:
    text = ast.get_docstring(ast.parse((path / "__init__.py" if path.is_dir() else path).read_text(encoding="utf-8")))
    sentence = (text or "").splitlines()[0]
    return sentence.partition(". ")[0].rstrip(".")


def columns(text: str) -> int:
    """Its width in a terminal, where a Chinese character takes two."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def picture(language: str = "en") -> str:
    homes, edges = rooms(), graph()
    lines = []
    for name in sorted(homes, key=lambda room: (-level(edges, room), room)):
        direct = edges[name] - {far for other in edges[name] for far in reachable(edges, other)}
        label = f"{name}/" if homes[name].is_dir() else f"{name}.py"
        below = ", ".join(sorted(direct))
        head = f"{level(edges, name):2}  {label:14} "
        english = textwrap.shorten(purpose(homes[name]), WIDTH - len(head), placeholder=" …")
        lines.append(head + (CHINESE[name] if language == "zh" else english))
        lines += [f"{'':19}↓ {below}"] if below else []
    lines.append(f"\n    {', '.join(COMMON)}{FOOT[language]}")
    return "\n".join(lines)


def page(text: str, language: str = "en") -> str:
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n```text\n{picture(language)}\n```\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    for language, path in PAGES.items():
        text = path.read_text(encoding="utf-8")
        if BEGIN not in text:
            sys.exit(f"{path}: there is no {BEGIN}")
        path.write_text(page(text, language), encoding="utf-8")

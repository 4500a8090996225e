"""The hooks of the site: links that leave docs/ become text, the READMEs are front pages, modules are listed."""

from types import SimpleNamespace

from mkdocs.structure.files import Files

from tools import docs_site


class Known(Files):
    def __init__(self, *paths: str) -> None:
        super().__init__([])
        self.paths = paths

    def get_file_from_path(self, path: str):  # type: ignore[override]
        return path if path in self.paths else None


def rewritten(page: str, text: str) -> str:
    files = Known("library.md", "zh/library.md", "index.md", "zh/index.md")
    return docs_site.on_page_markdown(text, SimpleNamespace(file=SimpleNamespace(src_uri=page)), None, files)


def test_links_stay_within_the_site() -> None:
    assert rewritten("index.md", "[a](docs/library.md#x) [b](src/regard/run.py)") == "[a](library.md#x) b"
    assert (
        rewritten("zh/library.md", "[a](../library.md) [b](../../README.md)") == "[a](../library.md) [b](../index.md)"
    )
    assert rewritten("library.md", "[a](https://x.org/y.md) [b](#c)") == "[a](https://x.org/y.md) [b](#c)"


def test_modules_of_packages_are_listed_once() -> None:
    page = docs_site.reference(docs_site.REFERENCE["api/nn.md"])
    assert page.startswith("# regard.nn\n\n::: regard.nn.multi_head\n")
    assert page.count("::: regard.nn.multi_head\n") == 1
    assert "::: regard.nn.position.rotary\n" in page

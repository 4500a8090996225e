"""`tools/docs_site.py`: what the hooks make of a page."""

import pytest

PAGE = """# 标题

一句话，
接着说。
`code` 开头的行
- 一项：
  还是这一项，
  *强调*。
- 又一项。
| a |

```text
一行。
又一行。
```
最后，
没有空格。
"""


def test_a_bar_in_a_table_is_a_bar() -> None:
    pytest.importorskip("mkdocs")
    from tools.docs_site import on_page_content

    assert on_page_content(r"<p>a \| b</p>") == r"<p>a \| b</p>"
    made = on_page_content(r"<p>a \| b</p><table><td><code>\|</code></td></table>")
    assert made.endswith(r'<p>a \| b</p><div class="table-responsive"><table><td><code>|</code></td></table></div>')


def test_chinese_lines_are_joined_without_spaces_and_code_is_not() -> None:
    pytest.importorskip("mkdocs")
    from tools.docs_site import without_breaks

    assert without_breaks(PAGE) == (
        "# 标题\n\n一句话，接着说。`code` 开头的行\n- 一项：还是这一项，*强调*。\n- 又一项。\n| a |\n\n"
        "```text\n一行。\n又一行。\n```\n最后，没有空格。\n"
    )

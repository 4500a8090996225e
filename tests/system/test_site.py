"""`make docs`: the site builds without a broken link, in both languages, with a reference of the public API."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.slow
def test_every_link_leads_somewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        if page.name == "404.html":  # its links begin at the root of a server
            continue
        for target in re.findall(r'(?:href|src)="([^"#?:]+)["#?]', page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.relative_to(site)}: {target}"


@pytest.mark.slow
def test_both_languages_and_the_reference_are_there(site: Path) -> None:
    for name in ("index", "library", "recipes", "zh/index", "zh/library", "api/regard", "api/models", "api/schedule"):
        assert (site / f"{name}.html").exists(), name
    nn = (site / "api" / "nn.html").read_text(encoding="utf-8")
    for name in ("regard.nn.multi_head.MultiHeadAttention", "regard.nn.layers.EncoderLayer"):
        assert f'id="{name}"' in nn
    assert "Project, split into heads, attend" in nn

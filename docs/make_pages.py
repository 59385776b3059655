"""Copies docs/ to build/pages, which `make docs` makes the site of. The site has nothing of the repository
but these pages: a link that leaves docs/ becomes its text."""

import re
import shutil
from pathlib import Path

DOCS = Path(__file__).resolve().parent
PAGES = DOCS.parent / "build" / "pages"

if __name__ == "__main__":
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(DOCS, PAGES, ignore=shutil.ignore_patterns("*.py", "*.toml", "__pycache__"))
    for page in PAGES.rglob("*.md"):
        out = re.escape("../" * len(page.relative_to(PAGES).parts))
        text = re.sub(rf"\[([^\]]+)\]\({out}[^)]*\)", r"\1", page.read_text(encoding="utf-8"))
        page.write_text(text, encoding="utf-8")

"""The frame of every page: one file that carries its style and scripts, and a policy that lets nothing else
run or load.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from importlib.resources import files as resources

from model_profiling.printable import printable


def framed(
    title: str, body: str, *, style: str, scripts: Sequence[str], also: str = "", notice: str = ""
) -> str:
    """A page with `body`, in which every text is escaped already. `also` is what the policy allows beside the
    page's own style and scripts."""
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_hash, scripts))}; style-src {_hash(style)}; "
        f"{f'{also}; ' if also else ''}base-uri 'none'; form-action 'none'"
    )
    head = (
        '<meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(printable(title))}</title><style>{style}</style>"
    )
    loaded = "".join(f'<script type="module">{script}</script>' for script in scripts)
    return (
        f'<!doctype html>\n{notice}<html lang="en"><head>{head}</head>\n<body>\n{printable(body)}{loaded}'
        "</body></html>\n"
    )


def with_top(heading: str, main: str, contents: str = "") -> str:
    """The body of a page that `page.css` and `page.js` serve: heading, light or dark, what stands in it."""
    return (
        '<a class="skip" href="#report">Skip to the report</a>\n'
        f'<header class="top"><h1>{escape(heading)}</h1>'
        '<button type="button" id="theme" hidden>Dark</button></header>\n'
        f'{contents}<main id="report" tabindex="-1">\n{main}\n</main>\n'
    )


def static_text(files: Sequence[str]) -> str:
    """Styles or scripts that pages share, as one."""
    folder = resources(__package__).joinpath("static")
    return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in files)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

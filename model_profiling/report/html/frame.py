"""The frame of every page: one file that carries its style and scripts, and a policy that lets nothing else
run or load.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape

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


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

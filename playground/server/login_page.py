"""The page that asks for the password, in the page's own colours.

Knows HTML.
"""

import htpy as h
from markupsafe import Markup

from playground.ui.markup import rendered
from playground.ui.theme import DARK, css_variables

_STYLE = """
body { margin: 0; min-height: 100vh; display: grid; place-items: center; padding: 16px;
  box-sizing: border-box; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
form { background: var(--surface); border: 1px solid var(--line); border-radius: 12px;
  padding: 24px; width: min(100%, 320px); box-sizing: border-box; display: grid; gap: 12px; }
h1 { font-size: 20px; margin: 0; }
label { display: grid; gap: 4px; color: var(--muted); font-size: 14px; }
input { font: inherit; padding: 8px 10px; border: 1px solid var(--line-strong); border-radius: 8px;
  background: var(--surface); color: var(--ink); }
button { font: inherit; font-weight: 600; padding: 10px; border: 0; border-radius: 8px;
  background: var(--accent-fill); color: var(--on-accent); cursor: pointer; }
p { margin: 0; color: var(--danger); }
"""


@rendered
def login_page(query: str, problem: str = "") -> h.Node:
    """A whole HTML page.

    Args:
        query: of the address that was asked for, with its question mark; it is opened next.
        problem: the error of the last attempt.
    """
    dark = "".join(f"--{name}:{value};" for name, value in DARK.items())
    style = f"{css_variables()}@media (prefers-color-scheme: dark){{:root{{{dark}}}}}{_STYLE}"
    secret = h.input(
        type="password",
        name="password",
        required=True,
        autofocus=True,
        autocomplete="current-password",
    )
    return h.html(lang="en")[
        h.head[
            h.meta(charset="utf-8"),
            h.title["XLA Playground"],
            h.meta(name="viewport", content="width=device-width, initial-scale=1"),
            h.style[Markup(style)],
        ],
        h.body[
            h.form(method="post", action=f"login{query}")[
                h.h1["XLA Playground"],
                h.label["Password", secret],
                problem and h.p(role="alert")[problem],
                h.button["Open"],
            ]
        ],
    ]

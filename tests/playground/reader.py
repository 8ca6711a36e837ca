"""What a visitor reads of the page's HTML. Must not know what any of it means."""

import re


def words(html: str) -> str:
    """The text between the tags, with single spaces."""
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def is_text(html: str) -> bool:
    """Whether nothing of `samples.INJECTIONS` has become markup."""
    return not any(markup in html for markup in ("<script", "<img", '" autofocus'))

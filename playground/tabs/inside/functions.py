"""The functions that can be looked into: those that the store holds.

Knows cache keys as words of a list and of an address. Must not know components.
"""

from playground.context.page_context import PageContext
from xla_backend import BackendError, CacheKey, InvalidRequest

NO_STORE = (
    "Compiled functions are inspected in the store, and this page was started without one: start "
    "it with one."
)


def key_of(text: str) -> CacheKey:
    """The key of a word of the list: `16x1x32`.

    Raises:
        InvalidRequest: it is none.
    """
    sizes = text.split("x")
    if len(sizes) != 3 or not all(size.isdecimal() and len(size) < 7 for size in sizes):
        raise InvalidRequest("Choose a function. Without one in the list, generate a text first.")
    padded_length, num_beams, max_new_tokens = map(int, sizes)
    return CacheKey(padded_length, num_beams, max_new_tokens)


def word_of(key: CacheKey) -> str:
    """The inverse of `key_of`."""
    return f"{key.padded_length}x{key.num_beams}x{key.max_new_tokens}"


def check_own(page: PageContext) -> None:
    """Refuses on a page for strangers what loads the model a second time.

    Raises:
        InvalidRequest: it is one.
    """
    if not page.admin:
        raise InvalidRequest("Measuring is only allowed on private pages. Run your own.")


def choices(page: PageContext, model: str | None) -> list[tuple[str, str]]:
    """Label and word of each function of a model; none where nothing can be known of it."""
    if page.inspector is None or not model:
        return []
    try:
        page.check_model(model)
        keys = page.inspector.keys(page.backend.identity(model))
    except BackendError:  # it is not downloaded, so nothing was compiled for it
        return []
    return [(str(key), word_of(key)) for key in keys]

"""What tests of the engine share beyond `tests.conftest`: the pairs of the parity tests.

Knows that compiling dominates: each function is compiled once for all test modules that use it.
Must not know what they compare.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.xla_backend.model.parity import Pair


@pytest.fixture(scope="session")
def pair_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Pair]]:
    """Gives the pair of a form named in `parity.FORMS`, made when it is first asked for.

    All share one engine, so functions that another test compiled may be there already.
    """
    from tests.xla_backend.model.parity import FORMS, RULES, make_pair
    from xla_backend import Backend

    backend, root = Backend(rules=RULES), tmp_path_factory.mktemp("parity")

    @functools.cache
    def made(form: str) -> Pair:
        return make_pair(FORMS[form], root / form.replace(" ", "-"), backend)

    yield made
    backend.close()

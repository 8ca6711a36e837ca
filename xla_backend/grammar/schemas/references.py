"""`References`: parts of a schema by identifiers, anchors and pointers (RFC 6901)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urljoin


class References:
    """The names in a schema."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._named: dict[str, Any] = {}
        self._index(root, "")

    def _index(self, schema: Any, base: str) -> None:
        todo = [(schema, base)]
        while todo:
            schema, base = todo.pop()
            if isinstance(schema, Mapping):
                name = schema.get("$id", schema.get("id"))
                if isinstance(name, str):
                    base = urljoin(base, name).rstrip("#")
                    self._named.setdefault(base, schema)
                for each in ("$anchor", "$dynamicAnchor"):
                    if isinstance(schema.get(each), str):
                        self._named.setdefault(f"{base}#{schema[each]}", schema)
                todo += [(each, base) for k, each in schema.items() if k not in ("enum", "const")]
            elif isinstance(schema, list):
                todo += [(each, base) for each in schema]

    def target(self, ref: str) -> Any:
        """The part of the schema that a reference names.

        Raises:
            KeyError: there is none.
        """
        base, _, pointer = ref.partition("#")
        names = [ref, *(f"{known}#{pointer}" for known in self._named if not base)]
        ways = [self._root] if not base else []
        ways += [of for known, of in self._named.items() if base and _same_document(known, base)]
        for name in names:
            if pointer and not pointer.startswith("/") and name in self._named:
                return self._named[name]
        for target in ways:
            if pointer and not pointer.startswith("/"):
                break
            for part in pointer.split("/")[1:]:
                name = unquote(part).replace("~1", "/").replace("~0", "~")
                try:
                    target = target[int(name) if isinstance(target, list) else name]
                except (KeyError, TypeError, ValueError, IndexError):
                    break
            else:
                return target
        raise KeyError(ref)


def _same_document(known: str, base: str) -> bool:
    return known == base or known.rstrip("/").endswith("/" + base.lstrip("./"))

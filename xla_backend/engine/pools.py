"""`Pools`: the pool of each model, with its scheduler and its functions.

Knows how much memory a pool may have, and where its functions are. Must not know requests.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from xla_backend.interface.buckets import pool_key
from xla_backend.interface.results import KVMemoryUse
from xla_backend.model.kv_memory import SharedLimit
from xla_backend.rows.pool import Pool
from xla_backend.rows.prefix import PrefixTree
from xla_backend.rows.prefix_store import PrefixStore
from xla_backend.rows.scheduler import RowScheduler

if TYPE_CHECKING:
    from xla_backend.checkpoints.tokenization import Tokenizer
    from xla_backend.compilation.function_cache import FunctionCache
    from xla_backend.engine.function_maker import FunctionMaker
    from xla_backend.model.functions import KeyFunctions, PoolFunctions
    from xla_backend.model.loaded_model import LoadedModel


@dataclass(frozen=True)
class ModelPool:
    """The pool of one model, and the scheduler of its rows."""

    pool: Pool
    rows: RowScheduler[Any]
    tokenizer: Tokenizer


class Pools:
    """Makes the pool of a model when it is first needed."""

    def __init__(
        self,
        cache: FunctionCache[KeyFunctions],
        maker: FunctionMaker,
        limit_bytes: int,
        store: PrefixStore | None,
        prefixes_before: Collection[str] = (),
    ) -> None:
        """Memory is allocated when rows need it.

        Args:
            cache, maker: hold and make functions.
            limit_bytes: the bound of all pools together; a row of full context fits in any case.
            store: saves prefixes that are evicted from memory.
            prefixes_before: see `Backend`.
        """
        self._store = store
        self._before = prefixes_before
        self._cache = cache
        self._maker = maker
        self._limit_bytes, self._shared = limit_bytes, SharedLimit(limit_bytes)
        self._pools: dict[str, ModelPool] = {}

    def of(self, engine: LoadedModel) -> ModelPool:
        name = engine.info.name
        if name not in self._pools:
            self._shared.add(engine.memory)
            blocks = engine.functions.blocks_of_row
            prefixes = PrefixTree(engine.memory, engine.identity, self._store, self._before)
            size = engine.functions.decoder.model.vocabulary_size
            sizes = size, blocks, engine.eos_token_ids
            pool = Pool(prefixes, engine.memory, *sizes, engine.row_grammars)
            assert engine.info.context_length is not None, "a pool has a context length"
            functions = _Functions(self._cache, self._maker, engine, engine.info.context_length)
            rows: RowScheduler[Any] = RowScheduler(pool, functions, time.perf_counter)
            self._pools[name] = ModelPool(pool, rows, engine.tokenizer)
        return self._pools[name]

    def other_model(self, model: str, salt: str, beginning: str) -> str:
        """The name of another model that has a text with this beginning cached; empty if none."""
        for name, of_model in self._pools.items():
            for token_ids in of_model.pool.prefixes.beginnings(salt) if name != model else ():
                if beginning in of_model.tokenizer.decode(token_ids):
                    return name
        return ""

    def use(self) -> KVMemoryUse:
        """Memory of all pools."""
        pools = [of_model.pool for of_model in list(self._pools.values())]
        return KVMemoryUse(
            cached_tokens=sum(pool.prefixes.tokens for pool in pools),
            used_bytes=sum(pool.memory.used * pool.memory.block_bytes for pool in pools),
            limit_bytes=max(
                [pool.memory.limit * pool.memory.block_bytes for pool in pools],
                default=self._limit_bytes,
            ),
        )

    def prefixes(self) -> frozenset[str]:
        """The names of all cached blocks, from any thread."""
        pools = [of_model.pool for of_model in list(self._pools.values())]
        return frozenset().union(*(pool.prefixes.names() for pool in pools))

    def close(self) -> None:
        """Saves cached prefixes to disk and drops all pools."""
        for of_model in self._pools.values():
            of_model.pool.prefixes.save()
        self._pools.clear()


@dataclass(frozen=True)
class _Functions:
    """The functions of a model's pool; see `scheduler.Functions`."""

    cache: FunctionCache[KeyFunctions]
    maker: FunctionMaker
    engine: LoadedModel
    context_length: int

    def of(self, rows: int, drafts: int = 0) -> PoolFunctions | None:
        key = pool_key(self.context_length, drafts)
        return cast("PoolFunctions | None", self.cache.peek(self.engine.info.name, key, rows))

    def make(self, rows: int, drafts: int = 0) -> None:
        key = pool_key(self.context_length, drafts)
        self.maker.later(self.engine, key, rows, is_missed=True)

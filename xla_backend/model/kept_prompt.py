"""`KeptPrompt`: keys and values of a text's first positions, which later prompts may begin with.

Knows in which slots they lie, and of which tokens they are. Must not know who may reuse them, nor
how they are computed. Position p is in slot p, so that a text grows without being moved. Axes: see
`families.blocks`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from xla_backend.model.families.blocks import KeysValues
from xla_backend.model.large_pages import LargePages


class KeptPrompt:
    """Keys and values in S slots, of which as many are filled as there are tokens.

    Attributes:
        token_ids: of which the keys and values are.
        prompt: the tensors that functions read, `[H, S, D]` a layer. They are views of memory that
            `write` changes: nothing may run on them meanwhile.
        answer_from: where the text begins that the last request has generated.
    """

    def __init__(self, shapes: Sequence[tuple[int, int]], slots: int) -> None:
        """No position is known yet.

        Args:
            shapes: heads H and head size D of each layer.
            slots: S.
        """
        self.shapes = tuple(shapes)
        self.slots = slots
        self.token_ids: list[int] = []
        self.answer_from = 0
        memory = LargePages()
        self._arrays = [
            tuple(memory.empty((heads, slots, size)) for _ in range(2)) for heads, size in shapes
        ]
        # Through DLPack, so that TensorFlow reads this memory instead of a copy.
        self.prompt = [
            KeysValues(*(tf.experimental.dlpack.from_dlpack(x.__dlpack__()) for x in pair))
            for pair in self._arrays
        ]

    @property
    def size_bytes(self) -> int:
        """Bytes of all slots."""
        return sum(array.nbytes for pair in self._arrays for array in pair)

    def common(self, token_ids: Sequence[int]) -> int:
        """How many tokens it and another text begin with alike."""
        length = min(len(self.token_ids), len(token_ids))
        differ = np.not_equal(self.token_ids[:length], token_ids[:length])
        return int(differ.argmax()) if differ.any() else length

    def write(
        self,
        first: int,
        token_ids: Sequence[int],
        kv: Sequence[Sequence[np.ndarray]],
    ) -> None:
        """Takes the positions from `first` on, n tokens; what was there or behind is given up.

        Args:
            first: at most the number of known positions.
            token_ids: n of them.
            kv: keys and values of at least n positions, `[H, n, D]` a layer.
        """
        last = first + len(token_ids)
        for pair, new in zip(self._arrays, kv, strict=True):
            for array, computed in zip(pair, new, strict=True):
                array[:, first:last] = computed[:, : len(token_ids)]
        self.token_ids[first:] = token_ids

    def cut(self, count: int) -> None:
        """Gives up all but the first positions."""
        del self.token_ids[count:]

    def copy(self, count: int, slots: int) -> KeptPrompt:
        """A copy of the first positions, with more slots or fewer."""
        copied = KeptPrompt(self.shapes, slots)
        kv = [tuple(array[:, :count] for array in pair) for pair in self._arrays]
        copied.write(0, self.token_ids[:count], kv)
        copied.answer_from = self.answer_from
        return copied


def as_arrays(kv: Sequence[KeysValues]) -> list[tuple[np.ndarray, ...]]:
    """Tensors as arrays, without a copy, which `numpy()` would make."""
    return [(np.asarray(memoryview(keys)), np.asarray(memoryview(values))) for keys, values in kv]

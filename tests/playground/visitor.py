"""`Visitor`: uses a page that nobody serves, and looks at what is shown.

Knows how Gradio carries events out: what a component is connected to, with the values of its
inputs, and then what comes after. Must not know any tab.
"""

import typing
from types import SimpleNamespace
from typing import Any

import gradio as gr
from gradio.block_function import BlockFunction
from gradio.blocks import Block

from tests.playground.carrying_out import answers


class Visitor:
    """One visitor, with values of their own in every component."""

    def __init__(self, page: gr.Blocks) -> None:
        self._page = page
        self._values = {block: getattr(block, "value", None) for block in page.blocks.values()}
        self._shown: list[tuple[Block, dict[str, Any]]] = []
        self._data: object = None

    def put(self, elem_id: str, value: object) -> None:
        """Gives a component a value, as by hand."""
        self._values[self._component(elem_id)] = value
        self._happens(elem_id, "change")

    def press(self, elem_id: str) -> None:
        """Presses a button; all that follows has ended afterwards."""
        self._happens(elem_id, "click")

    def select(self, elem_id: str, data: object) -> None:
        """Has a component's script tell of a press, with these data."""
        self._data = data
        self._happens(elem_id, "select")

    def reads(self, elem_id: str) -> Any:
        """The value of a component now."""
        return self._values[self._component(elem_id)]

    def shown(self, elem_id: str, what: str = "value") -> list[Any]:
        """Everything that events have made of a component's property, in their order."""
        component = self._component(elem_id)
        return [new[what] for block, new in self._shown if block is component and what in new]

    def _component(self, elem_id: str) -> Block:
        return self._page.blocks[self._place(elem_id)]

    def _place(self, elem_id: str) -> int:
        [place] = [at for at, each in self._page.blocks.items() if each.elem_id == elem_id]
        return place

    def _happens(self, elem_id: str, event: str) -> None:
        target = self._place(elem_id), event
        for index, function in list(self._page.fns.items()):
            if target in function.targets:
                self._carry_out(index)

    def _carry_out(self, index: int) -> None:
        function = self._page.fns[index]
        if function.fn is not None:  # else the browser does it alone
            named = {each: self._values[each] for each in function.inputs}
            values: list[Any] = [named] if function.inputs_as_dict else [*named.values()]
            if gr.Request in typing.get_type_hints(function.fn).values():
                values.insert(0, SimpleNamespace(session_hash="visitor"))
            if gr.EventData in typing.get_type_hints(function.fn).values():
                values.append(SimpleNamespace(_data=self._data))
            for each in answers(function.fn(*values)):
                self._show(function, each)
        for later, other in self._page.fns.items():
            if other.trigger_after == index:
                self._carry_out(later)

    def _show(self, function: BlockFunction, answer: Any) -> None:
        if not isinstance(answer, dict) or "__type__" in answer:  # one component's update
            values = answer if len(function.outputs) > 1 else [answer][: len(function.outputs)]
            answer = dict(zip(function.outputs, values, strict=True))
        for component, new in answer.items():
            assert component in function.outputs
            changes = new if isinstance(new, dict) else {"value": new}
            self._shown.append((component, changes))
            self._values[component] = changes.get("value", self._values[component])

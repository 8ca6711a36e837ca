"""Columns: one prompt with up to three models, system prompts, sets of options or forms.

Knows how the browser keeps the columns that are not in the fields, and how their requests run. A
column is settings by name, as a link has them (`draft`). Must not know components or HTML.
"""

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from playground.context.draft import AT, SETTINGS
from playground.context.runs import TextRun
from playground.context.runs_together import Member, RunsTogether
from playground.ui.option_controls import labelled
from xla_backend import BackendError, InvalidRequest

NAMES = ("A", "B", "C")
SHARED = ("prompt", "messages", "variables")
"""Settings that all columns have in common."""
OWN = tuple(name for name in SETTINGS if name not in SHARED)
assert len(NAMES) == len(AT)


@dataclass(frozen=True)
class Columns:
    """The columns of a visitor.

    Attributes:
        columns: the own settings of each; those of the chosen one are in the fields, too.
        chosen: the one in the fields.
        in_turn: whether they run one after the other.
    """

    columns: Annotated[tuple[dict[str, Any], ...], Field(min_length=1, max_length=len(NAMES))] = (
        {},
    )
    chosen: Annotated[int, Field(ge=0)] = 0
    in_turn: bool = False

    def with_chosen(self, settings: dict[str, Any]) -> "Columns":
        """The columns with these settings of the chosen one."""
        columns = (*self.columns[: self.chosen], settings, *self.columns[self.chosen + 1 :])
        return replace(self, columns=columns)

    @property
    def are_compared(self) -> bool:
        """Whether there is more than one."""
        return len(self.columns) > 1

    def after(self, act: object, at: object) -> "Columns":
        """The columns after a press of one of their buttons; unknown presses change nothing."""
        place = at if isinstance(at, int) and 0 <= at < len(self.columns) else self.chosen
        if act == "add" and len(self.columns) < len(NAMES):
            columns = (*self.columns, self.columns[self.chosen])
            return replace(self, columns=columns, chosen=len(columns) - 1)
        if act == "remove" and self.are_compared:
            columns = self.columns[:place] + self.columns[place + 1 :]
            chosen = min(self.chosen - (place < self.chosen), len(columns) - 1)
            return replace(self, columns=columns, chosen=chosen)
        if act == "open":
            return replace(self, chosen=place)
        if act == "order":
            return replace(self, in_turn=not self.in_turn)
        return self

    def differences(self) -> list[dict[str, str]]:
        """What each column has that is not the same in all, as texts by name."""
        names = dict.fromkeys(name for name in OWN for each in self.columns if name in each)
        texts = [{name: _text(each.get(name)) for name in names} for each in self.columns]
        differ = [name for name in names if len({each[name] for each in texts}) > 1]
        return [{name: each[name] for name in differ if each[name]} for each in texts]

    def to_json(self) -> str:
        """As the browser keeps it."""
        return json.dumps(asdict(self))


def _text(value: object) -> str:
    return "" if value is None or value is False else str(value)


_COLUMNS = TypeAdapter(Columns)


def columns_in(text: str | None) -> Columns:
    """What `to_json` has written; a single column for anything else."""
    try:
        found = _COLUMNS.validate_json(text or "")
    except ValidationError:
        return Columns()
    return replace(found, chosen=min(found.chosen, len(found.columns) - 1))


class ColumnRuns(RunsTogether):
    """The requests of all columns."""

    update_s = 0.06

    def __init__(self, members: Sequence[Member], columns: Columns) -> None:
        super().__init__(members, None if columns.in_turn else 0.0)
        self.columns = columns


def runs_of(
    columns: Columns,
    values_of: Callable[[int], Mapping[Any, Any]],
    run_of: Callable[[Mapping[Any, Any], int | None], TextRun],
) -> ColumnRuns:
    """The runs of all columns; none is sent where one is wrong.

    Columns that draw a seed have the same, so that only what the visitor set makes a difference.

    Args:
        columns: which.
        values_of: the fields' values of a column by its place.
        run_of: the run of such values; draws this seed unless the column holds its own.

    Raises:
        InvalidRequest: one cannot be served; the message begins with its name.
    """
    runs: list[TextRun] = []
    seed: int | None = None
    for place in range(len(columns.columns)):
        try:
            run = run_of(values_of(place), seed)
        except BackendError as error:
            raise InvalidRequest(f"{NAMES[place]}: {labelled(str(error))}") from error
        if run.options.do_sample and seed is None:
            seed = run.options.seed
        # Each has a salt of its own: all are rows of a pool, and none finds another's prompt.
        run.cache_salt = secrets.token_hex(16)
        runs.append(run)
    return ColumnRuns([Member(run) for run in runs], columns)

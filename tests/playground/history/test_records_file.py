"""Runs that leave the browser as files, and files that come back."""

import csv
import io
import json
from datetime import UTC, datetime

import pytest

from playground.context import machine
from playground.context.runs import Shown
from playground.history import records, records_file
from tests.playground.samples import miss, result
from xla_backend import GenerationOptions, InvalidRequest

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def some_runs() -> list[records.Record]:
    runs = records.add([], Shown("Once", miss()))
    return records.add(runs, Shown("=1+1", result(text=" a\nfox, 数", model="/srv/models/mine")))


def exported() -> dict:
    return json.loads(records_file.to_json(some_runs(), NOW))


def test_a_file_comes_back_whatever_else_is_in_it() -> None:
    runs = some_runs()
    [second, first], unreadable = records_file.from_json(records_file.to_json(runs, NOW))
    assert unreadable == 0
    assert first == runs[1]
    assert second == {**runs[0], "model": "mine"}

    content = exported()
    content["runs"][0]["timing"]["total_s"] = "<b>"
    runs, unreadable = records_file.from_json(json.dumps(content))
    assert (len(runs), unreadable) == (1, 1)

    data = "\ufeff" + records_file.to_json(some_runs(), NOW)
    assert len(records_file.from_json(data)[0]) == 2


def test_an_export_says_where_it_was_measured_and_names_no_folder() -> None:
    content = exported()
    assert content["machine"] == machine.description()
    assert {"cpu", "cores", "system", "python", "tensorflow"} <= set(content["machine"])
    assert content["exported"] == "2026-01-02T03:04:05.000+00:00"
    assert "/srv" not in json.dumps(content)


def test_the_table_has_a_column_for_every_raw_value() -> None:
    rows = list(csv.DictReader(io.StringIO(records_file.to_csv(some_runs()))))
    assert [row["cache"] for row in rows] == ["hit", "miss"]
    assert float(rows[1]["compile_s"]) == 2.0
    assert float(rows[0]["tokens_per_second"]) == pytest.approx(25)
    assert (rows[0]["key_padded_length"], rows[0]["option_seed"]) == ("16", "0")
    assert rows[0]["text"] == " a\nfox, 数"
    assert rows[0]["time_utc"].endswith("+00:00")

    options = GenerationOptions(length_penalty=-1.5)
    runs = records.add([], Shown("Once", result(options=options)))
    [row] = csv.DictReader(io.StringIO(records_file.to_csv(runs)))
    assert float(row["option_length_penalty"]) == -1.5


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_is_a_formula(start: str) -> None:
    formula = f"{start}cmd|' /C calc'!A0"
    runs = records.add([], Shown(formula, result(text=formula)))
    [row] = csv.DictReader(io.StringIO(records_file.to_csv(runs), newline=""))
    assert row["prompt"] == row["text"] == "'" + formula


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("", "not JSON"),
        ("\ufffd\ufffd", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "no runs of this page"),
        ('{"format": "other"}', "no runs of this page"),
        ('{"format": "xla-playground-runs", "version": 99}', "another version"),
        ('{"format": "xla-playground-runs", "version": 1}', "has no runs"),
        ('{"format": "xla-playground-runs", "version": 1, "runs": [1, {}]}', "None of the runs"),
        (" " * (records_file.FILE.max_bytes + 1), "larger than 2 MB"),
    ],
)
def test_a_bad_file_gets_a_sentence(data: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says) as error:
        records_file.from_json(data)
    assert "othing was changed" in str(error.value)

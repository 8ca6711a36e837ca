"""What is told about the machine, and what is not."""

from importlib import metadata
from pathlib import Path

from playground.context import machine


def test_the_machine_is_described_by_what_numbers_depend_on_and_names_no_place() -> None:
    known = machine.description()
    assert known["cpu"]
    assert known["cores"] >= 1
    assert known["tensorflow"] == metadata.version("tensorflow")
    assert str(known["cpu"]) in machine.summary()

    assert not [value for value in machine.description().values() if str(Path.home()) in str(value)]
    assert set(machine.description()) == {
        "cpu",
        "cores",
        "system",
        "python",
        "tensorflow",
        "transformers",
        "gradio",
    }

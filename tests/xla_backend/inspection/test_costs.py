"""FLOPs and bytes, beside XLA's own cost analysis and counted by hand."""

import gzip
from pathlib import Path

import pytest

from xla_backend.inspection.hlo import costs, protos
from xla_backend.inspection.hlo.costs import Module

STEP = Path(__file__).with_name("gpt2_step.hlo.pb.gz")
"""A step of a GPT-2 with two layers, as TensorFlow 2.21 had XLA optimise it:
`experimental_get_compiler_ir(...)(stage="optimized_hlo_serialized")`."""
OF_XLA = {"flops": 166_436, "transcendentals": 589, "bytes accessed": 359_660}
"""What `hlo_module_cost_analysis` of jaxlib 0.4.35, which is XLA's own, says of the same module's
text."""


def test_a_step_costs_what_xla_says() -> None:
    module = Module(gzip.decompress(STEP.read_bytes()))
    pairs = [costs.flops(module, each) for each in module.entry.instructions]
    assert sum(plain for plain, _ in pairs) == OF_XLA["flops"]
    assert sum(special for _, special in pairs) == OF_XLA["transcendentals"]
    moved = 0
    for each in module.entry.instructions:
        read, written = costs.traffic(module, each)
        moved += sum(read.values()) + written
    # XLA counts some slices in fusions whole.
    assert moved == pytest.approx(OF_XLA["bytes accessed"], rel=0.01)


class Builder:
    """Writes a module by hand."""

    def __init__(self) -> None:
        self.proto = protos.hlo().HloModuleProto(entry_computation_id=1)
        self.computation = self.proto.computations.add(id=1)

    def add(self, opcode: str, shape: tuple[int, ...], *operands: int, **fields: object) -> int:
        number = len(self.computation.instructions) + 1
        each = self.computation.instructions.add(
            id=number, opcode=opcode, operand_ids=operands, **fields
        )
        each.shape.element_type = protos.shapes().F32
        each.shape.dimensions.extend(shape)
        self.computation.root_id = number
        return number

    def costs(self) -> tuple[tuple[int, int], tuple[dict[int, int], int]]:
        """FLOPs and bytes of the last instruction."""
        module = Module(self.proto.SerializeToString())
        last = module.root(module.entry)
        return costs.flops(module, last), costs.traffic(module, last)


def test_products_slices_updates_and_functions_cost_what_they_move() -> None:
    module = Builder()
    left, right = module.add("parameter", (3, 4)), module.add("parameter", (4, 5))
    module.add("dot", (3, 5), left, right)
    each = module.computation.instructions[-1]
    each.dot_dimension_numbers.lhs_contracting_dimensions.append(1)
    each.dot_dimension_numbers.rhs_contracting_dimensions.append(0)
    assert module.costs() == ((2 * 3 * 4 * 5, 0), ({0: 4 * 12, 1: 4 * 20}, 4 * 15))

    module = Builder()
    module.add("slice", (2, 4), module.add("parameter", (1000, 4)))
    assert module.costs() == ((0, 0), ({0: 32}, 32))

    module = Builder()
    whole, part, start = (module.add("parameter", shape) for shape in ((1000,), (2,), ()))
    module.add("dynamic-update-slice", (1000,), whole, part, start)
    assert module.costs() == ((0, 0), ({0: 0, 1: 8, 2: 4}, 8))

    module = Builder()
    module.add("tanh", (7,), module.add("parameter", (7,)))
    assert module.costs() == ((0, 7), ({0: 28}, 28))

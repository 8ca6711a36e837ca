"""`python -m xla_backend.kernels`: lists kernels, shows their machine code, measures them."""

from __future__ import annotations

import argparse

from xla_backend.kernels import bench, catalog, dump


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m xla_backend.kernels")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="what there is, by the names under which XLA calls it")
    shown = commands.add_parser("dump", help="the assembly of a kernel, or of a micro-kernel")
    shown.add_argument("name", help="a kernel's name (`list`), or with --rows a format, as Q4_K")
    shown.add_argument("--rows", type=int, help="show the micro-kernel for so many rows alone")
    shown.add_argument("--int8", action="store_true", help="of rows rounded to 8 bits")
    shown.add_argument("--ir", action="store_true", help="LLVM's intermediate representation")
    measured = commands.add_parser("bench", help="micro-kernels over one core's limits")
    measured.add_argument("formats", nargs="*", help="all without any")
    measured.add_argument("--rows", type=int, nargs="+", default=[1, 8])
    options = parser.parse_args()
    try:
        if options.command == "list":
            for name, about in catalog.NAMES.items():
                print(f"{name:<28} {about}")
        elif options.command == "dump" and options.ir:
            print(dump.module(options.name, options.rows, options.int8))
        elif options.command == "dump":
            print(dump.assembly(options.name, options.rows, options.int8))
        else:
            for line in bench.lines(options.formats, options.rows):
                print(line, flush=True)
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()

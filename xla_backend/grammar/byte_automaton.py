"""A program that makes an automaton over bytes of a regular expression, which it reads.

Knows the library that does it. Must not import anything of the project: it starts in a moment. It
is a process of its own because some expressions have exponentially many states: such a one must
neither take the engine's memory nor stop its loop.

On stdout: how many states there are, then of each transition the state, the byte and the next
state, then the first state and the last ones, each list behind its length, all 4 bytes long. Where
the library refuses the expression, the reason is on stderr.
"""

from __future__ import annotations

import array
import re
import resource
import sys

import outlines_core

BEGIN = 0
"""A byte in front of each text, so that the library looks for none further on; texts have none."""
CPU_S = 4
MEMORY_BYTES = 3 * 2**29
MAX_STATES = 120_000
"""More are too many before equal ones are merged, too."""
MAX_POSITIONS = 250_000
"""Characters of the expression with its counts written out: more have too many states, which the
library would take all its time to find."""
REFUSED, TOO_LARGE = 3, 4
"""Exit statuses; where a limit ends it, it has another one."""


_PART = re.compile(r"\\x\{[0-9a-f]+\}|\\.|\[(?:\\.|[^]\\])*\]|\{(\d+),?(\d*)\}|\(\?:|.", re.DOTALL)


def positions(regex: str) -> int:
    """The characters and sets of an expression, each as often as counts repeat it."""
    inside, last = [0], 0
    for part in _PART.finditer(regex):
        if part[0] == "(?:":
            inside.append(0)
        elif part[0] == ")":
            last = inside.pop()
            inside[-1] += last
        elif part[1]:
            more = last * (max(1, int(part[2] or part[1])) - 1)
            last += more
            inside[-1] += more
        elif part[0] not in "?*+|":
            last = 1
            inside[-1] += 1
    return inside[0]


def main() -> int:
    """Reads the expression from stdin."""
    for limit, most in ((resource.RLIMIT_CPU, CPU_S), (resource.RLIMIT_AS, MEMORY_BYTES)):
        _, hard = resource.getrlimit(limit)
        resource.setrlimit(limit, (most if hard < 0 else min(most, hard), hard))
    requested = sys.stdin.buffer.read().decode()
    if positions(requested) > MAX_POSITIONS:
        return TOO_LARGE
    bytes_alone = outlines_core.Vocabulary(256, {bytes([byte]): [byte] for byte in range(256)})
    # The library takes the leftmost alternative that matches; where a match must end with the text,
    # every one counts.
    regex = f"\\x{BEGIN:02x}(?:{requested})\\z"
    try:
        index = outlines_core.Index(regex, bytes_alone)
    except Exception as error:  # the library raises several types
        sys.stderr.write(str(error))
        return REFUSED
    found: dict[int, dict[int, int]] = index.get_transitions()
    ends = set(index.get_final_states())
    number = {state: at for at, state in enumerate(sorted(found.keys() | ends))}
    if len(number) > MAX_STATES:
        return TOO_LARGE
    lists: list[list[int]] = [[], [], []]
    for state, following in found.items():
        lists[0].extend([number[state]] * len(following))
        lists[1].extend(following)
        lists[2].extend(map(number.__getitem__, following.values()))
    lists += [[number[index.get_initial_state()]], [number[state] for state in ends]]
    out = sys.stdout.buffer
    out.write(array.array("i", [len(number)]).tobytes())
    for each in lists:
        out.write(array.array("i", [len(each), *each]).tobytes())
    return 0


if __name__ == "__main__":
    sys.exit(main())

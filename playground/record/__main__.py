"""`python -m playground.record`: runs prompts, and writes them as a page that needs no server.

Knows the command line. The engine runs in a process of its own, as for the page.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from playground.context.runs import Shown, page_mode
from playground.record.document import RecordedRun, document
from playground.record.space import write_space
from playground.ui.wording import wording_of
from xla_backend import BackendError, BackendProcess, GenerationOptions, ModelInfo
from xla_backend.checkpoints.models import DEFAULT_MODEL, open_registry
from xla_backend.interface.prompt import Prompt, question


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m playground.record",
        description="Run prompts one after the other; write a page that replays them offline.",
    )
    parser.add_argument("prompts", nargs="+", metavar="PROMPT", help="in the order of their calls")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="default: %(default)s")
    parser.add_argument("--max-new-tokens", type=int, default=64, help="default: %(default)s")
    parser.add_argument("--num-beams", type=int, default=1, help="default: %(default)s")
    parser.add_argument(
        "--store", help="folder of compiled functions; off: each first call is a MISS"
    )
    parser.add_argument("--title", default="XLA Playground", help="default: %(default)s")
    parser.add_argument("--output", default="recorded.html", help="file; default: %(default)s")
    parser.add_argument("--space", metavar="FOLDER", help="also write a static Space into a folder")
    flags = parser.parse_args(arguments)
    try:
        options = GenerationOptions(max_new_tokens=flags.max_new_tokens, num_beams=flags.num_beams)
        page = document(list(_recorded(flags, options)), flags.title)
    except BackendError as error:
        print(error, file=sys.stderr)
        return 1
    Path(flags.output).write_text(page, encoding="utf-8")
    print(f"{flags.output}: {len(page.encode()):,} bytes")
    if flags.space:
        write_space(Path(flags.space), page, flags.title)
        print(f"{flags.space}: a static Space")
    return 0


def _recorded(flags: argparse.Namespace, options: GenerationOptions) -> Iterator[RecordedRun]:
    backend = BackendProcess(
        open_registry((flags.model,)), default_model=flags.model, store=flags.store, warm_up=None
    )
    try:
        backend.wait_ready()
        info = backend.load(flags.model)
        for prompt in flags.prompts:
            yield _run(backend, info, prompt, options)
    finally:
        backend.close()


def _run(
    backend: BackendProcess, info: ModelInfo, text: str, options: GenerationOptions
) -> RecordedRun:
    prompt: Prompt = question(text) if info.is_instruct else text
    result = backend.generate(info.name, prompt, options, mode=page_mode(options), in_chunks=True)
    inside = None
    if backend.inspector is not None and not result.key.is_pooled:
        inside = backend.inspector.inspect(info.name, backend.identity(info.name), result.key)
    return RecordedRun(Shown(prompt, result), wording_of(info), inside)


if __name__ == "__main__":
    sys.exit(main())

"""`make fuzz`: requests of any shape against the running page, from its own OpenAPI description.

Knows how the page is started and what schemathesis is told. Other cases at each run, unlike the
tests; schemathesis's own `--seed N` as an argument repeats one. Ends with schemathesis's status.
"""

import subprocess
import sys

from tests.playground.served import ROOT, serve

TOOL = ROOT / ".venv-tools" / "bin" / "schemathesis"
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "unsupported_method",
)


def main(arguments: list[str]) -> int:
    """Starts the page, has it tried, and says what came of it."""
    served = serve("--models", "gpt2-stories,whisper-commands", "--no-store")
    try:
        command = [
            str(TOOL),
            "run",
            f"{served.url}/gradio_api/openapi.json",
            "--url",
            served.url,
            "--exclude-path",
            "/v1/systemone",  # its 501 is the answer
            "--checks",
            ",".join(CHECKS),
            "--max-examples",
            "160",
            "--request-timeout",
            "60",
            *arguments,
        ]
        return subprocess.run(command, cwd=ROOT, check=False).returncode
    finally:
        tracebacks = [line for line in served.output if "Traceback" in line]
        print(f"{len(tracebacks)} tracebacks in the page's log")
        served.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`make fuzz`: requests of any shape against the running page, from its own OpenAPI descriptions.

Knows how the page is started and what schemathesis is told. Other cases at each run, unlike the
tests; schemathesis's own `--seed N` as an argument repeats one. Ends with schemathesis's status.
"""

import subprocess
import sys

from tests.playground.served import ROOT, serve

TOOL = ROOT / ".venv-tools" / "bin" / "schemathesis"
CRASHES = "not_a_server_error"
CONFORMS = f"{CRASHES},status_code_conformance,content_type_conformance,unsupported_method"
DESCRIPTIONS = {"/v1": ("/v1/openapi.json", CONFORMS), "": ("/gradio_api/openapi.json", CRASHES)}
"""By the path below which its addresses are, each description, and what is checked of it: Gradio's
names no errors."""


def main(arguments: list[str]) -> int:
    """Starts the page, has it tried, and says what came of it."""
    served = serve("--models", "gpt2-stories,whisper-commands", "--no-store")
    status = 0
    try:
        for path, (description, checks) in DESCRIPTIONS.items():
            command = [str(TOOL), "run", served.url + description, "--url", served.url + path]
            command += ["--checks", checks, "--max-examples", "160", "--request-timeout", "60"]
            tried = subprocess.run([*command, *arguments], cwd=ROOT, check=False)
            status = status or tried.returncode
        return status
    finally:
        tracebacks = [line for line in served.output if "Traceback" in line]
        print(f"{len(tracebacks)} tracebacks in the page's log")
        served.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

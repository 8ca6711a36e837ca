"""Threads that need Transformers while another one is importing it."""

from tests.program import python

# Nothing in this process may have imported Transformers: each is asked for the moment that the
# first begins to.
SCRIPT = """
import sys, threading, traceback
from xla_backend.checkpoints.models import Registry
from xla_backend.checkpoints.speech_input import SpeechInput
from xla_backend.checkpoints.tokenization import Tokenizer

registry = Registry()
begin = threading.Barrier(8)
assert "transformers" not in sys.modules

def load(name):
    begin.wait()
    try:
        files = registry.locate(name)
        tokenizer = Tokenizer.load(files.folder)
        assert tokenizer.encode("Once upon a time")
        if files.info.family == "speech":
            SpeechInput.load(files.folder, files.generation_config, files.config)
        sys.stdout.write("loaded\\n")
    except BaseException:
        traceback.print_exc(file=sys.stdout)

names = ["gpt2-stories", "opt-stories", "t5-stories", "whisper-commands"] * 2
threads = [threading.Thread(target=load, args=(name,)) for name in names]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_models_are_read_by_threads_that_begin_together() -> None:
    assert python(SCRIPT).split() == ["loaded"] * 8

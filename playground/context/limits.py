"""Limits for one visitor, and the messages when a limit is reached.

Knows the numbers and their sentences. Must not know queues, components or the engine.
"""

from dataclasses import dataclass

from xla_backend import GenerationOptions, InvalidRequest
from xla_backend.interface.options import DEFAULT_MAX_SECONDS, MAX_NEW_TOKENS
from xla_backend.interface.prompt import TokenIds
from xla_backend.interface.request_queue import QueueLimits


@dataclass(frozen=True)
class Limits:
    """Bounds for every visitor. All must be at least 1."""

    waiting: int = 100  # waiting requests, of all visitors together
    # waiting requests of one program, identified by its address. A page has only one run at a time.
    waiting_each: int = 100
    new_tokens: int = MAX_NEW_TOKENS  # new tokens of a request
    prompt_bytes: int = 2**16  # longest prompt, in bytes of UTF-8
    audio_s: float = DEFAULT_MAX_SECONDS  # longest recording, in seconds

    @property
    def queue(self) -> QueueLimits:
        """Those that the engine's queue holds."""
        return QueueLimits(self.waiting, self.waiting_each)

    def check_prompt(self, prompt: object) -> None:
        """Refuses a prompt that is too long.

        Args:
            prompt: a text, messages, which count together, or token ids, at least a byte each.

        Raises:
            InvalidRequest: it is too long. The engine itself checks that it is text.
        """
        texts = [each.content for each in prompt] if isinstance(prompt, tuple) else [prompt]
        size = sum(
            len(text.encode("utf-8", "surrogatepass")) for text in texts if isinstance(text, str)
        )
        if isinstance(prompt, TokenIds):
            size = len(prompt.ids)
        if size > self.prompt_bytes:
            raise InvalidRequest(
                f"The prompt has {size:,} bytes; at most {self.prompt_bytes:,} are allowed here. "
                "Shorten it."
            )

    def within(self, options: GenerationOptions) -> GenerationOptions:
        """These options, with `max_new_tokens` reduced to the limit."""
        return options.replace(max_new_tokens=min(options.max_new_tokens, self.new_tokens))

    def check_new_tokens(self, new_tokens: int) -> None:
        """Refuses more tokens than the limit.

        Raises:
            InvalidRequest: there are more.
        """
        if new_tokens > self.new_tokens:
            raise InvalidRequest(
                f"max_new_tokens is {new_tokens}; at most {self.new_tokens} are allowed for one "
                "request here."
            )


PUBLIC_LIMITS = Limits(waiting=60, waiting_each=8, new_tokens=512, prompt_bytes=2**14)
"""For public pages: on Spaces and through a public link."""

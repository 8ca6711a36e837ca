"""Which turns of a conversation the model reads, where not all of them fit.

Knows that the oldest turns go first and the system prompt stays. Must not know components or HTML.
"""

from playground.context.page_context import PageContext
from playground.tabs.chat.conversation import Conversation
from xla_backend import GenerationOptions, InvalidRequest, ModelUnavailable, Prediction

SHARE = 3
"""Of what is read, the oldest part of so many goes at once. Whatever goes, all that follows must be
computed anew: one turn at a time would mean that for every turn from then on."""


def fitted(
    page: PageContext, conversation: Conversation, question: str, salt: str
) -> tuple[int, Prediction | None]:
    """How many of the oldest turns are left out for a question, and what its request will meet.

    Args:
        page: whose limits hold.
        conversation: so far, with the options of the coming turn.
        question: the coming turn's.
        salt: as `cache_salt` of the engine.

    Returns:
        The prediction is None while the tokenizer is not downloaded: the run itself will fetch it.

    Raises:
        InvalidRequest, ModelUnavailable: the question is refused even alone, or the model is not
            offered here.
    """
    left_out = conversation.left_out
    model, options = conversation.model, conversation.options
    page.check_request(model, question, options)
    while True:
        prompt = conversation.messages(question, left_out)
        read = len(conversation.turns) - left_out
        try:
            page.limits.check_prompt(prompt)
            prediction = page.backend.predict(model, prompt, options, cache_salt=salt)
            if read == 0 or _has_room(page, model, prediction, options):
                return left_out, prediction
        except ModelUnavailable:
            return left_out, None
        except InvalidRequest:
            if read == 0:
                raise
        left_out += -(-read // SHARE)


def _has_room(
    page: PageContext, model: str, prediction: Prediction, options: GenerationOptions
) -> bool:
    """Whether there is room for the answer, or for half of what the model reads at least."""
    context = next((info.context_length for info in page.models() if info.name == model), None)
    if context is None:
        return True
    return prediction.prompt_tokens + min(options.max_new_tokens, context // 2) <= context

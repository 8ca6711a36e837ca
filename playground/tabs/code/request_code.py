"""A request as code to run elsewhere: Python with three libraries, or curl.

Knows how each is called and how to quote any text in it. Must not know components.
"""

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playground.context.runs import page_mode
from xla_backend import BucketRules, GenerationOptions, ModelInfo, Prompt
from xla_backend.checkpoints.architectures.table import DECODERS
from xla_backend.checkpoints.models import BUNDLED_FOLDER, HUB_MODELS
from xla_backend.interface.prompt import last_text, start_of_answer, system_text

SHORTEST = BucketRules().padded_lengths[0]
_NOT_IN_TENSORFLOW = (
    *("min_p", "presence_penalty", "frequency_penalty", "logit_bias", "stop", "stop_token_ids"),
    *("include_stop_str_in_output", "min_new_tokens", "ignore_eos"),
    *("prompt_lookup_num_tokens", "grammar"),
)
"""Options of this engine that Transformers' TensorFlow models do not follow."""
_OF_OPENAI = ("top_p", "presence_penalty", "frequency_penalty", "logit_bias", "stop")
"""Those that OpenAI's protocol has too, under the same names and with the same defaults."""


@dataclass(frozen=True)
class CodeRequest:
    """What the code asks for."""

    model: ModelInfo  # which model
    prompt: Prompt  # the text, or messages
    # all options; the code leaves out those that have their default value
    options: GenerationOptions
    padded_length: int  # slots of the prompt, with which Transformers pads it as this engine does
    address: str  # where the page is
    tools: tuple[dict[str, Any], ...] = ()  # that the model may call


def transformers_code(request: CodeRequest) -> str:
    """The code of Hugging Face's guide to XLA, which does not need this project.

    Its versions are those of the baseline; a test compares.
    """
    if request.model.model_type in DECODERS:
        return (
            "# The guide's code needs a TensorFlow class of Transformers. It is not offered for\n"
            f"# a {request.model.model_type} model: see the code for this library."
        )
    reads_apart = request.model.family == "encoder-decoder"
    options = request.options
    values: dict[str, Any] = {"max_new_tokens": options.max_new_tokens}
    if options.num_beams > 1:
        values |= {
            "num_beams": options.num_beams,
            "length_penalty": options.length_penalty,
            "early_stopping": options.early_stopping,
        }
    if options.repetition_penalty != 1.0:
        values["repetition_penalty"] = options.repetition_penalty
    values["do_sample"] = options.do_sample
    missing = [name for name in _NOT_IN_TENSORFLOW if name in _changed(options)]
    noise = f"# Without {', '.join(missing)}: TensorFlow's generate has none.\n" if missing else ""
    if options.do_sample:
        values |= {"temperature": options.temperature, "top_k": options.top_k}
        values |= {"top_p": options.top_p, "seed": [options.seed, 0]}
        noise += "# Its noise is its own: the same seed gives another text than on the page.\n"
    loading, imports = _loading(request.model, reads_apart)
    cut = "" if reads_apart else '[inputs["input_ids"].shape[1] :]'
    side = "right" if reads_apart else "left"
    return f"""\
# pip install tensorflow==2.21.0 tf-keras==2.21.0 transformers==4.57.6
# In an environment of its own: Transformers 5 has no TensorFlow models.
import tensorflow as tf
{imports}
{loading}
tokenizer = AutoTokenizer.from_pretrained(checkpoint, padding_side={_quoted(side)})
tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token

xla_generate = tf.function(model.generate, jit_compile=True)
{_prompt_lines(request.prompt)}
# Padded, or every other length would be compiled anew.
inputs = tokenizer(
    [prompt],
    pad_to_multiple_of={request.padded_length},
    padding=True,
    return_tensors="tf",
    return_token_type_ids=False,
)
{noise}generated = xla_generate(
    **inputs,
{_lines(values)}    pad_token_id=tokenizer.pad_token_id,
)
print(tokenizer.decode(generated[0]{cut}, skip_special_tokens=True))"""


def library_code(request: CodeRequest) -> str:
    """The engine without the page, run in this project's folder."""
    name, source = request.model.name, request.model.source
    is_known = source != "hub" or name in HUB_MODELS
    values = _changed(request.options)
    prompt, extra = _quoted(last_text(request.prompt)), ""
    if _is_question(request.prompt):
        system = system_text(request.prompt)
        prompt = f"question({', '.join([prompt, *([_quoted(system)] if system else [])])})"
        extra = ", question"
    elif isinstance(request.prompt, tuple):
        lines = (
            f"        Message({_quoted(m.role)}, {_quoted(m.content)}),\n" for m in request.prompt
        )
        prompt, extra = f"(\n{''.join(lines)}    )", ", Message"
    imports = [f"from xla_backend import Backend, GenerationOptions{extra}"]
    registry = ""
    if not is_known:
        imports.append("from xla_backend.checkpoints.models import Registry")
        registry = f"Registry([{_quoted(name)}])"
    # As the page runs it: by functions for padded sizes, unless an option needs a row.
    mode = page_mode(request.options)
    more = f"    mode={_quoted(mode)},\n" if mode else ""
    return f"""\
{chr(10).join(imports)}

backend = Backend({registry})
result = backend.generate(
    {_quoted(name)},
    {prompt},
    GenerationOptions({", ".join(f"{name}={_value(value)}" for name, value in values.items())}),
{more})
print(result.text)
print(result.cache.value, result.timing.total_s, "seconds")
backend.close()"""


def openai_code(request: CodeRequest) -> str:
    """This page as a service, from Python with OpenAI's client."""
    path, values, extra = _openai_request(request)
    what = "text" if path == "completions" else "message.content"
    more = {"extra_body": extra} if extra else {}
    return f"""\
# pip install openai
from openai import OpenAI

# The key is the page's password, if it has one. Any client of OpenAI's protocol takes this address.
client = OpenAI(base_url={_quoted(_v1(request))}, api_key="none")
answer = client.{path.replace("/", ".")}.create(
{_lines(values | more)})
print(answer.choices[0].{what})
print(answer.timings["cache"], answer.timings["total_ms"], "ms")"""


def curl_code(request: CodeRequest) -> str:
    """This page as a service, from a shell; it prints the answer's JSON."""
    path, values, extra = _openai_request(request)
    return f"""\
curl -s {shlex.quote(f"{_v1(request)}/{path}")} \\
  -H 'Content-Type: application/json' \\
  -d {shlex.quote(json.dumps(values | extra))}"""


FORMS: dict[str, Callable[[CodeRequest], str]] = {
    "Transformers": transformers_code,
    "This library": library_code,
    "openai": openai_code,
    "curl": curl_code,
}
"""The writer of each form by its name."""
TAKES_TOOLS = ("openai", "curl")


def _loading(model: ModelInfo, reads_apart: bool) -> tuple[str, str]:
    """The Transformers class that loads the model, and its import."""
    kind = "TFAutoModelForSeq2SeqLM" if reads_apart else "TFAutoModelForCausalLM"
    if model.source == "hub":
        return (
            f"checkpoint = {_quoted(model.name)}\n"
            "# Transformers 4.57 fails to read PyTorch's safetensors into TensorFlow models.\n"
            f"model = {kind}.from_pretrained(checkpoint, use_safetensors=False)",
            f"from transformers import AutoTokenizer, {kind}\n",
        )
    folder = model.name
    if model.source == "bundled":
        folder = f"{BUNDLED_FOLDER.name}/{Path(model.name).name}"
    return (
        f"checkpoint = {_quoted(folder)}\n"
        "# Transformers 4.57 fails to read safetensors into TensorFlow models: by hand.\n"
        f"model = {kind}.from_config(AutoConfig.from_pretrained(checkpoint))\n"
        "model.build_in_name_scope()\n"
        'weights = load_file(f"{checkpoint}/model.safetensors")\n'
        "load_pytorch_state_dict_in_tf2_model(\n"
        "    model, weights, tf_inputs=False, allow_missing_keys=True\n"
        ")\n",
        "from safetensors.tensorflow import load_file\n"
        f"from transformers import AutoConfig, AutoTokenizer, {kind}\n"
        "from transformers.modeling_tf_pytorch_utils import load_pytorch_state_dict_in_tf2_model\n",
    )


def _prompt_lines(prompt: Prompt) -> str:
    """The prompt for Transformers' tokenizer, which writes messages as the chat template says."""
    if not isinstance(prompt, tuple):
        return f"prompt = {_quoted(last_text(prompt))}"
    messages = "".join(
        f'    {{"role": {_quoted(each.role)}, "content": {_quoted(each.content)}}},\n'
        for each in prompt
    )
    ends = "continue_final_message" if start_of_answer(prompt) else "add_generation_prompt"
    return (
        f"messages = [\n{messages}]\n"
        f"prompt = tokenizer.apply_chat_template(messages, tokenize=False, {ends}=True)"
    )


def _is_question(prompt: Prompt) -> bool:
    """Whether the prompt is one message of a user, with or without a system prompt."""
    roles = [message.role for message in prompt] if isinstance(prompt, tuple) else []
    return roles in (["user"], ["system", "user"])


def _v1(request: CodeRequest) -> str:
    return f"{request.address.rstrip('/')}/v1"


def _openai_request(request: CodeRequest) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Path and fields in OpenAI's protocol, and those that only this engine has."""
    options, changed = request.options, _changed(request.options)
    values: dict[str, Any] = {"model": request.model.name}
    path = "completions"
    if isinstance(request.prompt, tuple):
        path = "chat/completions"
        values["messages"] = [message.to_dict() for message in request.prompt]
    else:
        values["prompt"] = last_text(request.prompt)
    if request.tools:
        values["tools"] = list(request.tools)
    values |= {"max_tokens": options.max_new_tokens, "temperature": options.temperature}
    # Where they are left out, the protocol samples from all tokens, with another seed each time.
    seed = {"seed": options.seed} if options.do_sample else {}
    values |= seed | {name: changed[name] for name in _OF_OPENAI if name in changed}
    extra = {"top_k": options.top_k} if options.do_sample and options.top_k else {}
    known = {*values, *extra, "max_new_tokens", "top_k", "seed"}
    extra |= {name: value for name, value in changed.items() if name not in known}
    return path, values, extra


def _changed(options: GenerationOptions) -> dict[str, Any]:
    """The options that differ from the defaults of the library and the endpoint."""
    defaults = GenerationOptions().to_dict()
    values = options.to_dict()
    return {name: values[name] for name in values if values[name] != defaults[name]}


def _lines(values: dict[str, Any]) -> str:
    return "".join(f"    {name}={_value(value)},\n" for name, value in values.items())


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        pairs = (f"{_quoted(name)}: {_value(each)}" for name, each in value.items())
        return f"{{{', '.join(pairs)}}}"
    return _quoted(value) if isinstance(value, str) else repr(value)


def _quoted(text: str) -> str:
    """A text as a Python literal, in double quotes unless that needs more escapes.

    Invisible characters and those that change the writing direction are escaped.
    """
    # `repr` uses double quotes only if the text holds an apostrophe, so we add one first.
    return repr(text) if '"' in text else '"' + repr("'" + text)[2:]

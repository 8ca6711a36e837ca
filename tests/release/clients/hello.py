"""What the documentation of each client shows first, with its default parameters.

`python hello.py NAME` runs one of the functions with the clients of requirements-clients.txt, which
find the server by their own environment variables. Must not know how that is started.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODEL = "SmolLM2-135M-Instruct"
QUESTION = "What is the capital of France?"
MESSAGES: Any = [{"role": "user", "content": QUESTION}]
PERSON = "John Doe is 30 years old."
PERSON_MESSAGES: Any = [{"role": "user", "content": PERSON}]


def person() -> Any:
    """The class that most of the documentations extract."""
    from pydantic import BaseModel

    class Person(BaseModel):
        name: str
        age: int

    return Person


def weather(city: str) -> str:
    """Get the weather in a city."""
    return f"It is sunny in {city}."


WEATHER: Any = {
    "name": "weather",
    "description": weather.__doc__,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
ASK_WEATHER = "What is the weather like in Paris today?"


# --- openai ---------------------------------------------------------------------------------------


def openai_chat() -> object:
    import openai

    answer = openai.OpenAI().chat.completions.create(model=MODEL, messages=MESSAGES)
    return answer.choices[0].message.content


def openai_async() -> object:
    import openai

    answer = openai.AsyncOpenAI().chat.completions.create(model=MODEL, messages=MESSAGES)
    return asyncio.run(answer).choices[0].message.content


def openai_stream() -> object:
    import openai

    chunks = openai.OpenAI().chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def openai_completion() -> object:
    import openai

    return (
        openai.OpenAI().completions.create(model=MODEL, prompt="Once upon a time").choices[0].text
    )


def openai_parse() -> object:
    import openai

    answer = openai.OpenAI().chat.completions.parse(
        model=MODEL, messages=PERSON_MESSAGES, response_format=person()
    )
    return answer.choices[0].message.parsed


def openai_responses() -> object:
    import openai

    answer = openai.OpenAI().responses.create(
        model=MODEL,
        reasoning={"effort": "low"},
        instructions="Talk like a pirate.",
        input="Are semicolons optional in JavaScript?",
    )
    return answer.output_text


def openai_responses_stream() -> object:
    import openai

    events = openai.OpenAI().responses.create(model=MODEL, input=MESSAGES, stream=True)
    return "".join(each.delta for each in events if each.type == "response.output_text.delta")


def openai_responses_parse() -> object:
    import openai

    answer = openai.OpenAI().responses.parse(
        model=MODEL, input=PERSON_MESSAGES, text_format=person()
    )
    return answer.output_parsed


def openai_responses_go_on() -> object:
    import openai

    client = openai.OpenAI()
    joke: Any = {"role": "user", "content": "Tell me a joke."}
    more: Any = {"role": "user", "content": "Explain why this is funny."}
    first = client.responses.create(model=MODEL, input=[joke])
    by_id = client.responses.create(model=MODEL, previous_response_id=first.id, input=[more])
    whole: Any = [joke, *first.output, more]
    return by_id.output_text and client.responses.create(model=MODEL, input=whole).output_text


def openai_tools() -> object:
    import openai

    answer = openai.OpenAI().chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": ASK_WEATHER}],
        tools=[{"type": "function", "function": WEATHER}],
    )
    return answer.choices[0].message


def openai_responses_tools() -> object:
    import openai

    tools: Any = [{"type": "function", **WEATHER}]
    return openai.OpenAI().responses.create(model=MODEL, input=ASK_WEATHER, tools=tools).output


# --- litellm --------------------------------------------------------------------------------------


def litellm_completion() -> object:
    import litellm

    return litellm.completion(f"openai/{MODEL}", MESSAGES).choices[0].message.content


def litellm_stream() -> object:
    import litellm

    chunks = litellm.completion(f"openai/{MODEL}", MESSAGES, stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def litellm_vllm() -> object:
    import litellm

    base = os.environ["OPENAI_BASE_URL"]
    answer = litellm.completion(f"hosted_vllm/{MODEL}", MESSAGES, api_base=base)
    return answer.choices[0].message.content


def litellm_anthropic() -> object:
    import litellm

    return litellm.completion(f"anthropic/{MODEL}", MESSAGES).choices[0].message.content


def litellm_responses() -> object:
    import litellm

    return litellm.responses(model=f"openai/{MODEL}", input=QUESTION).output[0].content[0].text


def litellm_schema() -> object:
    import litellm

    answer = litellm.completion(f"openai/{MODEL}", PERSON_MESSAGES, response_format=person())
    return person().model_validate_json(answer.choices[0].message.content)


def litellm_tools() -> object:
    import litellm

    tools = [{"type": "function", "function": WEATHER}]
    answer = litellm.completion(f"openai/{MODEL}", MESSAGES, tools=tools, tool_choice="auto")
    return answer.choices[0].message


# --- langchain-openai -----------------------------------------------------------------------------


def langchain_invoke() -> object:
    from langchain_openai import ChatOpenAI

    messages = [("system", "You translate English to French."), ("human", "I love programming.")]
    return ChatOpenAI(model=MODEL).invoke(messages).content


def langchain_stream() -> object:
    from langchain_openai import ChatOpenAI

    return "".join(chunk.text for chunk in ChatOpenAI(model=MODEL).stream(QUESTION))


def langchain_batch() -> object:
    from langchain_openai import ChatOpenAI

    return "\n".join(each.text for each in ChatOpenAI(model=MODEL).batch([QUESTION, "Hello"]))


def langchain_structured() -> object:
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model=MODEL).with_structured_output(person()).invoke(PERSON)


def langchain_json_schema() -> object:
    from langchain_openai import ChatOpenAI

    chat = ChatOpenAI(model=MODEL)
    return chat.with_structured_output(person(), method="json_schema", strict=True).invoke(PERSON)


def langchain_responses() -> object:
    from langchain_openai import ChatOpenAI

    chat = ChatOpenAI(model=MODEL, use_responses_api=True)
    return chat.invoke([("human", PERSON), chat.invoke(PERSON), ("human", "And now?")]).text


def langchain_completions() -> object:
    from langchain_openai import OpenAI

    return "\n".join(OpenAI(model=MODEL).batch(["Once upon a time", "Hello"]))


def langchain_function_calling() -> object:
    from langchain_openai import ChatOpenAI

    chat = ChatOpenAI(model=MODEL)
    return chat.with_structured_output(person(), method="function_calling").invoke(PERSON)


def langchain_bind_tools() -> object:
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model=MODEL).bind_tools([weather]).invoke(ASK_WEATHER)


# --- instructor -----------------------------------------------------------------------------------


def instructor_json_schema() -> object:
    import instructor

    client = instructor.from_provider(f"openai/{MODEL}", mode=instructor.Mode.JSON_SCHEMA)
    return client.create(response_model=person(), messages=PERSON_MESSAGES)


def instructor_partial() -> object:
    import instructor

    client = instructor.from_provider(f"openai/{MODEL}", mode=instructor.Mode.JSON_SCHEMA)
    return list(client.create_partial(response_model=person(), messages=PERSON_MESSAGES))[-1]


def instructor_tools() -> object:
    import instructor

    client = instructor.from_provider(f"openai/{MODEL}")
    return client.create(response_model=person(), messages=PERSON_MESSAGES)


def instructor_responses_tools() -> object:
    import instructor
    import openai

    client = instructor.from_openai(openai.OpenAI(), mode=instructor.Mode.RESPONSES_TOOLS)
    return client.create(model=MODEL, response_model=person(), messages=PERSON_MESSAGES)


# --- pydantic-ai ----------------------------------------------------------------------------------


def pydantic_ai_agent() -> object:
    from pydantic_ai import Agent

    agent = Agent(f"openai:{MODEL}", instructions="Be concise, reply with one sentence.")
    return agent.run_sync('Where does "hello world" come from?').output


def pydantic_ai_history() -> object:
    from pydantic_ai import Agent

    agent = Agent(f"openai-chat:{MODEL}", instructions="Be a helpful assistant.")
    first = agent.run_sync("Tell me a joke.")
    return agent.run_sync("Explain?", message_history=first.new_messages()).output


def pydantic_ai_stream() -> object:
    from pydantic_ai import Agent

    async def texts() -> list[str]:
        async with Agent(f"openai-chat:{MODEL}").run_stream(QUESTION) as run:
            return [text async for text in run.stream_text()]

    return asyncio.run(texts())[-1]


def pydantic_ai_native_output() -> object:
    from pydantic_ai import Agent, NativeOutput

    agent = Agent(f"openai-chat:{MODEL}", output_type=NativeOutput(person()))
    return agent.run_sync(PERSON).output


def pydantic_ai_output_type() -> object:
    from pydantic_ai import Agent

    return Agent(f"openai-chat:{MODEL}", output_type=person()).run_sync(PERSON).output


def pydantic_ai_tools() -> object:
    from pydantic_ai import Agent

    return Agent(f"openai:{MODEL}", tools=[weather]).run_sync(ASK_WEATHER).output


# --- openai-agents --------------------------------------------------------------------------------


def agents_run() -> object:
    from agents import Agent, Runner

    agent = Agent(name="Assistant", instructions="You are a helpful assistant", model=MODEL)
    return Runner.run_sync(agent, "Write a haiku about recursion in programming.").final_output


def agents_stream() -> object:
    from agents import Agent, Runner

    async def text() -> object:
        run = Runner.run_streamed(Agent(name="Joker", model=MODEL), "Please tell me a joke.")
        async for _ in run.stream_events():
            pass
        return run.final_output

    return asyncio.run(text())


def agents_output_type() -> object:
    from agents import Agent, Runner

    agent = Agent(name="Reader", model=MODEL, output_type=person())
    return Runner.run_sync(agent, PERSON).final_output


def agents_session() -> object:
    from agents import Agent, Runner, SQLiteSession

    agent, session = Agent(name="Guide", model=MODEL), SQLiteSession("a visitor")
    Runner.run_sync(agent, "What city is the Golden Gate Bridge in?", session=session)
    return Runner.run_sync(agent, "What state is it in?", session=session).final_output


def agents_tools() -> object:
    from agents import Agent, Runner, function_tool

    agent = Agent(name="Weatherman", model=MODEL, tools=[function_tool(weather)])
    return Runner.run_sync(agent, ASK_WEATHER).final_output


def agents_handoff() -> object:
    from agents import Agent, Runner

    spanish = Agent(name="Spanish agent", instructions="You only speak Spanish.", model=MODEL)
    triage = Agent(name="Triage agent", model=MODEL, handoffs=[spanish])
    return Runner.run_sync(triage, "Hola, ¿cómo estás?").final_output


# --- anthropic ------------------------------------------------------------------------------------


def anthropic_message() -> object:
    import anthropic

    answer = anthropic.Anthropic().messages.create(
        model=MODEL, max_tokens=1024, thinking={"type": "adaptive"}, messages=MESSAGES
    )
    return answer.content[0].text


def anthropic_stream() -> object:
    import anthropic

    client = anthropic.Anthropic()
    with client.messages.stream(model=MODEL, max_tokens=1024, messages=MESSAGES) as stream:
        return "".join(stream.text_stream)


def anthropic_parse() -> object:
    import anthropic

    answer = anthropic.Anthropic().messages.parse(
        model=MODEL, max_tokens=1024, messages=PERSON_MESSAGES, output_format=person()
    )
    return answer.parsed_output


def anthropic_count_tokens() -> object:
    import anthropic

    client = anthropic.Anthropic()
    return client.messages.count_tokens(model=MODEL, messages=MESSAGES).input_tokens


def anthropic_models() -> object:
    import anthropic

    return [model.id for model in anthropic.Anthropic().models.list()]


def anthropic_tools() -> object:
    import anthropic

    tool = {"name": "weather", "input_schema": WEATHER["parameters"]}
    answer = anthropic.Anthropic().messages.create(
        model=MODEL,
        max_tokens=1024,
        tools=[tool],
        tool_choice={"type": "any"},
        messages=[{"role": "user", "content": ASK_WEATHER}],
    )
    return next(block.input for block in answer.content if block.type == "tool_use")


def anthropic_types() -> object:
    """Every field, of the right type, of an answer and of its events."""
    import anthropic
    from anthropic.types import Message, RawMessageStreamEvent
    from pydantic import TypeAdapter

    raw = anthropic.Anthropic().messages.with_raw_response
    asked: Any = {"model": MODEL, "max_tokens": 8, "messages": MESSAGES}
    whole = raw.create(**asked).http_response.read()
    TypeAdapter(Message).validate_json(whole, strict=True)
    events: Any = TypeAdapter(RawMessageStreamEvent)
    lines = raw.create(**asked, stream=True).http_response.read().decode().split("\n")
    data = [line[6:] for line in lines if line.startswith("data: ")]
    return [events.validate_json(event, strict=True).type for event in data]


# --- typesafe -------------------------------------------------------------------------------------


def typesafe_system_one() -> object:
    from typesafe_sdk import Choice, Noul, Score, TypeSafeClient

    with TypeSafeClient() as client:
        result = client.system_one(
            state="I was charged twice. Please help.",
            questions={
                "billing": Noul(instructions="Is this about billing?"),
                "tone": Choice(
                    instructions="What is the tone?", criteria={"calm": None, "angry": None}
                ),
                "urgent": Score(criteria=["Can wait", "This week", "Today"]),
            },
        )
    assert 0 <= result.nouls["billing"].noul <= 1
    assert 0 <= result.scores["urgent"].score <= 2
    return result.choices["tone"].choice


# --- programs -------------------------------------------------------------------------------------


def run(program: str, *arguments: str) -> str:
    """What one of the clients' programs writes."""
    command = [Path(sys.executable).parent / program, *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def llm_prompt() -> object:
    return run("llm", "-m", MODEL, QUESTION) and run("llm", "--continue", "And of Italy?")


def llm_schema() -> object:
    return run("llm", "-m", MODEL, "--schema", "name, age int", PERSON)


def llm_responses() -> object:
    return run("llm", "-m", "responses", "-s", "Be brief", QUESTION)


def shell_gpt_code() -> object:
    return run("sgpt", "--no-cache", "--code", "solve fizz buzz problem using python")


HELLOS: dict[str, Callable[[], object]] = {
    name: value
    for name, value in list(globals().items())
    if callable(value) and "_" in name.strip("_")
}

if __name__ == "__main__":
    said = HELLOS[sys.argv[1]]()
    assert said
    print(said)

// The same of npm's clients: `node --input-type=module - NAME < hello.mjs`, where those are.

import { openai } from '@ai-sdk/openai';
import { generateText, Output, streamText, tool } from 'ai';
import OpenAI from 'openai';
import { zodTextFormat } from 'openai/helpers/zod';
import process from 'node:process';
import { z } from 'zod';

const MODEL = 'SmolLM2-135M-Instruct';
const QUESTION = 'What is the capital of France?';
const PERSON = 'John Doe is 30 years old.';
const Person = z.object({ name: z.string(), age: z.number().int() });
const client = new OpenAI();
const model = openai(MODEL);

const HELLOS = {
  async npm_openai_responses() {
    const instructions = 'You are a coding assistant that talks like a pirate';
    const input = 'Are semicolons optional in JavaScript?';
    return (await client.responses.create({ model: MODEL, instructions, input })).output_text;
  },
  async npm_openai_chat() {
    const messages = [{ role: 'developer', content: 'Be brief.' }, { role: 'user', content: QUESTION }];
    return client.chat.completions.stream({ model: MODEL, messages }).finalContent();
  },
  async npm_openai_parse() {
    const text = { format: zodTextFormat(Person, 'person') };
    return (await client.responses.parse({ model: MODEL, input: PERSON, text })).output_parsed;
  },
  async npm_ai_text() {
    return (await generateText({ model, prompt: QUESTION })).text;
  },
  async npm_ai_chat() {
    return (await generateText({ model: openai.chat(MODEL), prompt: QUESTION })).text;
  },
  async npm_ai_messages() {
    const messages = [{ role: 'user', content: QUESTION }];
    messages.push(...(await generateText({ model, messages })).response.messages);
    messages.push({ role: 'user', content: 'And of Italy?' });
    return (await generateText({ model, messages })).text;
  },
  async npm_ai_stream() {
    const onError = ({ error }) => { throw error; };
    return streamText({ model, prompt: QUESTION, onError }).text;
  },
  async npm_ai_tools() {
    const inputSchema = z.object({ city: z.string() });
    const weather = tool({ description: 'Get the weather in a city', inputSchema, execute: () => 'sunny' });
    const asked = { tools: { weather }, toolChoice: 'required', prompt: 'What is the weather in Paris?' };
    return (await generateText({ model, ...asked })).toolResults[0].output;
  },
  async npm_ai_object() {
    return (await generateText({ model, prompt: PERSON, output: Output.object({ schema: Person }) })).output;
  },
};

const said = await HELLOS[process.argv[2]]();
if (!said) throw new Error('nothing was said');
console.log(said);

// The AI SDK through its two providers of responses and its chat provider.
import assert from "node:assert/strict";
import { createOpenResponses } from "@ai-sdk/open-responses";
import { createOpenAI } from "@ai-sdk/openai";
import { generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const baseURL = `${process.env.SERVER_URL}/v1`;
const openai = createOpenAI({ baseURL, apiKey: "dummy" });
const open = createOpenResponses({ name: "local", url: `${baseURL}/responses`, apiKey: "dummy" });
const models = [openai("scripted"), open("scripted"), openai.chat("scripted")];
const tools = {
  get_weather: tool({
    description: "Tell the weather",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => `It is sunny in ${city}`,
  }),
};
const loop = { tools, prompt: "weather in Paris?", stopWhen: stepCountIs(3), maxRetries: 0 };

export async function check_a_plain_answer() {
  for (const model of models) {
    const made = await generateText({ model, system: "be brief", prompt: "hello", maxRetries: 0 });
    assert.equal(made.text, "hello");
  }
}

export async function check_a_tool_loop() {
  for (const model of models) {
    const made = await generateText({ model, ...loop });
    assert.equal(made.text, "Sunny in Paris.");
    assert.equal(made.steps.length, 2);
  }
}

export async function check_a_streamed_tool_loop() {
  for (const model of models) {
    const made = streamText({ model, ...loop });
    assert.equal(await made.text, "Sunny in Paris.");
    assert.equal(await made.finishReason, "stop");
  }
}

export async function check_a_typed_answer() {
  const schema = z.object({ name: z.string(), age: z.number() });
  for (const model of models) {
    const made = await generateObject({ model, prompt: "a person", schema, maxRetries: 0 });
    assert.deepEqual(made.object, { name: "Ada", age: 36 });
  }
}

export async function check_a_fault_is_told() {
  const errors = [];
  const onError = ({ error }) => errors.push(error.message ?? error);
  const made = streamText({ model: models[0], prompt: "boom", maxRetries: 0, onError });
  await made.consumeStream();
  assert.match(String(errors[0]), /engine/);
}

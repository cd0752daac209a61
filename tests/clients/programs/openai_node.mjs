// The npm package: answers, streams, tools, typed answers, jobs and conversations.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const client = new OpenAI({
  baseURL: `${process.env.SERVER_URL}/v1`,
  apiKey: "dummy",
  maxRetries: 0,
});
const model = "scripted";
const tools = [
  {
    type: "function",
    name: "get_weather",
    description: "Tell the weather",
    strict: true,
    parameters: {
      type: "object",
      properties: { city: { type: "string" } },
      required: ["city"],
      additionalProperties: false,
    },
  },
];
const Person = z.object({ name: z.string(), age: z.number() });

export async function check_a_string_is_answered() {
  const made = await client.responses.create({ model, input: "hello there" });
  assert.equal(made.status, "completed");
  assert.equal(made.output_text, "hello there");
  const again = await client.responses.retrieve(made.id);
  assert.deepEqual(again.output, made.output);
  const items = await client.responses.inputItems.list(made.id);
  assert.equal(items.data.length, 1);
  await client.responses.delete(made.id);
  await assert.rejects(client.responses.retrieve(made.id), OpenAI.NotFoundError);
}

export async function check_a_tool_loop() {
  const input = [{ role: "user", content: "weather in Paris?" }];
  const made = await client.responses.create({ model, input, tools });
  const call = made.output.at(-1);
  assert.equal(call.type, "function_call");
  assert.deepEqual(JSON.parse(call.arguments), { city: "Paris" });
  const output = { type: "function_call_output", call_id: call.call_id, output: "It is sunny" };
  const replayed = await client.responses.create({
    model,
    input: [...input, ...made.output, output],
    tools,
  });
  assert.equal(replayed.output_text, "Sunny in Paris.");
  const chained = await client.responses.create({
    model,
    input: [output],
    tools,
    previous_response_id: made.id,
  });
  assert.equal(chained.output_text, "Sunny in Paris.");
}

export async function check_raw_events() {
  const stream = await client.responses.create({ model, input: "think", stream: true });
  const kinds = [];
  for await (const event of stream) {
    assert.equal(event.sequence_number, kinds.length);
    kinds.push(event.type);
  }
  assert.equal(kinds[0], "response.created");
  assert.equal(kinds.at(-1), "response.completed");
}

export async function check_the_stream_helper() {
  const deltas = [];
  const stream = client.responses
    .stream({ model, input: "hello there friend" })
    .on("response.output_text.delta", (event) => deltas.push(event.delta));
  const final = await stream.finalResponse();
  assert.equal(deltas.join(""), "hello there friend");
  assert.equal(final.output_text, "hello there friend");
  const called = await client.responses.stream({ model, input: "weather", tools }).finalResponse();
  assert.deepEqual(
    called.output.map((item) => item.type),
    ["reasoning", "message", "function_call"],
  );
}

export async function check_a_stream_is_resumed() {
  const stream = await client.responses.create({ model, input: "hello there", stream: true });
  const events = [];
  for await (const event of stream) events.push(event);
  const id = events[0].response.id;
  const later = await client.responses.retrieve(id, { stream: true, starting_after: 2 });
  const resumed = [];
  for await (const event of later) resumed.push(event);
  assert.deepEqual(resumed, events.slice(3));
  const helper = client.responses.stream({ response_id: id, starting_after: 2 });
  assert.equal((await helper.finalResponse()).output_text, "hello there");
}

export async function check_a_typed_answer() {
  const made = await client.responses.parse({
    model,
    input: "a person",
    text: { format: zodTextFormat(Person, "person") },
  });
  assert.deepEqual(made.output_parsed, { name: "Ada", age: 36 });
}

export async function check_a_fault_is_raised() {
  const failed = async () => {
    const stream = await client.responses.create({ model, input: "boom", stream: true });
    for await (const event of stream) assert.notEqual(event.type, "response.completed");
  };
  await assert.rejects(failed, OpenAI.APIError);
  await assert.rejects(
    client.responses.create({ model, input: "x", tools: [{ type: "web_search" }] }),
    (error) => error instanceof OpenAI.BadRequestError && error.param === "tools.0.type",
  );
}

export async function check_a_job() {
  const ended = async (response) => {
    while (["queued", "in_progress"].includes(response.status))
      response = await client.responses.retrieve(response.id);
    return response;
  };
  const made = await client.responses.create({ model, input: "think", background: true });
  assert.equal((await ended(made)).output_text, "done");
  const slow = await client.responses.create({ model, input: "slow", background: true });
  assert.equal((await ended(await client.responses.cancel(slow.id))).status, "cancelled");
}

export async function check_tokens_are_counted() {
  const counted = await client.responses.inputTokens.count({ model, input: "a b c" });
  const made = await client.responses.create({ model, input: "a b c" });
  assert.equal(counted.input_tokens, made.usage.input_tokens);
}

export async function check_conversations() {
  const items = [{ type: "message", role: "user", content: "begin" }];
  const made = await client.conversations.create({ items, metadata: { a: "b" } });
  await client.responses.create({ model, input: "turn one", conversation: made.id });
  await client.responses.stream({ model, input: "turn two", conversation: made.id }).done();
  const roles = [];
  for await (const item of client.conversations.items.list(made.id, { limit: 2, order: "asc" }))
    roles.push(item.role);
  assert.deepEqual(roles, ["user", "user", "assistant", "user", "assistant"]);
  const added = await client.conversations.items.create(made.id, { items });
  const [one] = added.data;
  const within = { conversation_id: made.id };
  assert.equal((await client.conversations.items.retrieve(one.id, within)).id, one.id);
  assert.equal((await client.conversations.items.delete(one.id, within)).id, made.id);
  const changed = await client.conversations.update(made.id, { metadata: { c: "d" } });
  assert.deepEqual(changed.metadata, { c: "d" });
  assert.equal((await client.conversations.delete(made.id)).deleted, true);
  await assert.rejects(client.conversations.retrieve(made.id), OpenAI.NotFoundError);
}

export async function check_the_chat_side() {
  const made = await client.chat.completions.create({
    model,
    messages: [{ role: "user", content: "hello there" }],
  });
  assert.equal(made.choices[0].message.content, "hello there");
  const runner = client.chat.completions.stream({
    model,
    messages: [{ role: "user", content: "hello there" }],
  });
  assert.equal(await runner.finalContent(), "hello there");
}

#!/usr/bin/env python3
"""Clients that nobody here wrote against `baton serve`: openai, langchain-openai, litellm, anthropic, ollama.

Their types hold each event of a stream to what it must have, which they do not do themselves. What each of them says at
temperature 0 is what `baton run` says. Skipped (77) without them: scripts/fetch_clients.sh.

usage: clients_test.py PROGRAM   (then unittest's own options)
"""
import json
import logging
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENTS = ROOT / "build" / "clients"
PYTHON = CLIENTS / "bin" / "python"
if not PYTHON.is_file():
    print("skipped: build/clients is not there; run scripts/fetch_clients.sh")
    sys.exit(77)
if pathlib.Path(sys.prefix).resolve() != CLIENTS.resolve():
    os.execv(PYTHON, [str(PYTHON), "-B", "-W", "ignore", *sys.argv])  # the clients warn of one another

PROGRAM = sys.argv.pop(1)
SMALL = ROOT / "tests" / "data" / "golden" / "dictionary-3m"
ENCODER = ROOT / "tests" / "data" / "golden" / "tiny-bert"
os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", LITELLM_LOG="ERROR", NO_PROXY="*", LANGSMITH_TRACING="false",
                  DO_NOT_TRACK="1", LITELLM_TELEMETRY="False")
for name in [name for name in os.environ if name.lower() in ("http_proxy", "https_proxy", "all_proxy")]:
    del os.environ[name]

try:
    import anthropic
    import langchain_openai
    import litellm
    import ollama
    import openai
    import openai.types.chat
    import openai.types.responses
    import pydantic
except Exception as error:  # an import can fail in many ways: nothing here needs more than the reason
    print(f"skipped: the clients cannot be imported ({error}); run scripts/fetch_clients.sh")
    sys.exit(77)
logging.disable(logging.WARNING)
litellm.telemetry = False
litellm.suppress_debug_info = True

QUESTION = "What is a fern?"
MESSAGES = [{"role": "user", "content": QUESTION}]
SCHEMA = {"type": "object", "properties": {"word": {"type": "string", "maxLength": 8}, "good": {"type": "boolean"}},
          "required": ["word", "good"], "additionalProperties": False}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 8}}, "required": ["city"],
              "additionalProperties": False}
TOOL = {"name": "weather", "description": "The weather of a city", "parameters": PARAMETERS}
# Tools need a template that knows them; this one writes them as Qwen's do, and thinks when it is asked to.
TOOL_TEMPLATE = """\
{%- if tools %}{{- '<|im_start|>system\\n<tools>' }}{%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}
{{- '\\n</tools>\\nCall one as <tool_call>\\n{"name": NAME, "arguments": OBJECT}\\n</tool_call><|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
{%- else %}{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}
{{- '}\\n</tool_call>' }}{%- endfor %}{{- '<|im_end|>\\n' }}{%- endif %}
{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking %}{{- '<think>\\n' }}{%- endif %}{%- endif %}"""


class Server:
    def __init__(self, model, *arguments):
        self.process = subprocess.Popen([PROGRAM, "serve", "-m", str(model), "--port", "0", "--temp", "0", *arguments],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.said = []
        for line in self.process.stderr:
            self.said.append(line)
            found = re.search(r"listening on (http://\S+)", line)
            if found:
                self.url = found[1]
                return
        raise RuntimeError("the server did not begin: " + "".join(self.said))

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        _, rest = self.process.communicate(timeout=60)
        return self.process.returncode, "".join(self.said) + rest


def setUpModule():
    global SERVER, TOOLS, FOLDER, EXPECTED, VECTOR
    FOLDER = tempfile.TemporaryDirectory()
    model, encoder = (pathlib.Path(FOLDER.name) / name for name in ("tools-3m", "tiny-bert"))
    for folder, files in ((model, SMALL), (encoder, ENCODER)):
        folder.mkdir()
        for file in files.iterdir():
            if file.name != "tokenizer_config.json":
                (folder / file.name).symlink_to(file)
    letters = [chr(letter) for letter in range(ord("a"), ord("z") + 1)]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + letter for letter in letters)]
    (encoder / "vocab.txt").write_text("\n".join(words) + "\n")
    config = json.loads((SMALL / "tokenizer_config.json").read_text())
    config["chat_template"] = TOOL_TEMPLATE
    (model / "tokenizer_config.json").write_text(json.dumps(config))
    done = subprocess.run([PROGRAM, "run", "-m", str(SMALL), "--temp", "0", "-n", "32", "-q", QUESTION],
                          capture_output=True, text=True, timeout=120, check=True)
    EXPECTED = done.stdout.strip()
    done = subprocess.run([PROGRAM, "embed", "-m", str(encoder), "a fern"], capture_output=True, text=True, timeout=120,
                          check=True)
    VECTOR = json.loads(done.stdout)
    SERVER = Server(SMALL, "--embed", str(encoder))
    TOOLS = Server(model)


def tearDownModule():
    for server in (SERVER, TOOLS):
        code, said = server.end()
        assert code == 0, said
    FOLDER.cleanup()


class Base(unittest.TestCase):
    maxDiff = None

    def client(self, server=None):
        return openai.OpenAI(base_url=(server or SERVER).url + "/v1", api_key="none", max_retries=0, timeout=120)

    def check_types(self, kind, values):
        adapter = pydantic.TypeAdapter(kind)
        for value in values:
            adapter.validate_python(value.to_dict())

    def check_arguments(self, text):
        arguments = json.loads(text) if isinstance(text, str) else text
        self.assertEqual(list(arguments), ["city"])
        self.assertIsInstance(arguments["city"], str)

    def check_vector(self, vector):
        self.assertEqual(len(vector), len(VECTOR))
        for one, other in zip(vector, VECTOR):
            self.assertAlmostEqual(one, other, places=5)

    def check_schema(self, text):
        answer = json.loads(text)
        self.assertEqual(set(answer), {"word", "good"})
        self.assertIsInstance(answer["good"], bool)


class OpenAI(Base):
    def test_chat(self):
        answer = self.client().chat.completions.create(model="", messages=MESSAGES, max_tokens=32)
        self.assertEqual(answer.choices[0].message.content.strip(), EXPECTED)
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertGreater(answer.usage.prompt_tokens, 0)
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)

    def test_stream(self):
        stream = self.client().chat.completions.create(model="", messages=MESSAGES, max_tokens=32, stream=True,
                                                       stream_options={"include_usage": True})
        chunks = list(stream)
        self.check_types(openai.types.chat.ChatCompletionChunk, chunks)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        self.assertEqual(text.strip(), EXPECTED)
        self.assertGreater(chunks[-1].usage.completion_tokens, 0)

    def test_errors(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client().chat.completions.create(model="", messages=MESSAGES, temperature=9)
        self.assertEqual(caught.exception.param, "temperature")
        with self.assertRaises(openai.NotFoundError):
            self.client().chat.completions.create(model="no-such-model", messages=MESSAGES)

    def test_models(self):
        self.assertEqual([model.id for model in self.client().models.list().data], ["dictionary-3m", "tiny-bert"])

    def test_logprobs(self):
        answer = self.client().chat.completions.create(model="", messages=MESSAGES, max_tokens=4, logprobs=True,
                                                       top_logprobs=2)
        tokens = answer.choices[0].logprobs.content
        self.assertEqual(len(tokens), 4)
        for token in tokens:
            self.assertLessEqual(token.logprob, 0)
            self.assertEqual(len(token.top_logprobs), 2)
            self.assertAlmostEqual(token.top_logprobs[0].logprob, token.logprob, places=5)  # greedy
        done = self.client().completions.create(model="", prompt="A fern", max_tokens=3, logprobs=2)
        self.assertEqual(len(done.choices[0].logprobs.token_logprobs), 3)

    def test_tools(self):
        client = self.client(TOOLS)
        tools = [{"type": "function", "function": TOOL}]
        asked = dict(model="", messages=MESSAGES, tools=tools, tool_choice="required", max_tokens=64,
                     parallel_tool_calls=False)
        answer = client.chat.completions.create(**asked)
        self.assertEqual(answer.choices[0].finish_reason, "tool_calls")
        call = answer.choices[0].message.tool_calls[0]
        self.assertEqual(call.function.name, "weather")
        self.check_arguments(call.function.arguments)
        with client.chat.completions.stream(**asked) as stream:
            for _ in stream:
                pass
            last = stream.get_final_completion().choices[0].message
        self.assertEqual(last.tool_calls[0].function.arguments, call.function.arguments)
        history = [*MESSAGES, answer.choices[0].message.model_dump(exclude_none=True),
                   {"role": "tool", "tool_call_id": call.id, "content": "sun"}]
        again = client.chat.completions.create(model="", messages=history, tools=tools, max_tokens=4)
        self.assertEqual(again.choices[0].message.role, "assistant")

    def test_json_schema(self):
        answer = self.client().chat.completions.create(
            model="", messages=MESSAGES, max_tokens=64,
            response_format={"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": SCHEMA}})
        self.check_schema(answer.choices[0].message.content)

    def test_embeddings(self):
        client = self.client()
        floats = client.embeddings.create(model="tiny-bert", input=["a fern", "b"], encoding_format="float")
        coded = client.embeddings.create(model="tiny-bert", input=["a fern", "b"])  # the client asks for base64
        self.assertEqual([one.index for one in floats.data], [0, 1])
        self.assertGreater(floats.usage.prompt_tokens, 0)
        for answer in (floats, coded):
            self.check_vector(answer.data[0].embedding)
        short = client.embeddings.create(model="tiny-bert", input=[[2, 5, 3]], dimensions=8)
        self.assertEqual(len(short.data[0].embedding), 8)


class Responses(Base):
    def test_text_and_stream(self):
        client = self.client()
        answer = client.responses.create(model="dictionary-3m", input=QUESTION, max_output_tokens=32,
                                         metadata={"a": "b"})
        self.assertEqual(answer.output_text.strip(), EXPECTED)
        self.assertEqual(answer.status, "completed")
        self.assertEqual(answer.metadata, {"a": "b"})
        self.check_types(openai.types.responses.Response, [answer])
        self.assertGreater(answer.usage.output_tokens, 0)
        with client.responses.stream(model="dictionary-3m", input=MESSAGES, max_output_tokens=32) as stream:
            events = list(stream)
            last = stream.get_final_response()
        self.assertEqual(last.output_text, answer.output_text)
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
        raw = list(client.responses.create(model="dictionary-3m", input=MESSAGES, max_output_tokens=32, stream=True))
        self.assertEqual([event.type for event in raw], [event.type for event in events])
        self.check_types(openai.types.responses.ResponseStreamEvent, raw)
        self.assertEqual("".join(e.delta for e in raw if e.type == "response.output_text.delta"), answer.output_text)

    def test_a_conversation_goes_on_by_items(self):
        client = self.client()
        first = client.responses.create(model="dictionary-3m", input=MESSAGES, max_output_tokens=32)
        items = [*MESSAGES, *first.output, {"role": "user", "content": "And a tree?"}]
        again = client.responses.create(model="dictionary-3m", input=items, max_output_tokens=4)
        self.assertGreater(again.usage.input_tokens, first.usage.input_tokens)
        self.assertEqual(again.status, "incomplete")
        self.assertEqual(again.incomplete_details.reason, "max_output_tokens")

    def test_errors(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client().responses.create(model="dictionary-3m", input="a", previous_response_id="resp_1")
        self.assertEqual(caught.exception.param, "previous_response_id")

    def test_tools(self):
        client = self.client(TOOLS)
        tools = [{"type": "function", "strict": True, **TOOL}]
        asked = dict(model="", input=MESSAGES, tools=tools, tool_choice="required", max_output_tokens=64,
                     parallel_tool_calls=False)
        answer = client.responses.create(**asked)
        call = [item for item in answer.output if item.type == "function_call"][0]
        self.assertEqual(call.name, "weather")
        self.check_arguments(call.arguments)
        with client.responses.stream(**asked) as stream:
            for _ in stream:
                pass
            last = [item for item in stream.get_final_response().output if item.type == "function_call"][0]
        self.assertEqual(last.arguments, call.arguments)
        self.check_types(openai.types.responses.ResponseStreamEvent, client.responses.create(**asked, stream=True))
        items = [*MESSAGES, *answer.output, {"type": "function_call_output", "call_id": call.call_id, "output": "sun"}]
        again = client.responses.create(model="", input=items, tools=tools, max_output_tokens=4)
        self.assertGreater(again.usage.output_tokens, 0)

    def test_json_schema(self):
        answer = self.client().responses.create(
            model="", input=MESSAGES, max_output_tokens=64,
            text={"format": {"type": "json_schema", "name": "n", "strict": True, "schema": SCHEMA}})
        self.check_schema(answer.output_text)


class Anthropic(Base):
    def anthropic(self, server=None):
        return anthropic.Anthropic(base_url=(server or SERVER).url, api_key="none", max_retries=0, timeout=120)

    def test_text_and_stream(self):
        client = self.anthropic()
        answer = client.messages.create(model="dictionary-3m", max_tokens=32, messages=MESSAGES)
        self.assertEqual(answer.content[0].text.strip(), EXPECTED)
        self.assertEqual(answer.stop_reason, "end_turn")
        with client.messages.stream(model="dictionary-3m", max_tokens=32, messages=MESSAGES) as stream:
            text = "".join(stream.text_stream)
            last = stream.get_final_message()
        self.assertEqual(text, answer.content[0].text)
        self.assertEqual(last.content[0].text, text)
        self.assertEqual(last.usage.output_tokens, answer.usage.output_tokens)
        self.check_types(anthropic.types.Message, [answer])
        self.check_types(anthropic.types.RawMessageStreamEvent, client.messages.create(
            model="dictionary-3m", max_tokens=32, messages=MESSAGES, stream=True))
        stopped = client.messages.create(model="dictionary-3m", max_tokens=32, messages=MESSAGES,
                                         stop_sequences=[EXPECTED[3:6]])
        self.assertEqual(stopped.stop_reason, "stop_sequence")
        self.assertEqual(stopped.stop_sequence, EXPECTED[3:6])

    def test_count_and_errors(self):
        client = self.anthropic()
        counted = client.messages.count_tokens(model="dictionary-3m", messages=MESSAGES).input_tokens
        answer = client.messages.create(model="dictionary-3m", max_tokens=1, messages=MESSAGES)
        usage = answer.usage
        self.assertEqual(counted, usage.input_tokens + usage.cache_read_input_tokens)
        with self.assertRaises(anthropic.BadRequestError) as caught:
            client.messages.create(model="dictionary-3m", max_tokens=1, system=5, messages=MESSAGES)
        self.assertEqual(caught.exception.body["error"]["type"], "invalid_request_error")
        self.assertIn("'system'", caught.exception.body["error"]["message"])
        with self.assertRaises(anthropic.NotFoundError) as caught:
            client.messages.create(model="no-such-model", max_tokens=1, messages=MESSAGES)
        self.assertEqual(caught.exception.body["error"]["type"], "not_found_error")

    def test_tools(self):
        client = self.anthropic(TOOLS)
        tools = [{"name": "weather", "description": "d", "input_schema": PARAMETERS}]
        asked = dict(model="tools-3m", max_tokens=64, messages=MESSAGES, tools=tools,
                     tool_choice={"type": "any", "disable_parallel_tool_use": True})
        answer = client.messages.create(**asked)
        self.assertEqual(answer.stop_reason, "tool_use")
        call = [block for block in answer.content if block.type == "tool_use"][0]
        self.check_arguments(call.input)
        with client.messages.stream(**asked) as stream:
            last = [block for block in stream.get_final_message().content if block.type == "tool_use"][0]
        self.assertEqual(last.input, call.input)
        self.check_types(anthropic.types.RawMessageStreamEvent, client.messages.create(**asked, stream=True))
        history = [*MESSAGES, {"role": "assistant", "content": [block.to_dict() for block in answer.content]},
                   {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "sun"}]}]
        again = client.messages.create(model="tools-3m", max_tokens=4, messages=history, tools=tools)
        self.assertGreater(again.usage.output_tokens, 0)


class Ollama(Base):
    OPTIONS = {"num_predict": 32, "temperature": 0}

    def ollama(self, server=None):
        return ollama.Client(host=(server or SERVER).url, timeout=120)

    def test_chat_and_generate(self):
        client = self.ollama()
        answer = client.chat(model="dictionary-3m", messages=MESSAGES, options=self.OPTIONS)
        self.assertEqual(answer.message.content.strip(), EXPECTED)
        self.assertEqual(answer.done_reason, "stop")
        self.assertGreater(answer.eval_count, 0)
        self.assertGreater(answer.total_duration, 0)
        pieces = list(client.chat(model="dictionary-3m:latest", messages=MESSAGES, options=self.OPTIONS, stream=True))
        self.assertEqual("".join(piece.message.content for piece in pieces).strip(), EXPECTED)
        self.assertTrue(pieces[-1].done)
        said = client.generate(model="dictionary-3m", prompt=QUESTION, options=self.OPTIONS)
        self.assertEqual(said.response.strip(), EXPECTED)
        pieces = list(client.generate(model="dictionary-3m", prompt=QUESTION, options=self.OPTIONS, stream=True))
        self.assertEqual("".join(piece.response for piece in pieces).strip(), EXPECTED)
        self.assertEqual(client.generate(model="dictionary-3m").done_reason, "load")

    def test_models(self):
        client = self.ollama()
        self.assertEqual([model.model for model in client.list().models], ["dictionary-3m", "tiny-bert"])
        self.assertIn("dictionary-3m", [model.model for model in client.ps().models])
        shown = client.show("dictionary-3m")
        self.assertIn("im_start", shown.template)
        self.assertIn("completion", shown.capabilities)
        self.assertEqual(client.pull("dictionary-3m").status, "success")
        with self.assertRaises(ollama.ResponseError) as caught:
            client.pull("no-such-model")
        self.assertEqual(caught.exception.status_code, 404)
        with self.assertRaises(ollama.ResponseError) as caught:
            client.pull("../../etc/passwd")
        self.assertEqual(caught.exception.status_code, 400)

    def test_errors(self):
        with self.assertRaises(ollama.ResponseError) as caught:
            self.ollama().chat(model="dictionary-3m", messages=MESSAGES, options={"temperature": 9})
        self.assertIn("options.temperature", caught.exception.error)

    def test_tools(self):
        client = self.ollama(TOOLS)
        tools = [{"type": "function", "function": TOOL}]
        history = [*MESSAGES, {"role": "assistant", "content": "", "tool_calls": [
            {"function": {"name": "weather", "arguments": {"city": "Oslo"}}}]},
            {"role": "tool", "tool_name": "weather", "content": "sun"}]
        answer = client.chat(model="tools-3m", messages=history, tools=tools, options=self.OPTIONS)
        self.assertEqual(answer.message.role, "assistant")

    def test_format(self):
        answer = self.ollama().chat(model="dictionary-3m", messages=MESSAGES, format=SCHEMA,
                                    options={"num_predict": 64, "temperature": 0})
        self.check_schema(answer.message.content)

    def test_embed(self):
        made = self.ollama().embed(model="tiny-bert", input=["a fern", "b"]).embeddings
        self.assertEqual(len(made), 2)
        self.check_vector(made[0])


class Thinking(Base):
    """The model never ends its thoughts: all it says is reasoning."""
    def test_responses(self):
        asked = dict(model="", input=QUESTION, max_output_tokens=8, reasoning={"effort": "high"})
        answer = self.client(TOOLS).responses.create(**asked)
        self.assertEqual([item.type for item in answer.output], ["reasoning"])
        text = answer.output[0].content[0].text
        events = list(self.client(TOOLS).responses.create(**asked, stream=True))
        self.check_types(openai.types.responses.ResponseStreamEvent, events)
        self.assertEqual("".join(e.delta for e in events if e.type == "response.reasoning_text.delta"), text)
        none = self.client(TOOLS).responses.create(**{**asked, "reasoning": {"effort": "none"}})
        self.assertEqual([item.type for item in none.output], ["message"])

    def test_messages(self):
        client = anthropic.Anthropic(base_url=TOOLS.url, api_key="none", max_retries=0, timeout=120)
        asked = dict(model="tools-3m", max_tokens=8, messages=MESSAGES,
                     thinking={"type": "enabled", "budget_tokens": 1024})
        answer = client.messages.create(**asked)
        self.assertEqual([block.type for block in answer.content], ["thinking"])
        with client.messages.stream(**asked) as stream:
            last = stream.get_final_message()
        self.assertEqual(last.content[0].thinking, answer.content[0].thinking)
        self.check_types(anthropic.types.RawMessageStreamEvent, client.messages.create(**asked, stream=True))

    def test_ollama(self):
        client = ollama.Client(host=TOOLS.url, timeout=120)
        answer = client.chat(model="tools-3m", messages=MESSAGES, think=True, options={"num_predict": 8})
        self.assertFalse(answer.message.content)
        pieces = list(client.generate(model="tools-3m", prompt=QUESTION, think=True, options={"num_predict": 8},
                                      stream=True))
        self.assertEqual("".join(piece.thinking or "" for piece in pieces), answer.message.thinking)


class LangChain(Base):
    def chat(self, server=None, **options):
        return langchain_openai.ChatOpenAI(base_url=(server or SERVER).url + "/v1", api_key="none", max_retries=0,
                                           model="dictionary-3m" if server is None else "tools-3m", temperature=0,
                                           max_tokens=options.pop("max_tokens", 32), **options)

    def test_chat_and_stream(self):
        self.assertEqual(self.chat().invoke(QUESTION).content.strip(), EXPECTED)
        self.assertEqual("".join(piece.content for piece in self.chat().stream(QUESTION)).strip(), EXPECTED)

    def test_responses(self):
        answer = self.chat(use_responses_api=True).invoke(QUESTION)
        self.assertEqual(answer.text.strip(), EXPECTED)
        pieces = list(self.chat(use_responses_api=True).stream(QUESTION))
        self.assertEqual("".join(piece.text for piece in pieces).strip(), EXPECTED)

    def test_tools(self):
        bound = self.chat(TOOLS, max_tokens=64).bind_tools([{"type": "function", "function": TOOL}], tool_choice="any")
        calls = bound.invoke(QUESTION).tool_calls
        self.assertEqual(calls[0]["name"], "weather")
        self.check_arguments(calls[0]["args"])

    def test_embeddings(self):
        made = langchain_openai.OpenAIEmbeddings(base_url=SERVER.url + "/v1", api_key="none", model="tiny-bert",
                                                 check_embedding_ctx_length=False).embed_documents(["a fern", "b"])
        self.check_vector(made[0])

    def test_structured_output(self):
        schema = {"title": "answer", "description": "d", **SCHEMA}
        made = self.chat(max_tokens=64).with_structured_output(schema, method="json_schema").invoke(QUESTION)
        self.check_schema(json.dumps(made))


class LiteLlm(Base):
    def ask(self, model, base, **options):
        return litellm.completion(model=model, api_base=base, api_key="none", messages=MESSAGES, max_tokens=32,
                                  temperature=0, num_retries=0, timeout=120, **options)

    def test_openai(self):
        answer = self.ask("openai/dictionary-3m", SERVER.url + "/v1")
        self.assertEqual(answer.choices[0].message.content.strip(), EXPECTED)
        pieces = self.ask("openai/dictionary-3m", SERVER.url + "/v1", stream=True)
        self.assertEqual("".join(p.choices[0].delta.content or "" for p in pieces).strip(), EXPECTED)

    def test_anthropic(self):
        answer = self.ask("anthropic/dictionary-3m", SERVER.url)
        self.assertEqual(answer.choices[0].message.content.strip(), EXPECTED)
        pieces = self.ask("anthropic/dictionary-3m", SERVER.url, stream=True)
        self.assertEqual("".join(p.choices[0].delta.content or "" for p in pieces).strip(), EXPECTED)

    def test_embeddings(self):
        made = litellm.embedding(model="openai/tiny-bert", input=["a fern"], api_base=SERVER.url + "/v1",
                                 api_key="none", encoding_format="float")
        self.check_vector(made.data[0]["embedding"])

    def test_ollama(self):
        answer = self.ask("ollama_chat/dictionary-3m", SERVER.url)
        self.assertEqual(answer.choices[0].message.content.strip(), EXPECTED)
        pieces = self.ask("ollama_chat/dictionary-3m", SERVER.url, stream=True)
        self.assertEqual("".join(p.choices[0].delta.content or "" for p in pieces).strip(), EXPECTED)


if __name__ == "__main__":
    unittest.main()

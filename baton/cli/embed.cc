// `baton embed`: vectors of texts, or how well documents answer a query.
#include "baton/api/embed.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "baton/api/units.h"
#include "baton/base/clock.h"
#include "baton/base/line_reader.h"
#include "baton/base/terminal.h"
#include "baton/cli/command.h"
#include "baton/cli/interrupt.h"
#include "baton/cli/paths.h"
#include "baton/cli/progress.h"
#include "baton/cli/shared_flags.h"
#include "baton/hub/resolve.h"

namespace baton::cli {
namespace {

constexpr size_t kLineBytesMax = size_t{1} << 20;
constexpr size_t kInputsAtOnce = 512;  // enough that those of about one length meet
constexpr size_t kTableMax = 20;       // texts whose cosines fit into lines
constexpr size_t kLabelMax = 30;       // of a text, characters

struct EmbedFlags {
  std::vector<std::string> texts, ids, lora;
  std::string model, unit, prompt, query, file, pooling;
  uint32_t dimensions = 0, threads = 0;
  bool truncate = false, no_prompt = false, raw = false, json = false, cosines = false, ranks = false;
};

Status read_lines(const std::string& file, std::vector<std::string>* texts) {
  BATON_TRY(LineReader reader, LineReader::open(file, kLineBytesMax, LongLines::kReported));
  const InterruptScope interrupt;
  Line line;
  for (;;) {
    if (interrupt.interrupted()) return fail(Code::kCancelled, "interrupted");
    BATON_TRY(const LineReader::Outcome outcome, reader.next(line, 100));
    if (outcome == LineReader::Outcome::kEnd) return {};
    if (outcome == LineReader::Outcome::kNone) continue;
    if (line.too_long) {
      return fail(Code::kInvalidInput,
                  fmt::format("{}: line {} is longer than {} bytes", file, line.number, kLineBytesMax));
    }
    if (line.text.find('\0') != std::string::npos) {
      return fail(Code::kInvalidInput,
                  fmt::format("{}: line {} has a zero byte in it: texts are UTF-8", file, line.number));
    }
    if (!line.text.empty() && line.text.back() == '\r') line.text.pop_back();
    texts->push_back(line.text);
  }
}

Result<EmbedderOptions> options_of(const EmbedFlags& flags) {
  EmbedderOptions options;
  options.model = flags.model;
  options.unit = flags.unit;
  options.threads = flags.threads;
  BATON_TRY(options.adapters, settle_lora(flags.lora));
  options.cut_word = "--truncate";
  if (flags.raw) options.normalized = false;
  for (const Pooling pooling : {Pooling::kMean, Pooling::kFirst, Pooling::kLast}) {
    if (flags.pooling == to_string(pooling)) options.pooling = pooling;
  }
  return options;
}

OrderedJson facts_of(const Embedder& embedder, double load_ms) {
  const Placement placement = embedder.placement();
  OrderedJson json;
  json["model"] = embedder.model().spec.name;
  json["unit"] = placement.ran;
  json["placed"] = embedder.placed();
  json["evidence"] = placement.text();
  json["emulated"] = placement.emulated;
  json["pooling"] = to_string(embedder.spec().pooling);
  json["normalized"] = embedder.spec().normalized && embedder.dimensions() == embedder.width();
  json["tokens_max"] = embedder.spec().tokens_max;
  json["load_ms"] = load_ms;
  return json;
}

EmbedRequest request_of(const EmbedFlags& flags) {
  EmbedRequest request;
  request.dimensions = flags.dimensions;
  request.truncates = flags.truncate;
  request.prompt = flags.prompt;
  request.no_prompt = flags.no_prompt;
  return request;
}

// Documents by how well they answer.
Status rerank(const EmbedFlags& flags, Embedder& embedder, OrderedJson json, const std::function<bool()>& cancelled) {
  const SteadyClock clock;
  const int64_t start = clock.now_ns();
  uint64_t tokens = 0;
  BATON_TRY(const std::vector<float> scores,
            embedder.rerank(flags.query, flags.texts, request_of(flags), &tokens, cancelled));
  json["ms"] = ms_between(start, clock.now_ns());
  json["tokens"] = tokens;
  std::vector<size_t> order(scores.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  json["results"] = OrderedJson::array();
  std::string text;
  for (const size_t i : order) {
    json["results"].push_back({{"index", i}, {"relevance_score", scores[i]}, {"document", flags.texts[i]}});
    text += fmt::format("{:.4f}  {}\n", scores[i], flags.texts[i]);
  }
  if (flags.json) {
    print_json(json);
  } else {
    print(text);
  }
  return {};
}

std::vector<std::vector<float>> cosines_of(const std::vector<std::vector<float>>& vectors) {
  std::vector<std::vector<float>> rows;
  for (const std::vector<float>& a : vectors) {
    rows.emplace_back();
    for (const std::vector<float>& b : vectors) rows.back().push_back(cosine(a, b));
  }
  return rows;
}

// A line for each text: its number, its cosine with each, and how it begins.
void print_table(const EmbedFlags& flags, const std::vector<std::vector<float>>& cosines) {
  std::string text = "    ";
  for (size_t i = 0; i < cosines.size(); ++i) text += fmt::format("{:>8}", i + 1);
  for (size_t i = 0; i < cosines.size(); ++i) {
    text += fmt::format("\n{:>4}", i + 1);
    for (const float value : cosines[i]) text += fmt::format("{:>8.4f}", value);
    const std::string& label = i < flags.texts.size() ? flags.texts[i] : flags.ids[i - flags.texts.size()];
    std::string shown = terminal_safe(label, kLabelMax);
    std::replace_if(
        shown.begin(), shown.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
    text += "  " + shown;
  }
  print(text + "\n");
}

Status embed_all(const EmbedFlags& flags, Embedder& embedder, OrderedJson json,
                 const std::function<bool()>& cancelled) {
  std::vector<EmbedInput> inputs(flags.texts.begin(), flags.texts.end());
  for (const std::string& text : flags.ids) {
    BATON_TRY(std::vector<int32_t> ids, parse_ids(text));
    inputs.emplace_back(std::move(ids));
  }
  EmbedRequest request = request_of(flags);
  const SteadyClock clock;
  const int64_t start = clock.now_ns();
  const bool as_they_come = !flags.json && !flags.cosines;
  Progress progress("texts");
  Embeddings made;
  for (size_t done = 0; done < inputs.size();) {
    const size_t end = std::min(done + kInputsAtOnce, inputs.size());
    request.first = done;
    request.inputs.assign(inputs.begin() + static_cast<ptrdiff_t>(done), inputs.begin() + static_cast<ptrdiff_t>(end));
    BATON_TRY(Embeddings some, embedder.embed(request, cancelled));
    if (as_they_come) {
      for (const std::vector<float>& vector : some.vectors) print_json(vector);
    } else {
      std::move(some.vectors.begin(), some.vectors.end(), std::back_inserter(made.vectors));
    }
    made.tokens.insert(made.tokens.end(), some.tokens.begin(), some.tokens.end());
    made.tokens_all += some.tokens_all;
    done = end;
    if (!as_they_come) progress.show(done, inputs.size());
  }
  progress.clear();
  if (as_they_come) return {};
  json["ms"] = ms_between(start, clock.now_ns());
  json["tokens"] = made.tokens_all;
  json["dimensions"] = made.vectors.empty() ? 0 : made.vectors.front().size();
  if (flags.cosines) json["cosines"] = cosines_of(made.vectors);
  if (flags.cosines && !flags.json) {
    print_table(flags, cosines_of(made.vectors));
    return {};
  }
  json["embeddings"] = OrderedJson::array();
  for (size_t i = 0; i < made.vectors.size(); ++i)
    json["embeddings"].push_back({{"index", i}, {"tokens", made.tokens[i]}, {"embedding", made.vectors[i]}});
  print_json(json);
  return {};
}

int embed(EmbedFlags& flags) {
  if (flags.texts == std::vector<std::string>{"-"} && flags.file.empty()) {  // as `run` takes it
    flags.texts.clear();
    flags.file = "-";
  }
  const bool given = !flags.texts.empty() || !flags.ids.empty() || !flags.file.empty();
  if (flags.ranks && !flags.ids.empty())
    return report_usage({Code::kInvalidInput, "--query ranks texts: give documents, and no --ids"});
  if (flags.ranks && flags.raw)
    return report_usage({Code::kInvalidInput, "--query ranks by cosines, which no length changes: leave out --raw"});
  if (!flags.prompt.empty() && flags.no_prompt)
    return report_usage({Code::kInvalidInput, "--prompt and --no-prompt: give one of them"});
  if (!given || !flags.file.empty()) {
    const Status read = read_lines(given ? flags.file : "-", &flags.texts);
    if (!read) return read.error().code == Code::kCancelled ? int{kInterrupted} : report(read.error());
  }
  if (flags.texts.empty() && flags.ids.empty())
    return report_usage({Code::kInvalidInput, "no texts: give them as arguments, or one a line"});
  const size_t texts = flags.texts.size() + flags.ids.size();
  if (flags.cosines && (texts < 2 || texts > kTableMax || flags.ranks)) {
    return report_usage({Code::kInvalidInput, fmt::format("--cosines compares 2 to {} texts with each other, and takes "
                                                          "no --query: there are {}",
                                                          kTableMax, texts)});
  }
  const auto options = options_of(flags);
  if (!options) return report_usage(options.error());
  if (!flags.unit.empty()) {
    if (const auto unit = parse_unit(flags.unit); !unit) return report_unit(unit.error());
  }
  if (const Status there = hub::check_model(options->model.string()); !there) return report(there.error());
  const SteadyClock clock;
  const int64_t start = clock.now_ns();
  const auto embedder = Embedder::open(*options);
  if (!embedder) return report(embedder.error());
  const OrderedJson facts = facts_of(**embedder, ms_between(start, clock.now_ns()));
  if (const Placement placement = (*embedder)->placement(); placement.emulated && !flags.json)
    spdlog::warn("{} is emulated: its times are the emulator's", placement.ran);
  const InterruptScope interrupts;
  const auto interrupted = [&] { return interrupts.interrupted(); };
  const Status done =
      flags.ranks ? rerank(flags, **embedder, facts, interrupted) : embed_all(flags, **embedder, facts, interrupted);
  if (!done && done.error().code == Code::kCancelled) return kInterrupted;
  if (done) return kOk;
  Error why = done.error();
  if (why.code == Code::kUnsupported && !(*embedder)->text().tokenizer) why.message += " (--ids)";
  return report_usage(why);
}

}  // namespace

std::unique_ptr<Command> add_embed(CLI::App& program) {
  CLI::App* app = program.add_subcommand("embed", "vectors of texts, or documents by how well they answer a query");
  auto command = std::make_unique<FlagsCommand<EmbedFlags, embed>>(app);
  EmbedFlags& flags = command->flags;
  app->add_option("TEXT", flags.texts,
                  "texts, each of which becomes a vector; none or -: one a line of standard input");
  takes_path(
      app->add_option(
          "-m,--model", flags.model,
          fmt::format("an encoder (BERT and its kin), or a decoder made for vectors: a folder, a file, {}", kOrName)),
      PathKind::kModel)
      ->required();
  add_lora(*app, flags.lora, " of the model");
  takes_path(app->add_option("-f,--file", flags.file, "a file of texts, one a line (- is standard input)"),
             PathKind::kFile);
  app->add_option("--ids", flags.ids, "tokens instead of a text, as they are: 101,7592,102; may be given again");
  app->add_option("--query", flags.query, "rank the texts by how well they answer this: the cosine of the vectors")
      ->each([&flags](const std::string&) { flags.ranks = true; });
  app->add_option("--prompt", flags.prompt, "the name of a prompt of the model, put in front of each text");
  app->add_flag("--no-prompt", flags.no_prompt, "no prompt, whatever the model's default is");
  app->add_option("--dimensions", flags.dimensions,
                  "so many values of each vector, the first; 0: what the model keeps");
  app->add_flag("--truncate", flags.truncate, "cut texts that are too long; else they are an error");
  app->add_option("--pooling", flags.pooling, "mean, first or last token, instead of what the model's files say")
      ->check(CLI::IsMember({"mean", "first", "last"}));
  app->add_flag("--raw", flags.raw, "vectors as they are, not of length 1");
  app->add_option("--unit", flags.unit, "the unit that computes; none: by the model's size");
  add_threads(*app, flags.threads);
  app->add_flag("--cosines", flags.cosines, "a table of the texts' cosines with each other instead of their vectors");
  app->add_flag("--json", flags.json, "one JSON object instead of a line for each vector");
  return command;
}

}  // namespace baton::cli

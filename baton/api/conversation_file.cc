// A conversation in files: the sealed state, and beside it the messages it belongs to.
#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "baton/api/conversation.h"
#include "baton/base/bytes.h"
#include "baton/base/file.h"
#include "baton/state/checksum.h"
#include "baton/state/seal_file.h"

namespace baton {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr size_t kJsonBytesMax = size_t{64} << 20;

std::string hex_digits(uint64_t value) { return fmt::format("{:016x}", value); }

std::filesystem::path messages_file(const std::filesystem::path& file) { return file.string() + ".json"; }

OrderedJson identity_json(const StateIdentity& identity) {
  return {{"model", hex_digits(identity.model)},
          {"quantization", hex_digits(identity.quantization)},
          {"tokenizer", hex_digits(identity.tokenizer)}};
}

// Of the bytes as they lie in a file without a key. Of a source that begins with the header as it ends, as what is kept
// does.
Result<uint64_t> checksum_of(const SealSource& state) {
  Checksum sum;
  uint64_t summed = 0;
  BATON_OK(state.give([&](uint64_t offset, std::span<const std::byte> bytes) -> Status {
    if (offset < summed) return {};
    sum.update(bytes);
    summed += bytes.size();
    return {};
  }));
  return sum.value();
}

// `what` of the file must be `expected`; both are texts.
Status same(const OrderedJson& file, const char* what, const std::string& expected) {
  const auto found = file.find(what);
  if (found == file.end() || !found->is_string()) {
    return fail(Code::kInvalidInput, fmt::format("field '{}' is missing or not a text", what));
  }
  if (*found == expected) return {};
  return fail(Code::kMismatch, fmt::format("the chat was saved with another {} ({}, here {}): load it with the one it "
                                           "belongs to",
                                           what, found->get<std::string>(), expected));
}

Status check_messages(const OrderedJson& messages) {
  if (!messages.is_array() || messages.size() % 2 != 0)
    return fail(Code::kInvalidInput, "field 'messages' is not a list of questions and answers");
  for (size_t i = 0; i < messages.size(); ++i) {
    const OrderedJson& message = messages[i];
    const char* role = i % 2 == 0 ? "user" : "assistant";
    if (!message.is_object() || message.value("role", OrderedJson()) != role ||
        !message.value("content", OrderedJson()).is_string())
      return fail(Code::kInvalidInput, fmt::format("message {} is not one with role '{}' and a content", i, role));
  }
  return {};
}

std::string text_of(const OrderedJson& json) {
  return json.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

// Of the messages' file without its field 'mac', as text_of writes what was read of it. What is summed in front keeps
// it from being the MAC of a state.
MacSum mac_of(const OrderedJson& json, const StateKey& key) {
  constexpr std::string_view kPurpose = "baton saved chat, messages 1";
  MacSum sum(key);
  sum.update(as_bytes(kPurpose));
  sum.update(as_bytes(text_of(json)));
  return sum;
}

std::string hex_digits(std::span<const std::byte> bytes) {
  std::string digits;
  for (const std::byte b : bytes) digits += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  return digits;
}

// As many as the digits give before the first that is none.
std::vector<std::byte> bytes_of_hex(std::string_view digits) {
  std::vector<std::byte> bytes;
  for (; digits.size() >= 2; digits.remove_prefix(2)) {
    uint8_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + 2, value, 16);
    if (error != std::errc() || end != digits.data() + 2) break;
    bytes.push_back(std::byte{value});
  }
  return bytes;
}

// Takes 'mac' out of the file. With a key there must be one and be right, without one there must be none.
Status take_mac(OrderedJson& json, const StateKey* key) {
  const OrderedJson mac = json.value("mac", OrderedJson());
  json.erase("mac");
  if (key == nullptr) {
    if (mac.is_null()) return {};
    return fail(Code::kMismatch, "saved with a key, and not to be used without that key (--state-key FILE)");
  }
  if (!mac.is_string()) {
    return fail(Code::kMismatch,
                "it carries no MAC, but a key was given: it was not saved with a key; to be used "
                "without a key, nobody vouching for it");
  }
  if (mac_of(json, *key).check(bytes_of_hex(mac.get<std::string>()))) return {};
  return fail(Code::kMismatch, "MAC: it was saved with another key, or changed since: nothing in it is used");
}

// The state that a saved chat says it was saved with.
Result<SealedFile> read_state(const std::filesystem::path& file, const std::string& name, const OrderedJson& state,
                              const StateIdentity& identity, const Model& model, const StateKey* key) {
  SealExpectation expected;
  expected.identity = identity;
  const StateShape shape = state_shape(model.program, DType::kF32);
  expected.shape = &shape;
  expected.position_max = static_cast<uint64_t>(model.spec.context_max);
  expected.vocab = model.spec.vocab;
  BATON_TRY(SealedFile sealed, read_seal_file(file, expected, key));
  BATON_TRY(const uint64_t sum, checksum_of(sealed.source));
  if (state.value("checksum", OrderedJson()) != hex_digits(sum))
    return fail(Code::kMismatch, fmt::format("{} is not the state that {} was saved with", file.string(), name));
  if (state.value("tokens", OrderedJson()) == sealed.view.tokens.size()) return sealed;
  return fail(Code::kInvalidInput,
              fmt::format("{}: field 'state.tokens' is not the {} of the state", name, sealed.view.tokens.size()));
}

}  // namespace

uint64_t Conversation::template_digest() const {
  const std::string& source = runtime_.text().chat_template->source();
  return checksum(std::as_bytes(std::span(source)));
}

Result<std::vector<std::byte>> Conversation::seal(const std::vector<int32_t>& tokens,
                                                  const std::function<bool()>& cancelled) {
  CompletionRequest request{runtime_.make_request(tokens), {}};
  prepare(request.request);
  request.request.verify = VerifyMode::kOff;  // nothing is decoded from it here
  request.request.max_new_tokens = 0;
  request.request.want_sealed_state = true;
  BATON_TRY(Completion done, runtime_.complete(std::move(request), {}, cancelled));
  return std::move(done.sealed_state);
}

Status Conversation::save(const std::filesystem::path& file, const StateKey* key,
                          const std::function<bool()>& cancelled) {
  if (messages_.empty()) return fail(Code::kInvalidInput, "there is nothing to save: no question was answered yet");
  OrderedJson next = messages_;
  next.push_back({{"role", "user"}, {"content", ""}});
  BATON_TRY(const Prompt prompt, prompt_of(next, true));
  OrderedJson json;
  json["baton_chat"] = kVersion;
  json["model_name"] = runtime_.model().spec.name;
  BATON_TRY(const StateIdentity identity, runtime_.identity());
  json.update(identity_json(identity));
  json["template"] = hex_digits(template_digest());
  json["thinking"] = options_.thinking ? OrderedJson(*options_.thinking) : OrderedJson();
  json["system"] = system_;
  json["messages"] = messages_;
  json["state"] = nullptr;
  Status sealed;
  if (prompt.start != nullptr || prompt.said != nullptr) {
    LoadedState held = prompt.start != nullptr ? *prompt.start : LoadedState{prompt.said->tokens, {}};
    if (prompt.start == nullptr) {
      auto block = seal(held.tokens, cancelled);
      if (block && block->empty()) return fail(Code::kCancelled, "interrupted: the conversation was not saved");
      if (!block && block.error().code != Code::kOutOfMemory) return fail(std::move(block).error());
      if (block) {
        held.state = SealSource::owned(*std::move(block));
      } else {
        sealed = fail(std::move(block).error());
      }
    }
    if (sealed) {
      BATON_OK(write_seal_file(file, held.state, key));
      BATON_TRY(const uint64_t sum, checksum_of(held.state));
      json["state"] = {{"tokens", held.tokens.size()}, {"checksum", hex_digits(sum)}};
    }
  }
  if (key != nullptr) json["mac"] = hex_digits(mac_of(json, *key).value());
  const std::string text = text_of(json);
  BATON_OK(write_file(messages_file(file), std::as_bytes(std::span(text))));
  if (sealed) return {};
  return fail(Code::kOutOfMemory, fmt::format("{}: the messages are in {}, and will be prefilled again",
                                              sealed.error().message, messages_file(file).string()));
}

Status Conversation::load(const std::filesystem::path& file, const StateKey* key) {
  const std::string name = messages_file(file).string();
  std::error_code ignored;
  if (std::filesystem::exists(file, ignored) && !std::filesystem::exists(name, ignored)) {
    return fail(Code::kNotFound,
                fmt::format("{}: a state without a conversation: there is no {}; a prompt can go on from it, not a "
                            "conversation",
                            file.string(), name));
  }
  BATON_TRY(const std::string text, read_file(name, kJsonBytesMax));
  OrderedJson json = OrderedJson::parse(text, nullptr, false);
  const auto refuse = [&](Error error) { return fail(std::move(error).in(name)); };
  if (!json.is_object() || json.value("baton_chat", OrderedJson()) != kVersion) {
    return refuse({Code::kInvalidInput, fmt::format("not a saved chat of version {}", kVersion)});
  }
  if (auto status = take_mac(json, key); !status) return refuse(status.error());
  BATON_TRY(const StateIdentity identity, runtime_.identity());
  const OrderedJson prints = identity_json(identity);
  for (const auto& [field, value] : prints.items()) {
    if (auto status = same(json, field.c_str(), value.get<std::string>()); !status) return refuse(status.error());
  }
  if (auto status = same(json, "template", hex_digits(template_digest())); !status) return refuse(status.error());
  const OrderedJson messages = json.value("messages", OrderedJson());
  if (auto status = check_messages(messages); !status) return refuse(status.error());
  const OrderedJson system = json.value("system", OrderedJson("")), thinking = json.value("thinking", OrderedJson());
  if (!system.is_string()) return refuse({Code::kInvalidInput, "field 'system' is not a text"});
  if (!thinking.is_null() && !thinking.is_boolean())
    return refuse({Code::kInvalidInput, "field 'thinking' is not true, false or null"});

  Conversation loaded(runtime_, options_);
  loaded.messages_ = messages;
  loaded.system_ = system.get<std::string>();
  if (thinking.is_boolean()) loaded.options_.thinking = thinking.get<bool>();
  const OrderedJson state = json.value("state", OrderedJson());
  if (!state.is_null() && !state.is_object())
    return refuse({Code::kInvalidInput, "field 'state' is not an object or null"});
  const bool has_state = state.is_object() && std::filesystem::exists(file, ignored);
  if (has_state) {
    BATON_TRY(const SealedFile sealed, read_state(file, name, state, identity, runtime_.model(), key));
    loaded.loaded_ = LoadedState{sealed.view.tokens, sealed.source};
    loaded.said_.push_back({sealed.view.tokens, {}});
    OrderedJson next = messages;
    next.push_back({{"role", "user"}, {"content", ""}});
    BATON_TRY(const Prompt prompt, loaded.prompt_of(next, true));
    if (prompt.start == nullptr) {
      return fail(Code::kMismatch, fmt::format("{}: its {} tokens do not begin the conversation in {}", file.string(),
                                               loaded.loaded_->tokens.size(), name));
    }
  }
  messages_ = std::move(loaded.messages_);
  system_ = std::move(loaded.system_);
  options_.thinking = loaded.options_.thinking;
  said_ = std::move(loaded.said_);
  loaded_ = std::move(loaded.loaded_);
  loads_ += has_state ? 1 : 0;
  pending_.clear();
  attempts_ = 0;
  return {};
}

}  // namespace baton

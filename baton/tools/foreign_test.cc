// State files of other projects: byte-exact fixtures (tests/data/state), round trips in every order of heads, and what
// is refused.
#include "baton/tools/foreign.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "baton/base/bytes.h"
#include "baton/base/file.h"
#include "baton/base/float.h"
#include "tests/support/fake_state.h"

namespace baton {
namespace {

constexpr StateIdentity kForeignIdentity{0x1111, 0x2222, 0x3333};

std::vector<std::byte> fixture(const std::string& name) {
  const auto file = MappedFile::open(std::string(BATON_SOURCE_DIR "/tests/data/state/") + name);
  BATON_CHECK(file.has_value());
  return {file->bytes().begin(), file->bytes().end()};
}

// The model of the fixtures.
Model small_model() {
  Model model;
  ModelSpec& spec = model.spec;
  spec.hidden = 8;
  spec.layers = 2;
  spec.heads = spec.kv_heads = 2;
  spec.head_dim = spec.rotary = 4;
  spec.vocab = 6;
  spec.context_max = 64;
  spec.linear_key_heads = 1;
  spec.linear_value_heads = 2;
  spec.linear_key_dim = 2;
  spec.linear_value_dim = 3;
  spec.conv_taps = 4;
  model.program = test::fake_program(2, 2, 2, 4, 2, 3, 3, 10);
  return model;
}

// Every value by its canonical number: convolution 1 to 30, recurrent to 42, keys to 66, values to 90.
void expect_numbered(const PlainState& state) {
  ASSERT_EQ(state.sections.size(), 4u);
  float next = 1;
  for (const auto& section : state.sections) {
    for (size_t at = 0; at < section.size(); at += 4, next += 1)
      ASSERT_EQ(load_as<float>(section.data() + at), next) << at;
  }
  EXPECT_EQ(next, 91);
}

std::string error_of(const std::vector<std::byte>& bytes, const Model& model) {
  const auto parsed = parse_foreign(bytes);
  if (!parsed) return parsed.error().message;
  const auto state = from_foreign(*parsed, model);
  return state ? "accepted" : state.error().message;
}

StateShape shape_at(const SequenceState& state, uint64_t tokens) {
  StateShape shape = state.shape();
  for (Segment& segment : shape.segments) segment.dims = dims_at(segment, tokens);
  return shape;
}

TEST(Foreign, FixturesAreReadWhereverTheirRingsBegin) {
  const Model model = small_model();
  for (const char* name :
       {"anelms.bin", "anelms_rotated.bin", "anelm_cache.bin", "anelm_cache_rotated.bin", "mlx.safetensors"}) {
    SCOPED_TRACE(name);
    const auto bytes = fixture(name);
    const auto parsed = parse_foreign(bytes);
    ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
    EXPECT_EQ(parsed->position, 3u);
    EXPECT_EQ(parsed->layers, 2u);
    const auto state = from_foreign(*parsed, model);
    ASSERT_TRUE(state.has_value()) << state.error().message;
    expect_numbered(*state);
    const bool anelms = std::string_view(name).starts_with("anelms");
    EXPECT_EQ(state->logits, anelms ? std::vector<float>({0.5, 1.5, 2.5, 3.5, 4.5, 5.5}) : std::vector<float>());
    EXPECT_EQ(state->tokens,
              name == std::string_view("mlx.safetensors") ? std::vector<int32_t>({3, 1, 4}) : std::vector<int32_t>());
  }
}

TEST(Foreign, WhatIsWrittenIsTheFixture) {
  const Model model = small_model();
  const auto source = fixture("anelms_rotated.bin");
  auto state = from_foreign(*parse_foreign(source), model);
  ASSERT_TRUE(state.has_value());
  state->tokens = {3, 1, 4};
  ForeignOptions options;
  options.kv_capacity = 4;
  EXPECT_EQ(*to_foreign(*state, model, ForeignFormat::kAnelms, options), fixture("anelms.bin"));
  EXPECT_EQ(*to_foreign(*state, model, ForeignFormat::kAnelmCache, options), fixture("anelm_cache.bin"));
  EXPECT_EQ(*to_foreign(*state, model, ForeignFormat::kMlx, options), fixture("mlx.safetensors"));
}

TEST(Foreign, SealAndBackIsTheSameFile) {
  const Model model = small_model();
  const auto source = fixture("mlx.safetensors");
  const auto state = from_foreign(*parse_foreign(source), model);
  ASSERT_TRUE(state.has_value());
  const auto sealed = to_seal(*state, kForeignIdentity);
  ASSERT_TRUE(sealed.has_value()) << sealed.error().message;
  const StateShape layout = state_shape(model.program, DType::kF32);
  const auto back = from_seal(*sealed, {kForeignIdentity, &layout, nullptr, 64, 6});
  ASSERT_TRUE(back.has_value()) << back.error().message;
  EXPECT_EQ(back->tokens, (std::vector<int32_t>{3, 1, 4}));
  EXPECT_EQ(*to_foreign(*back, model, ForeignFormat::kMlx, {}), source);
  EXPECT_FALSE(from_seal(*sealed, {kForeignIdentity, &layout, nullptr, 2, 6}).has_value());
}

// Larger, random, in every combination of the orders that containers have.
TEST(Foreign, RoundTripsInEveryOrderOfHeads) {
  for (const HeadMap map : {HeadMap::kGrouped, HeadMap::kTiled}) {
    for (const RopePairing pairing : {RopePairing::kHalf, RopePairing::kAdjacent}) {
      for (const auto format : {ForeignFormat::kAnelms, ForeignFormat::kAnelmCache, ForeignFormat::kMlx}) {
        Model model = small_model();
        ModelSpec& spec = model.spec;
        spec.layers = 8;
        spec.linear_key_heads = 2;
        spec.linear_value_heads = spec.kv_heads = 6;
        spec.linear_key_dim = 5;
        spec.linear_value_dim = 3;
        spec.head_dim = 8;
        spec.rotary = 4;
        spec.head_map = map;
        spec.rope_pairing = pairing;
        model.program = test::fake_program(8, 4, 6, 8, 5, 3, 3, 2 * 2 * 5 + 6 * 3);
        test::FakeState from(test::fake_layout(model.program, 17, {}), 17);
        from.fill(7, 17);
        PlainState state;
        state.position = 17;
        state.shape = shape_at(from, 17);
        state.sections = from.memory();
        state.tokens = test::fake_tokens(3, 17, spec.vocab);
        state.logits.assign(static_cast<size_t>(spec.vocab), 0.25f);
        const auto bytes = to_foreign(state, model, format, {});
        ASSERT_TRUE(bytes.has_value()) << bytes.error().message;
        const auto back = from_foreign(*parse_foreign(*bytes), model);
        ASSERT_TRUE(back.has_value()) << back.error().message;
        EXPECT_EQ(back->sections, state.sections) << to_string(format);
        model.spec.head_map = map == HeadMap::kGrouped ? HeadMap::kTiled : HeadMap::kGrouped;
        EXPECT_NE(from_foreign(*parse_foreign(*bytes), model)->sections, state.sections);
        model.spec.head_map = map;
        model.spec.rope_pairing = pairing == RopePairing::kHalf ? RopePairing::kAdjacent : RopePairing::kHalf;
        EXPECT_NE(from_foreign(*parse_foreign(*bytes), model)->sections, state.sections);
      }
    }
  }
}

// Value head 1 of 6 reads key head 0 where heads are grouped: with two key heads it is tiled head 2.
TEST(Foreign, TiledHeadsAreFoundByTheirKeyHead) {
  Model model = small_model();
  model.spec.linear_value_heads = 6;
  model.spec.linear_key_heads = 2;
  model.spec.layers = 1;
  model.program = Program{};
  model.program.slots = {{SlotKind::kConv, 0, 0, 3, 2 * 2 * 2 + 6 * 3}, {SlotKind::kRecurrent, 0, 6, 2, 3}};
  test::FakeState from(test::fake_layout(model.program, 1, {}), 1);
  from.fill(1, 1);
  PlainState state{1, shape_at(from, 1), from.memory(), {5}, {}, {}};
  const auto grouped = to_foreign(state, model, ForeignFormat::kMlx, {});
  model.spec.head_map = HeadMap::kTiled;
  const auto tiled = from_foreign(*parse_foreign(*grouped), model);
  ASSERT_TRUE(tiled.has_value()) << tiled.error().message;
  constexpr size_t kHead = 2 * 3 * 4, kChannels = 8 + 18;
  const size_t expected[] = {0, 2, 4, 1, 3, 5};  // of grouped head h
  for (size_t h = 0; h < 6; ++h) {
    EXPECT_TRUE(std::equal(state.sections[1].begin() + h * kHead, state.sections[1].begin() + (h + 1) * kHead,
                           tiled->sections[1].begin() + expected[h] * kHead))
        << h;
    for (size_t i = 0; i < 3; ++i) {
      const auto at = [&](const PlainState& s, size_t head) {
        return load_as<float>(s.sections[0].data() + (kChannels + 8 + head * 3 + i) * 4);
      };
      EXPECT_EQ(at(state, h), at(*tiled, expected[h]));
    }
  }
}

TEST(Foreign, NarrowTypesRoundAndOverflowIsRefused) {
  const Model model = small_model();
  auto state = *from_foreign(*parse_foreign(fixture("mlx.safetensors")), model);
  store_as<float>(state.sections[2].data(), 1.0f + 0x1p-9f);  // between two BF16 values: to even
  ForeignOptions options;
  options.type = DType::kBF16;
  const auto narrow = to_foreign(state, model, ForeignFormat::kMlx, options);
  ASSERT_TRUE(narrow.has_value()) << narrow.error().message;
  const auto back = from_foreign(*parse_foreign(*narrow), model);
  ASSERT_TRUE(back.has_value()) << back.error().message;
  EXPECT_EQ(back->shape.segments[2].dtype, DType::kBF16);
  EXPECT_EQ(bf16_to_f32(load_as<uint16_t>(back->sections[2].data())), 1.0f);
  EXPECT_EQ(back->shape.segments[0].dtype, DType::kF32);
  EXPECT_EQ(back->sections[0], state.sections[0]);  // small whole numbers fit
  EXPECT_EQ(back->sections[1], state.sections[1]);  // never narrowed

  store_as<float>(state.sections[3].data() + 8, 1e6f);
  options.type = DType::kF16;
  const auto refused = to_foreign(state, model, ForeignFormat::kMlx, options);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("layer 1 values: value 1000000"), std::string::npos)
      << refused.error().message;
}

TEST(Foreign, EveryTruncationAndExtensionIsRefused) {
  const Model model = small_model();
  for (const char* name : {"anelms_rotated.bin", "anelm_cache_rotated.bin", "mlx.safetensors"}) {
    auto bytes = fixture(name);
    for (size_t length = 0; length < bytes.size(); ++length) {
      const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(length));
      ASSERT_NE(error_of(cut, model), "accepted") << name << " " << length;
    }
    bytes.push_back(std::byte{0});
    EXPECT_NE(error_of(bytes, model), "accepted") << name;
  }
}

struct Damage {
  const char* file;
  std::function<void(std::vector<std::byte>&)> apply;
  const char* message;
};

void put(std::vector<std::byte>& bytes, size_t at, uint32_t value) { store_as<uint32_t>(bytes.data() + at, value); }
void replace(std::vector<std::byte>& bytes, std::string_view from, std::string_view to) {
  const size_t at = as_text(bytes).find(from);
  BATON_CHECK(at != std::string_view::npos && from.size() == to.size());
  std::memcpy(bytes.data() + at, to.data(), to.size());
}

TEST(Foreign, DamageIsNamed) {
  constexpr uint32_t kNan = 0x7fc00000;
  const Damage cases[] = {
      {"anelms.bin", [](auto& b) { put(b, 8, 2); }, "version 2"},
      {"anelms.bin", [](auto& b) { put(b, 12, 3); }, "layer 2 type"},
      {"anelms.bin", [](auto& b) { put(b, 12, 1u << 20); }, "num_layers is 1048576"},
      {"anelms.bin", [](auto& b) { put(b, 16, 9); }, "hidden is 9, the model has 8 (a state of another model)"},
      {"anelms.bin", [](auto& b) { put(b, 24, 0xffffffff); }, "num_kv_heads is 4294967295"},
      {"anelms.bin", [](auto& b) { put(b, 36, 2); }, "lin_num_key_heads is 2, the model has 1"},
      {"anelms.bin", [](auto& b) { put(b, 60, 2); }, "layer 1 keys is [2, 3, 4], the model needs [2, 2, 4]"},
      {"anelms.bin", [](auto& b) { put(b, 60, 65); }, "65 tokens, the model has room for 64"},
      {"anelms.bin", [](auto& b) { put(b, 60, 9); }, "layer 1 keys is [2, 3, 4]"},
      {"anelms.bin", [](auto& b) { put(b, 64, 7); }, "layer 0 type 7"},
      {"anelms.bin", [](auto& b) { put(b, 68, 3); }, "layer 0 conv_pos 3 of 3 columns"},
      {"anelms.bin", [](auto& b) { put(b, 72, kNan); }, "layer 0 recurrent: value 0 is nan"},
      {"anelms.bin", [](auto& b) { put(b, 244, 5); }, "layer 1 kv_len 5, kv_capacity 4"},
      {"anelms.bin", [](auto& b) { put(b, 248, 4); }, "layer 1 kv_start 4, kv_capacity 4"},
      {"anelm_cache.bin", [](auto& b) { put(b, 16, 1u << 30); }, "JSON of 1073741824 bytes"},
      {"anelm_cache.bin", [](auto& b) { b[20] = std::byte{'['}; }, "not an object"},
      {"anelm_cache.bin", [](auto& b) { replace(b, "prompt_len", "prompt_lex"); }, "field 'prompt_len' is missing"},
      {"anelm_cache.bin", [](auto& b) { replace(b, "\"head_dim\":4", "\"head_dim\":5"); },
       "layer 1 values needs 120 bytes, 72 remain"},
      {"anelm_cache.bin", [](auto& b) { replace(b, "\"conv_kernel\":4", "\"conv_kernel\":1"); }, "conv_kernel is 1"},
      {"mlx.safetensors", [](auto& b) { replace(b, "ArraysCache", "ChunkeCache"); }, "layer 0 is a ChunkeCache"},
      {"mlx.safetensors", [](auto& b) { replace(b, "\"2.0\"", "\"3.0\""); }, "no metadata '2.0'"},
      {"mlx.safetensors", [](auto& b) { replace(b, "[1,2,3,4]", "[2,1,3,4]"); }, "batch of 1"},
      {"mlx.safetensors", [](auto& b) { replace(b, "3,1,4\"", "3,1,x\""); }, "not token ids"},
      {"mlx.safetensors", [](auto& b) { replace(b, "3,1,4\"", "3,114\""); }, "names 2 tokens, the keys are of 3"},
      {"mlx.safetensors", [](auto& b) { replace(b, "F32", "I32"); }, "tensor '0.0' is missing"},
      {"mlx.safetensors", [](auto& b) { replace(b, "[1,3,10]", "[1,10,3]"); }, "layer 0 conv is [1, 10, 3]"},
  };
  const Model model = small_model();
  for (const Damage& damage : cases) {
    auto bytes = fixture(damage.file);
    damage.apply(bytes);
    const std::string message = error_of(bytes, model);
    EXPECT_NE(message.find(damage.message), std::string::npos)
        << damage.file << ": wanted '" << damage.message << "', got '" << message << "'";
  }
}

TEST(Foreign, OverwrittenRingsAndMissingFactsAreRefused) {
  const Model model = small_model();
  // Five tokens through a ring of four rows: the first is gone.
  auto bytes = fixture("anelms.bin");
  put(bytes, 60, 5);
  put(bytes, 244, 4);
  EXPECT_NE(error_of(bytes, model).find("4 of 5 tokens are left"), std::string::npos) << error_of(bytes, model);

  auto state = *from_foreign(*parse_foreign(fixture("anelm_cache.bin")), model);
  EXPECT_FALSE(to_seal(state, kForeignIdentity).has_value());  // no tokens
  const auto no_logits = to_foreign(state, model, ForeignFormat::kAnelms, {});
  ASSERT_FALSE(no_logits.has_value());
  EXPECT_EQ(no_logits.error().code, Code::kInvalidInput);
  state.logits.assign(6, 0);
  ForeignOptions options;
  options.kv_capacity = 2;
  const auto no_room = to_foreign(state, model, ForeignFormat::kAnelms, options);
  ASSERT_FALSE(no_room.has_value());
  EXPECT_EQ(no_room.error().code, Code::kUnsupported);
}

}  // namespace
}  // namespace baton

// Types of keys and values: states that go between units with every two of them, by hand-over and through a sealed file
// in the middle; families of odd head sizes, windows and caps with each.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "baton/api/units.h"
#include "baton/bridge/bridge.h"
#include "baton/bridge/compare.h"
#include "baton/state/seal_list.h"
#include "tests/support/golden.h"
#include "tests/support/reseal.h"
#include "tests/support/state_values.h"
#include "tests/support/test_names.h"

namespace baton::test {
namespace {

std::vector<std::string> units_and_types() {
  std::vector<std::string> all = {"ref", "cpu"};
  for (const std::string& unit : kv_units()) all.push_back(unit);
  return all;
}

struct Loaded {
  std::string name;
  std::unique_ptr<Unit> unit;
  std::unique_ptr<Executor> executor;
};

Loaded load(const std::string& name, const std::shared_ptr<const Model>& model) {
  auto unit = create_unit(name);
  EXPECT_TRUE(unit) << unit.error().message;
  auto executor = (*unit)->load(model, 2);
  EXPECT_TRUE(executor) << executor.error().message;
  return {name, std::move(*unit), std::move(*executor)};
}

std::shared_ptr<const Model> model_of(const std::filesystem::path& path) {
  auto model = load_model(path);
  EXPECT_TRUE(model) << model.error().message;
  return *model;
}

std::vector<int32_t> tokens_of(const Model& model, size_t count) {
  std::vector<int32_t> ids(count);
  for (size_t i = 0; i < count; ++i)
    ids[i] = static_cast<int32_t>((5 + i * 11) % static_cast<size_t>(model.program.vocab));
  return ids;
}

// Bytes that a segment has in another type: its own where the types are one, else encoded from what it is read as.
std::vector<std::byte> bytes_as(const SequenceState& state, size_t index, DType to) {
  const Segment& from = state.shape().segments[index];
  if (from.dtype == to) return segment_bytes(state, index);
  const std::vector<float> values = segment_values(state, index);
  std::vector<std::byte> bytes(values.size() / from.dims[2] * row_bytes_of(to, from.dims[2]));
  encode_rows(to, values.data(), from.dims[2], values.size() / from.dims[2], bytes.data());
  return bytes;
}

double nmse(std::span<const float> a, std::span<const float> b) {
  double error = 0, energy = 1e-12;
  for (size_t i = 0; i < a.size(); ++i) {
    error += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    energy += static_cast<double>(b[i]) * b[i];
  }
  return error / energy;
}

class KvTypes : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    model_ = model_of(data_folder() / "golden" / GetParam());
    ids_ = tokens_of(*model_, 100);
    for (const std::string& name : units_and_types()) units_.push_back(load(name, model_));
  }
  std::unique_ptr<SequenceState> prefilled(const Loaded& on, size_t count) {
    auto state = std::move(*on.executor->new_state(110));
    EXPECT_TRUE(on.executor->prefill(*state, std::span(ids_).first(count), {}));
    return state;
  }
  std::vector<float> go_on(const Loaded& on, SequenceState& state) {
    const auto width = static_cast<size_t>(model_->program.output_width);
    std::vector<float> rows(3 * width, std::nanf(""));
    for (size_t i = 0; i < 3; ++i) {
      const Status done = on.executor->decode(state, ids_[i + 3], std::span(rows).subspan(i * width, width));
      EXPECT_TRUE(done) << done.error().message;
    }
    return rows;
  }
  const StateIdentity identity_ = {1, 2, 3};
  std::shared_ptr<const Model> model_;
  std::vector<int32_t> ids_;
  std::vector<Loaded> units_;
};
INSTANTIATE_TEST_SUITE_P(Models, KvTypes, testing::Values("tiny-llama", "tiny-qwen3.5"),
                         [](const auto& item) { return test_name(item.param); });

TEST_P(KvTypes, AUnitKeepsWhatItIsToldTo) {
  for (const Loaded& each : units_) {
    const size_t at = each.name.find("kv=");
    const DType wanted = at != std::string::npos ? kv_type(each.name.substr(at + 3)).value()
                                                 : (each.name == "cpu" ? DType::kF16 : DType::kF32);
    EXPECT_EQ(each.unit->caps().kv_type, wanted);
    for (const Segment& segment : each.executor->shape().segments)
      EXPECT_EQ(segment.dtype, has_tokens_dim(segment.kind) ? wanted : DType::kF32) << each.name;
    for (const Loaded& other : units_) {
      EXPECT_EQ(each.executor->arithmetic() == other.executor->arithmetic(), &each == &other)
          << each.name << " and " << other.name;
    }
  }
}

// Each type converts by one rule, rows as they are read and written anew; what goes on from there is within the bounds
// of both.
TEST_P(KvTypes, StatesGoFromEachToEach) {
  for (const Loaded& from : units_) {
    const auto source = prefilled(from, 70);
    for (const Loaded& to : units_) {
      SCOPED_TRACE(from.name + " to " + to.name);
      const auto target = std::move(*to.executor->new_state(110));
      const auto moved = move_state(*source, *target);
      ASSERT_TRUE(moved) << moved.error().message;
      EXPECT_EQ(moved->bytes, section_bytes(source->shape(), 70));
      for (size_t i = 0; i < source->shape().segments.size(); ++i)
        ASSERT_EQ(segment_bytes(*target, i), bytes_as(*source, i, target->shape().segments[i].dtype)) << i;
      const auto own = prefilled(to, 70);
      const std::vector<float> got = go_on(to, *target), wanted = go_on(to, *own);
      const float allowed =
          from.unit->caps().logit_tolerance(DType::kF32) + to.unit->caps().logit_tolerance(DType::kF32);
      for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], wanted[i], allowed);
    }
  }
}

TEST_P(KvTypes, SealedInTheMiddleTheyGoOn) {
  for (const Loaded& from : units_) {
    const auto source = prefilled(from, 37);
    const auto block = seal_state(*source, identity_, std::span(ids_).first(37));
    ASSERT_TRUE(block) << block.error().message;
    const auto listing = list_seal(*block);
    ASSERT_TRUE(listing) << listing.error().message;
    for (const SealedSection& section : listing->sections)
      EXPECT_EQ(section.dtype, has_tokens_dim(section.kind) ? from.unit->caps().kv_type : DType::kF32);
    for (const Loaded& to : units_) {
      SCOPED_TRACE(from.name + " to " + to.name);
      const auto target = std::move(*to.executor->new_state(110)), moved = std::move(*to.executor->new_state(110));
      SealExpectation expected;
      expected.identity = identity_;
      const auto opened = unseal_state(SealSource::borrowed(*block), expected, *target);
      ASSERT_TRUE(opened) << opened.error().message;
      ASSERT_TRUE(move_state(*source, *moved));
      EXPECT_EQ(state_bytes(*target), state_bytes(*moved));
      if (&from == &to) {
        const auto never = prefilled(from, 37);
        EXPECT_EQ(go_on(to, *target), go_on(from, *never));
      }
    }
  }
}

// Every other number in the place of a type, all checksums made right: sizes tell, and for halves of the two kinds,
// which are of one size, the other sections. Where all lie alike a proof finds it (docs/proof.md).
TEST_P(KvTypes, AForgedTypeIsRefused) {
  constexpr uint64_t kEntries = 88, kEntry = 64, kTypeAt = 8;
  for (const Loaded& from : units_) {
    const auto source = prefilled(from, 37);
    const auto block = seal_state(*source, identity_, std::span(ids_).first(37));
    ASSERT_TRUE(block);
    for (size_t i = 0; i < source->shape().segments.size(); ++i) {
      const Segment& segment = source->shape().segments[i];
      const auto own = static_cast<uint32_t>(segment.dtype);
      for (uint32_t type = 0; type < 80; ++type) {
        if (own == type) continue;
        std::vector<std::byte> forged = *block;
        store_as<uint32_t>(forged.data() + kEntries + i * kEntry + kTypeAt, type);
        reseal(forged);
        SealExpectation expected;
        expected.identity = identity_;
        const auto target = std::move(*from.executor->new_state(110));
        const auto opened = unseal_state(SealSource::borrowed(forged), expected, *target);
        ASSERT_FALSE(opened) << from.name << " segment " << i << " as " << type;
        EXPECT_EQ(opened.error().code, Code::kCorrupt);
        EXPECT_FALSE(list_seal(forged)) << from.name << " segment " << i << " as " << type;
      }
    }
  }
}

// What fills the last block of a row up is zero, and has no other form.
TEST_P(KvTypes, AFilledRowIsRefused) {
  constexpr uint64_t kEntries = 88, kOffsetAt = 40;
  for (const Loaded& from : units_) {
    const auto source = prefilled(from, 37);
    const Segment& segment = source->shape().segments[0];
    const uint64_t columns = segment.dims[2];
    if (segment.dtype != DType::kQ8_0 || columns % kRowBlock == 0) continue;
    const auto block = seal_state(*source, identity_, std::span(ids_).first(37));
    ASSERT_TRUE(block);
    std::vector<std::byte> forged = *block;
    const auto begin = load_as<uint64_t>(forged.data() + kEntries + kOffsetAt);
    forged[begin + row_bytes_of(segment.dtype, columns) - 1] = std::byte{1};
    reseal(forged);
    SealExpectation expected;
    expected.identity = identity_;
    const auto target = std::move(*from.executor->new_state(110));
    const auto opened = unseal_state(SealSource::borrowed(forged), expected, *target);
    ASSERT_FALSE(opened) << from.name;
    EXPECT_NE(opened.error().message.find("what fills a row up is zero"), std::string::npos) << opened.error().message;
  }
}

// A scale that is no number is found where it lies, by whoever takes the state.
TEST_P(KvTypes, AScaleThatIsNoNumberIsFound) {
  for (const Loaded& from : units_) {
    if (!in_blocks(from.unit->caps().kv_type)) continue;
    const auto good = prefilled(from, 37), bad = std::move(*from.executor->new_state(110));
    bad->begin_write(37);
    size_t spoilt = SIZE_MAX;
    for (size_t i = 0; i < good->shape().segments.size(); ++i) {
      const Segment& segment = good->shape().segments[i];
      std::vector<std::byte> bytes = segment_bytes(*good, i);
      if (segment.kind == SlotKind::kValues && spoilt == SIZE_MAX) {
        spoil_end(segment, bytes);
        spoilt = i;
      }
      const Dims dims = dims_at(segment, 37);
      ASSERT_TRUE(bad->write(i, {0, dims[0] * dims[1]}, bytes.data()));
    }
    ASSERT_TRUE(bad->finish_write());
    const auto to = std::move(*from.executor->new_state(110));
    const auto moved = move_state(*bad, *to);
    ASSERT_FALSE(moved);
    EXPECT_EQ(moved.error().code, Code::kCorrupt);
    const Segment& named = good->shape().segments[spoilt];
    EXPECT_NE(moved.error().message.find(segment_name(named.kind, named.layer)), std::string::npos)
        << moved.error().message;
  }
}

// Values that a type in blocks cannot hold, or of which it would keep nothing, are refused on the way into it.
TEST_P(KvTypes, WhatATypeCannotHoldIsRefused) {
  const Loaded& from = units_[0];  // f32
  for (const Loaded& to : units_) {
    if (!in_blocks(to.unit->caps().kv_type)) continue;
    for (const float value : {3e7f, 1e-9f}) {
      SCOPED_TRACE(fmt::format("{} to {}", value, to.name));
      const auto source = std::move(*from.executor->new_state(4)), target = std::move(*to.executor->new_state(4));
      source->begin_write(2);
      for (size_t i = 0; i < source->shape().segments.size(); ++i) {
        const Segment& segment = source->shape().segments[i];
        const Dims dims = dims_at(segment, 2);
        std::vector<float> values(dims[0] * dims[1] * dims[2], has_tokens_dim(segment.kind) ? value : 1.0f);
        ASSERT_TRUE(source->write(i, {0, dims[0] * dims[1]}, std::as_bytes(std::span(values)).data()));
      }
      ASSERT_TRUE(source->finish_write());
      const auto moved = move_state(*source, *target);
      ASSERT_FALSE(moved);
      EXPECT_EQ(moved.error().code, Code::kUnsupported);
      EXPECT_NE(moved.error().message.find(std::string(to_string(to.unit->caps().kv_type))), std::string::npos)
          << moved.error().message;
    }
  }
}

// One step of each type, as a share of the values: 2^-7 of bf16's, half a code of a block's largest over 127 and
// over 8.
TEST_P(KvTypes, AStepIsThatOfTheType) {
  for (const Loaded& each : units_) {
    const auto state = prefilled(each, 70);
    const StateDifference step = one_step(*state);
    for (size_t i = 0; i < step.size(); ++i) {
      const DType type = state->shape().segments[i].dtype;
      const auto within = [&](double least, double most) {
        EXPECT_TRUE(step[i].rms > least && step[i].rms < most) << each.name << " slot " << i << ": " << step[i].rms;
      };
      if (type == DType::kF16) within(3e-4, 1e-3);
      if (type == DType::kBF16) within(3e-3, 8e-3);
      if (type == DType::kQ8_0) within(8e-3, 4e-2);
      if (type == DType::kQ4_0) within(0.15, 0.6);
    }
  }
}

class KvFamilies : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, KvFamilies, testing::ValuesIn(family_names()),
                         [](const auto& item) { return test_name(item.param); });

// Heads of 8 and 12 values, windows across their edges, caps: `cpu` against `ref` of the same type, pieces of a prompt
// and token by token, and with what each type costs against `ref` alone.
TEST_P(KvFamilies, CpuEqualsRefOfTheSameType) {
  const auto model = model_of(family_folder(GetParam()));
  const auto ids = read_golden(family_folder(GetParam()) / "golden.safetensors").at("ids").integers;
  const auto width = static_cast<size_t>(model->program.output_width);
  const auto logits_of = [&](const std::string& name, std::span<const size_t> pieces) {
    const Loaded on = load(name, model);
    const auto state = std::move(*on.executor->new_state(ids.size()));
    std::vector<float> logits(ids.size() * width, std::nanf(""));
    size_t done = 0;
    const auto step = [&](size_t count, bool decodes) {
      const auto out = std::span(logits).subspan(done * width, count * width);
      const Status status = decodes ? on.executor->decode(*state, ids[done], out)
                                    : on.executor->prefill(*state, std::span(ids).subspan(done, count), out);
      EXPECT_TRUE(status) << status.error().message;
      done += count;
    };
    for (const size_t piece : pieces) step(std::min(piece, ids.size() - done), false);
    while (done < ids.size()) step(1, true);
    return logits;
  };
  const size_t all[] = {ids.size()}, some[] = {5, 20};
  const std::vector<float> exact = logits_of("ref", all);
  // Where products are rounded to 16 bits, that is in every comparison: up to 2e-4, 2e-3 of a mixture.
  const double rounding = nmse(logits_of("cpu", all), exact);
  EXPECT_LE(rounding, 1e-2);
  for (const auto& [word, same, cost] : {std::tuple{"bf16", 1e-4, 1e-3}, {"q8_0", 1e-4, 1e-3}, {"q4_0", 1e-2, 1e-1}}) {
    SCOPED_TRACE(word);
    const std::string kv = fmt::format(":kv={}", word);
    const std::vector<float> wanted = logits_of("ref" + kv, all);
    EXPECT_LE(nmse(logits_of("cpu" + kv, all), wanted), same + 4 * rounding);
    EXPECT_LE(nmse(logits_of("cpu" + kv, some), wanted), same + 4 * rounding);
    EXPECT_LE(nmse(wanted, exact), cost);
    EXPECT_GT(nmse(wanted, exact), 0);
  }
}

TEST(KvOption, IsRefusedByTheNameOfWhoLacksIt) {
  EXPECT_EQ(with_kv("cpu", "").value(), "cpu");
  EXPECT_EQ(with_kv("cpu", "q8_0").value(), "cpu:kv=q8_0");
  EXPECT_EQ(with_kv("cpu:threads=2", "q8_0").value(), "cpu:threads=2,kv=q8_0");
  EXPECT_EQ(with_kv("cpu:kv=bf16", "q8_0").value(), "cpu:kv=bf16");
  for (const UnitEntry* entry : unit_entries()) {
    if (entry->name == "cpu" || entry->name == "ref") continue;
    const auto refused = with_kv(std::string(entry->name), "q8_0");
    ASSERT_FALSE(refused) << entry->name;
    if (refused.error().code == Code::kInvalidInput) {  // it has a choice, and not this type
      for (const char* word : {"--kv f16|bf16", "cuda:kv=f32"})
        EXPECT_NE(refused.error().message.find(word), std::string::npos) << refused.error().message;
      continue;
    }
    EXPECT_EQ(refused.error().code, Code::kUnsupported);
    for (const std::string_view word : {entry->name, std::string_view("ref, cpu"), std::string_view("q8_0")})
      EXPECT_NE(refused.error().message.find(word), std::string::npos) << refused.error().message;
  }
  const auto unknown = create_unit("cpu:kv=q5_0");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("f16|bf16|q8_0|q4_0"), std::string::npos) << unknown.error().message;
}

}  // namespace
}  // namespace baton::test

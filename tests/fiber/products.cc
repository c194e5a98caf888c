// Memory with guards, matrices of every form at random, comparisons.
#include "tests/fiber/products.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

#include "baton/base/float.h"
#include "baton/base/status.h"
#include "baton/unit/cuda/packings.h"
#include "baton/unit/cuda/reference.h"
#include "baton/unit/cuda/strips.h"

namespace baton::cuda::test {
namespace {

constexpr size_t kPage = 4096;

void put(Form form, unsigned char* to, size_t i, float value) {
  if (form == Form::kF32) {
    std::memcpy(to + 4 * i, &value, 4);
    return;
  }
  const uint16_t half = form == Form::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
  std::memcpy(to + 2 * i, &half, 2);
}

bool pairs(const Instruction& in) { return in.epilogue == Epilogue::kSwiGlu || in.epilogue == Epilogue::kGeGlu; }

}  // namespace

void Desk::Unmap::operator()(unsigned char* memory) const {
  auto* const end = memory + (bytes + 15) / 16 * 16;
  const size_t pages = ((bytes + 15) / 16 * 16 + kPage - 1) / kPage * kPage;
  munmap(end - pages, pages + kPage);
}

unsigned char* Desk::raw(size_t bytes) {
  const size_t places = (bytes + 15) / 16 * 16, pages = (places + kPage - 1) / kPage * kPage;
  void* const memory = mmap(nullptr, pages + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  BATON_CHECK(memory != MAP_FAILED);
  auto* const from = static_cast<unsigned char*>(memory);
  BATON_CHECK(mprotect(from + pages, kPage, PROT_NONE) == 0);
  held_.emplace_back(from + pages - places, Unmap{bytes});
  std::memset(from + pages - places, 0xff, places);
  return from + pages - places;
}

Address Desk::values(int rows, int width) {
  const Address made = out(rows, width);
  for (int r = 0; r < rows; ++r) {
    float* const row = host_row(made, width, r);
    std::generate(row, row + width, [&] { return random_.normal(); });
  }
  return made;
}

Address Desk::out(int rows, int width) {
  const int pitch = pitch_of(width);
  const auto made = reinterpret_cast<Address>(raw(static_cast<size_t>(rows) * static_cast<size_t>(pitch) * 4));
  for (int r = 0; r < rows; ++r) std::fill(host_row(made, width, r) + width, host_row(made, width, r) + pitch, 0.0f);
  return made;
}

Address Desk::vector(int width, float about) {
  unsigned char* const made = raw(static_cast<size_t>(width) * 4);
  scales(Form::kF32, made, static_cast<size_t>(width), about);
  return reinterpret_cast<Address>(made);
}

void Desk::scales(Form form, unsigned char* to, size_t count, float about) {
  for (size_t i = 0; i < count; ++i) {
    const float by = 0.3f * random_.normal();
    put(form, to, i, about == 0.0f ? by : about * (1.0f + by));
  }
}

Kind kind_of(Packing packing) {
  const Matrix as = packed_as(packing);
  return {as.form, as.bits, as.block_log2, as.part_log2, as.has_minimums, false, as.scale_form, packing};
}

Matrix Desk::matrix(const Kind& kind, int rows, int columns) {
  Matrix made;
  made.rows = rows, made.columns = columns, made.pitch = pitch_of(columns), made.form = kind.form;
  if (kind.form == Form::kCodes) {
    codes(kind, made);
    return made;
  }
  made.row_bytes = made.pitch * (kind.form == Form::kF32 ? 4 : 2);
  const float scale = 1.0f / std::sqrt(static_cast<float>(columns));
  const auto count = static_cast<size_t>(rows) * static_cast<size_t>(made.pitch);
  unsigned char* const values = raw(static_cast<size_t>(rows) * static_cast<size_t>(made.row_bytes));
  for (size_t i = 0; i < count; ++i) {
    const bool inside = static_cast<int>(i % static_cast<size_t>(made.pitch)) < columns;
    put(kind.form, values, i, inside ? scale * random_.normal() : 0.0f);
  }
  made.values = reinterpret_cast<Address>(values);
  return made;
}

void Desk::codes(const Kind& kind, Matrix& made) {
  made.bits = static_cast<uint8_t>(kind.bits), made.block_log2 = static_cast<uint8_t>(kind.block_log2);
  made.part_log2 = static_cast<uint8_t>(kind.part_log2), made.has_table = kind.table;
  made.scale_form = kind.scale_form;
  made.has_minimums = kind.minimums;
  made.zero = static_cast<int16_t>(kind.table ? 0 : kind.bits == 8 ? 3 : (1 << kind.bits) / 2);
  made.unit = 0.5f;
  if (kind.packing != Packing::kOther) made.zero = packed_as(kind.packing).zero, made.unit = 1;
  made.packing = packing_of(made);
  for (int i = 0; i < 16; ++i) made.table[i] = static_cast<int8_t>(i * i / 2 - 50 + i);
  lay_strips(made);
  const size_t block = size_t{1} << std::max(kind.block_log2, kind.part_log2);
  BATON_CHECK(static_cast<size_t>(made.pitch) % block == 0);
  unsigned char* const memory = raw(static_cast<size_t>(made.rows) * static_cast<size_t>(made.row_bytes));
  made.values = reinterpret_cast<Address>(memory);
  for (int row = 0; row < made.rows; ++row) {
    for (int first = 0; first < made.pitch; first += kStrip)
      strip(kind, made, memory + row * made.row_bytes + first / kStrip * made.strip_bytes,
            std::min(kStrip, made.pitch - first));
  }
}

// What lies between arrays is left 0xff.
void Desk::strip(const Kind& kind, const Matrix& of, unsigned char* to, int columns) {
  const auto bytes = [&](unsigned char* from, size_t count, uint64_t below) {
    std::generate(from, from + count, [&] { return static_cast<unsigned char>(random_.below(below)); });
  };
  bytes(to, static_cast<size_t>(columns / 8 * kind.bits), 256);
  // So that sums are about 1.
  const float largest = kind.table ? 60.0f : static_cast<float>(1 << kind.bits) / 2;
  const float parts = kind.part_log2 != 0 ? 40.0f : 1.0f;
  const float unit = 1.0f / of.unit / (largest * parts * std::sqrt(static_cast<float>(of.columns)));
  const auto blocks = static_cast<size_t>(columns >> kind.block_log2);
  const ScalePlaces places = scale_places(of, columns / kGroup);
  to += planes_bytes(of.bits, columns / kGroup);
  scales(kind.scale_form, to, blocks, unit);
  if (kind.minimums) scales(kind.scale_form, to + places.minimums, blocks, unit * largest * 0.3f);
  if (kind.part_log2 == 0) return;
  const auto count = static_cast<size_t>(columns >> kind.part_log2);
  bytes(to + places.parts, kind.minimums ? 2 * count : count, kind.minimums ? 64 : 80);
}

void Desk::prologue(Instruction& in, Prologue kind, int rows, int group) {
  in.prologue = kind;
  in.op.width = group, in.op.eps = 1e-5f;
  if (kind == Prologue::kGated || kind == Prologue::kGate) {
    in.y_width = kind == Prologue::kGate && group > 1 ? in.x_width / group : in.x_width;
    in.y = values(rows, in.y_width);
  }
  if (kind != Prologue::kNone && kind != Prologue::kGate) in.vectors[0] = vector(group, 1.0f);
  if (kind == Prologue::kLayer) in.vectors[1] = vector(group, 0.0f);
}

std::string name_of(const Case& of) {
  static constexpr const char* kForms[] = {"f32", "f16", "bf16", "codes"};
  char text[240];
  std::snprintf(text, sizeof(text),
                "%s, %d bits%s%s, blocks of 2^%d, parts of 2^%d; %d rows, %d columns, %d outputs of %zu matrices, "
                "prologue %d over %d, epilogue %d",
                kForms[static_cast<int>(of.kind.form)], of.kind.bits, of.kind.table ? ", table" : "",
                of.kind.minimums ? ", minimums" : "", of.kind.block_log2, of.kind.part_log2, of.rows, of.columns,
                of.outputs[0], of.outputs.size(), static_cast<int>(of.prologue), of.group,
                static_cast<int>(of.epilogue));
  return text;
}

double difference(Address got, Address want, int rows, int width) {
  double worst = 0;
  for (int r = 0; r < rows; ++r) {
    const float* const a = host_row(got, width, r);
    const float* const b = host_row(want, width, r);
    for (int i = 0; i < width; ++i) {
      const double off = std::fabs(double{a[i]} - double{b[i]}) / (1.0 + std::fabs(double{b[i]}));
      worst = std::isnan(off) ? std::numeric_limits<double>::infinity() : std::max(worst, off);
    }
    const bool zeros = std::all_of(a + width, a + pitch_of(width), [](float value) { return value == 0.0f; });
    if (!zeros) worst = std::numeric_limits<double>::infinity();
  }
  return worst;
}

bool same_bits(const Row& one, const Row& other) {
  return one.size() == other.size() && std::memcmp(one.data(), other.data(), one.size() * sizeof(float)) == 0;
}

bool same_bits(const std::vector<Row>& some, const std::vector<Row>& others) {
  return std::equal(some.begin(), some.end(), others.begin(), others.end(),
                    [](const Row& one, const Row& other) { return same_bits(one, other); });
}

Product::Product(const Case& of) : desk_(5) {
  Instruction& in = instruction_;
  in.what = Do::kMultiply;
  pass_.rows = of.rows;
  in.x_width = of.columns;
  in.x = desk_.values(of.rows, of.columns);
  in.matrices = static_cast<int32_t>(of.outputs.size());
  for (size_t i = 0; i < of.outputs.size(); ++i) {
    const bool other = i > 0 && i <= of.others.size();
    in.matrix[i] = desk_.matrix(other ? of.others[i - 1] : of.kind, of.outputs[i], of.columns);
  }
  desk_.prologue(in, of.prologue, of.rows, of.group);
  in.op.gelu = of.gelu;
  in.epilogue = of.epilogue;
  if (of.epilogue == Epilogue::kAdd) in.z_width = of.outputs[0], in.z = desk_.values(of.rows, of.outputs[0]);
  outs_ = pairs(in) ? 1 : of.outputs.size();
  want_ = in;
  for (size_t i = 0; i < outs_; ++i) {
    in.outs[i] = desk_.out(of.rows, of.outputs[i]);
    want_.outs[i] = desk_.out(of.rows, of.outputs[i]);
  }
  reference(want_, pass_);
}

Instruction Product::from_row(int row) const {
  Instruction alone = instruction_;
  const auto move = [&](Address& of, int32_t width) {
    if (of != 0) of = reinterpret_cast<Address>(host_row(of, width, row));
  };
  move(alone.x, alone.x_width);
  move(alone.y, alone.y_width);
  move(alone.z, alone.z_width);
  for (size_t i = 0; i < outs_; ++i) move(alone.outs[i], alone.matrix[i].rows);
  return alone;
}

double Product::worst() const {
  double most = 0;
  for (size_t i = 0; i < outs_; ++i)
    most = std::max(most, difference(instruction_.outs[i], want_.outs[i], pass_.rows, instruction_.matrix[i].rows));
  return most;
}

std::vector<Row> Product::take() {
  std::vector<Row> rows(static_cast<size_t>(pass_.rows));
  for (size_t i = 0; i < outs_; ++i) {
    const int width = instruction_.matrix[i].rows;
    for (int r = 0; r < pass_.rows; ++r) {
      float* const from = host_row(instruction_.outs[i], width, r);
      Row& row = rows[static_cast<size_t>(r)];
      row.insert(row.end(), from, from + pitch_of(width));
      std::memset(from, 0xff, static_cast<size_t>(width) * sizeof(float));
    }
  }
  return rows;
}

}  // namespace baton::cuda::test

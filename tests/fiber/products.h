// Products at random, in memory of the host, and what the body of Do::kMultiply makes of them: what kernels are held
// to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "baton/base/random.h"
#include "baton/unit/cuda/instruction.h"

namespace baton::cuda::test {

// How a matrix is stored.
struct Kind {
  Form form = Form::kF32;
  int bits = 0, block_log2 = 5, part_log2 = 0;
  bool minimums = false, table = false;
  Form scale_form = Form::kF16;
  Packing packing = Packing::kOther;  // made by kind_of
};
Kind kind_of(Packing packing);

// Makes what instructions work on, and owns it. Reading or writing behind the end of anything, by 16 bytes or more,
// ends the process.
class Desk {
 public:
  explicit Desk(uint64_t seed) : random_(seed) {}

  unsigned char* raw(size_t bytes);  // each 0xff
  Address values(int rows, int width);
  Address out(int rows, int width);  // to be written: no numbers, and zeros behind the width
  Address vector(int width, float about);
  Matrix matrix(const Kind& kind, int rows, int columns);
  void prologue(Instruction& in, Prologue kind, int rows, int group);

 private:
  void codes(const Kind& kind, Matrix& matrix);
  void strip(const Kind& kind, const Matrix& of, unsigned char* to, int columns);
  void scales(Form form, unsigned char* to, size_t count, float about);

  Random random_;
  struct Unmap {
    size_t bytes;
    void operator()(unsigned char* memory) const;
  };
  std::vector<std::unique_ptr<unsigned char, Unmap>> held_;
};

struct Case {
  Kind kind;
  int rows = 1, columns = 64;
  std::vector<int> outputs = {16};  // of each matrix
  Prologue prologue = Prologue::kNone;
  int group = 0;
  Epilogue epilogue = Epilogue::kNone;
  Gelu gelu = Gelu::kErf;
  uint32_t blocks = 3;
  std::vector<Kind> others = {};  // of the matrices behind the first; none: as the first
};
std::string name_of(const Case& of);

// Of two registers the largest |got - want| / (1 + |want|); infinity where one is no number, or what lies behind the
// width is not zero.
double difference(Address got, Address want, int rows, int width);

// The bits of a row, of all outputs.
using Row = std::vector<float>;
bool same_bits(const Row& one, const Row& other);
bool same_bits(const std::vector<Row>& some, const std::vector<Row>& others);

class Product {
 public:
  explicit Product(const Case& of);

  const Instruction& instruction() const { return instruction_; }
  const Pass& pass() const { return pass_; }
  // The rows from `row` on alone.
  Instruction from_row(int row) const;
  // What differs most from the body.
  double worst() const;
  // What was written, which is then no number again.
  std::vector<Row> take();

 private:
  Desk desk_;
  Instruction instruction_;
  Pass pass_;
  size_t outs_;
  Instruction want_;
};

}  // namespace baton::cuda::test

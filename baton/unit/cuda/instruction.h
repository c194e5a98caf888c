// What a card is told to do: ops of a Program with the addresses they work on, as plain bytes that host and kernels
// read alike. Host code, kernels and the emulated card's reference bodies all include this page; no header of CUDA's
// does it.
//
// Registers of a Program are arrays [rows][pitch_of(width)] of f32, rows being the tokens of a pass; what lies behind
// `width` in a row is zero and stays zero. Matrices are padded to the same multiples with zeros, so that products need
// not look at the end of a row.
#pragma once

#include <cstdint>

#include "baton/model/program.h"

#ifdef __CUDACC__
#define BATON_BOTH __host__ __device__
#else
#define BATON_BOTH
#endif

namespace baton::cuda {

using Address = uint64_t;  // on the card; 0: none

inline constexpr int32_t kPadding = 64;      // values: rows of registers and matrices are multiples of it
inline constexpr int32_t kPageTokens = 64;   // of keys and values
inline constexpr int32_t kGroup = 32;        // codes that are packed together
inline constexpr int32_t kStrip = 1024;      // columns of codes that lie together with their scales
inline constexpr int32_t kRunsMax = 64;      // sequences of a pass
inline constexpr int32_t kStopsMax = 16;     // ids that end a sequence
inline constexpr int32_t kMatricesMax = 4;   // of one instruction
inline constexpr int32_t kDrawTopMax = 256;  // a top_k that kDraw takes
inline constexpr int32_t kWindowMax = 256;   // tokens that penalties look at
inline constexpr int32_t kThreads = 512;     // of a block, of all kernels but products of many rows
inline constexpr int32_t kWarps = kThreads / 32;

BATON_BOTH constexpr int32_t pitch_of(int32_t width) { return (width + kPadding - 1) / kPadding * kPadding; }

// What values are stored as. kCodes: integers of `bits` bits with scales.
enum class Form : uint8_t { kF32, kF16, kBF16, kCodes };

// How codes are packed, where kernels know it: packings.h.
enum class Packing : uint8_t { kOther, kQ8_0, kQ4_K, kQ5_K, kQ6_K, kMixed };

// A weight [rows, columns] on the card: values of a type one after the other, or codes with what scales them
// (quant/coding.h: value = unit * (d * s * v - m * n), v = table[code] or code - zero; no parts: s = n = 1).
//   dense  [rows][pitch]
//   codes  rows of row_bytes. A row is cut into strips of kStrip columns, strip_bytes apart; the last may be shorter. A
//          strip is, for its columns, one behind the other (strips.h):
//   planes of 8, 4, 2 or 1 bit that add up to `bits`, the largest first and of the lowest bits; a plane has 4 * its
//   bits
//          bytes for each group of 32 codes, group after group; that of 8 bits is two of 16 bytes. Then up to a
//          multiple of 16 bytes nothing. In words of 4 bytes, byte b of word w of a plane of
//              8 bits  code 4w + b with a sign: 128 less, and so is `zero`; w < 4, and in the second one 16 + 4w + b
//              4 bits  codes 4w + b (low half) and 16 + 4w + b (high half), w < 4
//              2 bits  codes 8k + 4w + b at bits 2k, k < 4, w < 2
//              1 bit   codes 4k + b at bit k, k < 8, w = 0
//   scales d, one for 2^block_log2 columns, in scale_form, then up to a multiple of 4 bytes nothing; where there are
//          minimums likewise m; then bytes s, one for 2^part_log2 columns, with minimums pairs s, n. s is signed where
//          there are no minimums. Then up to a multiple of 16 bytes nothing.
struct Matrix {
  Address values = 0;
  int32_t rows = 0, columns = 0;
  int32_t pitch = 0;        // values of a row, padding included
  int32_t row_bytes = 0;    // a multiple of 16
  int32_t strip_bytes = 0;  // of codes
  Form form = Form::kF32;
  Form scale_form = Form::kF32;
  uint8_t bits = 0;
  uint8_t block_log2 = 0;  // values that share d and m: 5 or more; 4 without minimums and parts
  uint8_t part_log2 = 0;   // values that share s and n: 4 or more; 0: there are no parts
  bool has_minimums = false;
  bool has_table = false;
  Packing packing = Packing::kOther;  // that all of these are of
  int16_t zero = 0;
  alignas(4) int8_t table[16] = {};
  float unit = 1;
};

// Where an op's slot lies in a sequence's memory: keys and values in its pages, [kv_heads][kPageTokens][row_bytes] at
// `offset` of each; the rest in its parts. Of a convolution there are `taps` columns, a ring: that of the token at
// position p is column p mod taps, so that a step overwrites none that it reads; those before the first are zero. The
// columns lie one after the other, channels values each.
struct Place {
  uint64_t offset = 0;
  int32_t row_bytes = 0;
  Form form = Form::kF32;
};

// A sequence's rows in a pass.
struct Run {
  Address parts = 0;
  Address pages = 0;      // a table of the addresses of its pages
  int32_t start = 0;      // position of its first row
  int32_t first_row = 0;  // in the pass
  int32_t rows = 0;
  int32_t decodes = 0;
};

// What penalties look at, and what they changed: a ring of the last ids, whose place for the next is drawn % window.
struct DrawWindow {
  int32_t drawn = 0;
  int32_t ids[kWindowMax] = {};
  float logits[kWindowMax] = {};  // of these ids, before kPenalise
};

// How the next token of a row is drawn: sample/sampler.h.
struct DrawRule {
  Address banned = 0;       // uint32, bit id % 32 of word id / 32: never drawn; 0: none are
  double scale = 0;         // sample/draw_weight.h, of the temperature; 0: the largest is drawn
  uint64_t min_weight = 0;  // of min_p
  float top_p = 1;
  int32_t top_k = 0;  // at most kDrawTopMax; 0: all
  float repeat = 1, presence = 0, frequency = 0;
  int32_t window = 0;  // tokens that penalties look at, at most kWindowMax; 0: none
};

// What changes from pass to pass, in the card's memory.
struct Pass {
  int32_t rows = 0, runs = 0, rows_out = 0;
  Address tokens = 0;      // int32 [rows]
  Address run_of_row = 0;  // int32 [rows]
  Address out_rows = 0;    // int32 [rows_out]: rows whose outputs are asked for
  Address drawn = 0;       // int32: where kArgmax and kDraw write, [steps][rows_out], at `step`
  Address rules = 0;       // DrawRule [rows_out]; 0: all draw the largest
  Address numbers = 0;     // uint64 [steps][rows_out]: what rules draw by
  Address windows = 0;     // DrawWindow [rows_out], of those with penalties
  int32_t step = 0;        // kAdvance counts it
  int32_t stop_count = 0;  // of each run, at most kStopsMax
  int32_t stopped = 0;     // kAdvance: one of the runs drew one of its stop ids, or none: the lists behind do nothing
  Address stops = 0;       // int32 [runs][kStopsMax], the first stop_count of each; -1: none
  Run run[kRunsMax];

  BATON_BOTH int32_t position(int32_t row, const Run& of) const { return of.start + row - of.first_row; }
};

enum class Do : uint8_t {
  kEmbed,       // op kEmbed
  kPrepare,     // out = prologue(x), of a product or an op kRmsNorm, kLayerNorm, kGatedNorm, kSigmoidGate
  kMultiply,    // outs[i] = matrix[i] prologue(x), then the epilogue: few rows, plain arithmetic
  kTile,        // the same of many rows on tensor cores, from an operand that kPrepare made; no prologue
  kSplitPairs,  // op kSplitPairs
  kRope,        // op kRope
  kHeads,       // `heads`: norms and rotation of queries and keys, keys and values appended
  kAppend,      // of op kAttend: y and z become keys and values
  kAttend,      // of op kAttend: the rest, of runs that decode; parts of long texts go to scratch
  kAttendJoin,  // of op kAttend: the parts become out; the instruction is kAttend's
  // kHeads and kAttend behind it, of one row: in lists of word_list.h, where all that it reads and writes are words,
  // but for parts. out: of kAttend; the rest as kHeads has it.
  kAttendRow,
  kAttendTile,  // as kAttend, of runs that do not decode
  kAttendAll,   // op kAttendAll
  kConv,        // op kCausalConv
  kDelta,       // op kDeltaRule
  // Both, of one row each run, or with scratch of prompts; x is the convolution's input. op: the kDeltaRule op with the
  // convolution's taps; slot the states, slot2 the ring; vectors[2] the taps.
  kConvDelta,
  kShortConv,   // op kShortConv
  kEach,        // ops of single values: kSwiGlu, kGeGlu, kGelu, kAdd, kScale, kBias, kPosition, kPositionScale
  kRoute,       // of op kExperts: which experts, and what they count for
  kExpertsIn,   // of op kExperts: gates and ups of the chosen
  kExpertsOut,  // of op kExperts: downs, summed
  kPick,        // out = the rows of x that out_rows names: before the output head
  kCap,         // out = cap tanh(x / cap), of the rows that are asked for
  kPenalise,    // x, of the rows whose rule says so
  kArgmax,      // drawn = the id of the largest of x's row, the lowest of equals; -1 when one is not finite
  // Behind both: drawn = the id that a row's rule gives; kUndecided (values.h): the host is to draw. x is again what it
  // was, and what was drawn is in the window.
  kDraw,
  // Runs that decode, one row each, all wanted: their next tokens are what was drawn, their positions one more, unless
  // one of them stops: then `stopped` is set and nothing moves.
  kAdvance,
};

// What happens to a row of x before it is multiplied.
enum class Prologue : uint8_t {
  kNone,
  kRms,    // op kRmsNorm with vectors[0]
  kLayer,  // op kLayerNorm with vectors[0] and vectors[1]
  kGated,  // op kGatedNorm with vectors[0] and y
  kGate,   // op kSigmoidGate with y
};
// What happens to the products of a row.
enum class Epilogue : uint8_t {
  kNone,    // outs[i] = product i
  kAdd,     // outs[0] = product 0 + z
  kSwiGlu,  // outs[0] = silu(product 0) * product 1
  kGeGlu,   // outs[0] = gelu(product 0) * product 1, by op.gelu
};

// kMultiply: how it is shared out (share_out in feed_layout.h). Outputs are the rows of all matrices one after the
// other, or pairs of a gate's and an up's: each block has `outputs`, the first `more` blocks one more. 2^slices_log2
// warps of a block, a team, share an output: each has every such span of it. A team has 2^each_log2 outputs at a time.
struct alignas(16) ProductShares {
  int32_t outputs = 0, more = 0;
  int32_t spans = 0;  // of a row of a matrix
  int32_t parts = 1;  // share_mma: blocks that share a unit's rows of x, at most
  uint8_t slices_log2 = 0, each_log2 = 0;
  uint8_t flags = 0;
  Form form = Form::kCodes;  // of all matrices, where kOneForm says so
  // A bundle of pieces, kBundle at most: as many spans of 2^bundle_log2 rows. Bytes in a slot from row to row and
  // from span to span: those of the matrix, where all matrices are stored alike.
  uint8_t bundle_log2 = 0;
  Packing packing = Packing::kOther;  // of all matrices; kMixed: each of one of the others
  int32_t row_stride = 0, span_stride = 0;

  enum Flag : uint8_t {
    kPairs = 1,
    kFours = 2,    // by_fours
    kTiles = 4,    // kTile rows of x at a time, where there is more than one
    kOneForm = 8,  // all matrices are stored as the first
  };
  BATON_BOTH constexpr bool has(Flag flag) const { return (flags & flag) != 0; }
};

// A register of one row as words: uint32 [pitch_of(width)], the bits of values, or kNoWord, which no value is, of one
// that has not come. There are two of each, and launches take turns: one has those of its turn, and takes what the
// launch before wrote out of the others (ListWork::words). What lies behind the width is not written.
inline constexpr uint32_t kNoWord = 0xffffffffu,
                          kNoNumberWord = 0x7fffffffu;  // the latter for a value that has these bits
enum Worded : uint8_t { kWordsX = 1, kWordsY = 2, kWordsZ = 4, kWordsOut = 8 };

struct Instruction {
  Op op;  // what it is of; of a product with a prologue or an epilogue: width, eps, gelu of these, too
  Do what = Do::kEmbed;
  Prologue prologue = Prologue::kNone;
  Epilogue epilogue = Epilogue::kNone;
  bool wanted_only = false;  // rows are those of kPick, rows_out of them
  bool to_bf16 = false;      // kPrepare: out is [rows][pitch] of bf16
  bool to_planes = false;    // kPrepare, of the product behind it in a list of mma_list.h: into its scratch
  bool next_groups = false;  // for a product that has groups (kernels/mma_rows.cuh)
  uint8_t worded = 0;        // of a list of word_list.h: which of its registers are words, a Worded for each
  int32_t matrices = 0;
  int32_t x_width = 0, y_width = 0, z_width = 0, out_width = 0, out2_width = 0;
  Address x = 0, y = 0, z = 0, out = 0, out2 = 0;
  Matrix matrix[kMatricesMax];
  Address outs[kMatricesMax] = {};  // of kMultiply and kTile, [rows][pitch_of(matrix[i].rows)]
  Address vectors[4] = {};          // f32: of op.weights, those that are vectors or taps
  Place slot, slot2;
  // kHeads: queries x, keys y, values z. vectors[0] scales queries, vectors[1] keys (0: no norm), vectors[2] are
  // factors of the rotation; `rope` the kRope op, rotary 0: none. Queries lie `x_stride` values apart: behind those of
  // a pair of query and gate, which go to out2, if there is one. out: queries. op: the kAttend op; its eps is the
  // norms'. Of this and of kRope vectors[3] are the rotation's frequencies (kernels.h), where they were made before.
  // kRope: vectors[0] are factors.
  Op rope;
  int32_t x_stride = 0;
  // kArgmax: none, and a block draws from a row; or uint64 [1 + kRunsMax], zero before the first launch, and all blocks
  // share each row. kAttend: f32 scratch for parts of long texts, [runs][heads][splits][head_dim + 2]; splits 1: none.
  // kDelta, kConvDelta: for chunks; 0: prompts, too, go token by token, of kConvDelta there are none. kTile: for
  // unpacked weights, or none. Bytes: mixers_geometry.h, tile_layout.h. kMultiply of mma_list.h: rows of x
  // (planes_bytes). kRoute, kExperts*: int32 ids and f32 shares, [rows][experts_used] each; f32 inner values
  // [rows][experts_used][pitch_of(inner)].
  Address scratch = 0, ids = 0, shares = 0, inner = 0;
  int32_t splits = 1;
  // kMultiply of mma_list.h: where the rows of outs[0] go once more, as a product behind it takes them (mma_layout.h),
  // and the f32 that multiply them there, of its kRms; or none.
  Address next = 0, next_scales = 0;
  ProductShares product;
  int32_t next_product = -1;      // in a list: the kMultiply behind it, or none (chain_products)
  uint64_t expert_bytes[3] = {};  // gates, ups, downs: from one expert to the next
};

// Its words are those that lie `bytes` behind the ones that it names.
BATON_BOTH constexpr void move_words(Instruction& in, uint64_t bytes) {
  if ((in.worded & kWordsX) != 0) in.x += bytes;
  if ((in.worded & kWordsY) != 0) in.y += bytes;
  if ((in.worded & kWordsZ) != 0) in.z += bytes;
  if ((in.worded & kWordsOut) == 0) return;
  if (in.what == Do::kMultiply) {
    for (Address& out : in.outs) out += out != 0 ? bytes : 0;
    return;
  }
  in.out += bytes;
  in.out2 += in.out2 != 0 ? bytes : 0;
  if (in.what == Do::kAttendRow || in.what == Do::kAttendJoin) in.scratch += in.scratch != 0 ? bytes : 0;
}

// How weights come to the blocks that multiply them: feed_layout.h.
struct FeedPlan {
  bool ahead = false;       // of the instructions that follow, too
  int32_t span = 0;         // columns of a piece
  uint32_t set = 0;         // pieces that a warp takes at a time; 0: no product
  uint32_t work_bytes = 0;  // before the pieces
  uint32_t slot_bytes = 0;  // of a bundle of pieces, a multiple of 16
  uint32_t slots_log2 = 0;  // of the block
};

// The argument of every kernel but those that run a list.
struct Work {
  Instruction instruction;
  Address pass = 0;
};

// How a matrix lies in memory, for copies of boxes of it to shared memory: CUtensorMap, which the driver makes.
struct alignas(64) TensorMap {
  uint64_t words[16] = {};
};

// The argument of the kernels of products of many rows. Those that copy boxes (TileLaunch) have maps of what they read,
// those with patches of `out`, where it is wanted.
struct TileWork : Work {
  int32_t rows = 0;
  TensorMap x, matrix[kMatricesMax], out;
};

// The argument of the kernel that runs a list of instructions in one launch, all blocks together.
struct ListWork {
  Address list = 0;  // Instruction [count]
  int32_t count = 0;
  int32_t first_product = -1;
  Address pass = 0;
  // uint32 [64], zero before the first launch: arrivals, launches that are over, and those of them that had words.
  Address barrier = 0;
  // Of a plain list, what its instructions have of words, and as many behind them, which turns are had in: bytes of
  // each, multiples of 256. All are kNoWord before the first launch.
  Address words = 0;
  uint64_t words_bytes = 0;
  FeedPlan feed;
  Address times = 0;   // uint64 [count]: when the first block had done each, in ns; 0: not noted
  bool plain = false;  // a pass of one row, and is_plain says yes to all, worded or not: baton_list_plain or ..._codes
  bool codes = false;  // some products are of codes
  bool together = false;  // baton_list_together: of mma_list.h
  Instruction alone;      // baton_list, where `list` is 0: all that there is, one kMultiply
};

}  // namespace baton::cuda

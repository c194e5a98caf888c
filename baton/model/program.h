// What a model computes, as a straight line of ops over named registers: built once from a ModelSpec by its
// architecture, read by every unit. A register holds one vector of `width` f32 values per token; ops run in order, for
// all tokens of a step. State slots are what ops keep between steps. Shapes are per token; weights are [out, in]
// row-major.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace baton {

using RegisterId = int32_t;  // index into Program::registers
using WeightId = int32_t;    // index into Model::weights, -1 when absent
using SlotId = int32_t;      // index into Program::slots, -1 when absent

enum class OpKind : uint8_t {
  kEmbed,       // out = W[token]
  kRmsNorm,     // out = x * rsqrt(mean(x^2) + eps) * W, over each group of `width` values of x (per head for q and k)
  kLinear,      // out = W x
  kSplitPairs,  // x = heads of [a: width | b: width] -> out = all a, out2 = all b (query and gate of gated attention)
  // out = x with the first `rotary` of each head of `width` rotated, pair by pair (RopePairing), in place allowed: pair
  // i (a, b) of the token at position p becomes m (a cos w - b sin w, b cos w + a sin w), w = p rope_theta^(-2 i /
  // rotary) / factors[i] (1 without factors), m = rope_magnitude (Su et al. 2021, arXiv:2104.09864).
  kRope,
  kAttend,       // append k, v to the slots; out = softmax(scale q k^T, causal) v; head h reads kv head h / (heads /
                 // kv_heads). What is beyond a window stays in the slots
  kSigmoidGate,  // out = x * sigmoid(y); with a `width`, each y gates so many of x
  kCausalConv,   // out = silu(sum_j W[c, j] * x[t - taps + 1 + j, c]); the slot keeps the last taps - 1 columns of x
  kDeltaRule,    // gated delta rule; see DeltaRule below
  kGatedNorm,    // out = rmsnorm(x over each `width`) * W * silu(y): normalise first, gate afterwards
  kSwiGlu,       // out = silu(x) * y
  kAdd,          // out = x + y
  kBias,         // out = x + W, the same vector for every token, in place allowed
  kHead,         // logits = W x, output_width values, only for the tokens whose logits are asked for
  // Their numbers are in fingerprints: further ones come last.
  kLayerNorm,  // out = (x - m) * rsqrt(mean((x - m)^2) + eps) * W + b, m = mean(x), over each group of `width` values
  kPosition,   // out = x + W[position of the token], in place allowed
  kAttendAll,  // out = softmax(scale q k^T) v over all tokens of a sequence, later ones too (whole_sequence); keeps
               // nothing; heads as in kAttend. With a window a token at position p sees p - window to p + window. With
               // `alibi` alibi_slope(head) |p - q| is taken from the score of the token at q
  kGelu,       // out = x Phi(x), Phi exact or by tanh, in place allowed (Hendrycks and Gimpel, arXiv:1606.08415)
  kOutput,     // the row of outputs is x itself, output_width values: of models that give vectors, not logits
  kGeGlu,      // out = gelu(x) * y, gelu as in kGelu
  kScale,      // out = scale x, in place allowed
  kExperts,  // out = sum over the experts e that are chosen for x of p_e D_e (silu(G_e x) * U_e x), by ascending e; the
             // `experts_used` with the largest of l = R x, the first of equals; p by `routing`, which may put it
             // before the expert, and no number when one of l is none or infinite. out is not x
  // out2 = x y, out2 may be x; out = z sum_j W[c, j] out2[t - taps + 1 + j, c], out is none of the others; the slot
  // keeps the last taps - 1 columns of out2.
  kShortConv,
  // out = x (1 + scale log(1 + floor((p + ahead) / window))), p the token's position, in place allowed
  kPositionScale,
};
std::string_view to_string(OpKind kind);

// What an op does beside what its kind says. A unit has each or not (Caps::traits): without it the answer would be
// another one.
enum class OpTrait : uint8_t {
  kWindow,      // kAttend with a window: a token at position p sees positions above p - window and up to p
  kScoreCap,    // kAttend with a cap: scores s are cap tanh(s / cap) before the softmax
  kLogitCap,    // kHead with a cap: logits l are cap tanh(l / cap)
  kOneGate,     // kSigmoidGate with a width above 1
  kReach,       // kAttendAll with a window
  kAlibi,       // kAttendAll with `alibi`
  kChunk,       // kAttend with a chunk: a token at position p sees positions from floor(p / chunk) chunk up to p
  kGatedInput,  // kExperts with kSigmoidOfInput
  kAhead,       // kPositionScale with `ahead`
};
std::string_view to_string(OpTrait trait);  // "attend.window"
inline constexpr OpTrait kOpTraits[] = {OpTrait::kWindow,  OpTrait::kScoreCap,   OpTrait::kLogitCap,
                                        OpTrait::kOneGate, OpTrait::kReach,      OpTrait::kAlibi,
                                        OpTrait::kChunk,   OpTrait::kGatedInput, OpTrait::kAhead};

enum class RopePairing : uint8_t {
  kHalf,      // (i, i + rotary / 2): Hugging Face and MLX files, GGUF qwen35 ("NEOX")
  kAdjacent,  // (2i, 2i + 1): GGUF llama, whose q and k rows are permuted at conversion ("NORM")
};

// Which key head a value head reads when there are more value heads than key heads.
enum class HeadMap : uint8_t {
  kGrouped,  // h / (value_heads / key_heads): Hugging Face and MLX files
  kTiled,    // h mod key_heads: GGUF qwen35
};

enum class Gelu : uint8_t {
  kErf,   // x / 2 (1 + erf(x / sqrt 2))
  kTanh,  // x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
};

// What the results of chosen experts count for.
enum class Routing : uint8_t {
  kSoftmaxOfAll,     // p = softmax(l) over all experts
  kSoftmaxOfChosen,  // divided by the sum of the chosen: the softmax over these alone
  kSigmoidOfInput,   // p = sigmoid(l), and it is x that is multiplied: D_e (silu(G_e p_e x) * U_e p_e x)
};
std::string_view to_string(Routing routing);

// The weights of an op, each at the index that says what it is: op.weights[Op::kScale]. -1: none.
struct OpWeights : std::array<WeightId, 4> {
  constexpr OpWeights(WeightId first = -1, WeightId second = -1, WeightId third = -1, WeightId fourth = -1)
      : array{first, second, third, fourth} {}
};

// kDeltaRule: x = convolved [q: key_heads * key_dim | k: same | v: value_heads * value_dim], y = beta logits b
// [value_heads], z = decay input a [value_heads].
//   q, k <- l2norm (rsqrt(sum x^2 + eps)) per head, q *= key_dim^-1/2;  beta = sigmoid(b);  g = A * softplus(a + dt)
//   S <- exp(g) S;  e = v - S^T k;  S <- S + k (beta e)^T;  out = S^T q      (Yang et al., "Gated Delta Networks",
//   2024)
// The slot keeps S, [value_heads, key_dim, value_dim] f32. out: [value_heads * value_dim].
struct Op {
  enum : size_t {
    kMatrix = 0,       // kEmbed, kLinear, kHead: [out, in]; kPosition: [positions, width of out]
    kScale = 0,        // kRmsNorm, kLayerNorm, kGatedNorm: [width]
    kShift = 1,        // kLayerNorm: [width]
    kOffset = 0,       // kBias: [width of out]
    kTaps = 0,         // kCausalConv, kShortConv: [channels, taps]
    kDecayRate = 0,    // kDeltaRule: [value_heads], A, negative: -exp(A_log)
    kTimeBias = 1,     // kDeltaRule: [value_heads], dt
    kRopeFactors = 2,  // kRope: [rotary / 2], divisors of the frequencies (scaled positions, rope.h), or none
    kRouter = 0,       // kExperts: R, [experts, width of x]
    // kExperts: of expert 0; those of the others have the ids behind it. G and U [inner, width of x], D [width of out,
    // inner]
    kGates = 1,
    kUps = 2,
    kDowns = 3,
  };
  OpKind kind;
  int32_t layer = -1;  // -1 outside the layers
  RegisterId out = -1, out2 = -1;
  RegisterId x = -1, y = -1, z = -1;
  OpWeights weights = {};
  SlotId slot = -1, slot2 = -1;  // kAttend: keys, values

  int32_t width = 0;                   // norms: group; kSplitPairs, kRope, kAttend, kAttendAll: head_dim; kSigmoidGate
  int32_t heads = 0;                   // kSplitPairs, kRope, kAttend, kAttendAll: heads of x; kDeltaRule: value_heads
  int32_t kv_heads = 0;                // kAttend, kAttendAll; kDeltaRule: key_heads
  int32_t rotary = 0;                  // kRope: rotated values per head, even
  int32_t key_dim = 0, value_dim = 0;  // kDeltaRule
  int32_t taps = 0;                    // kCausalConv, kShortConv: kernel length, the current token included
  float eps = 0;                       // norms; kDeltaRule: 1e-6 of the l2 norm
  float scale = 0;                     // kAttend, kAttendAll, kScale, kPositionScale
  float rope_theta = 0;
  RopePairing pairing = RopePairing::kHalf;
  HeadMap head_map = HeadMap::kGrouped;
  float rope_magnitude = 1;  // kRope: the turned values are that much longer (yarn, longrope)
  Gelu gelu = Gelu::kErf;
  // kAttend: tokens seen, the token's own included; kAttendAll: to each side; 0: all. kPositionScale: tokens of one
  // factor.
  int32_t window = 0;
  float cap = 0;                          // kAttend, kHead; 0: none
  int32_t experts = 0, experts_used = 0;  // kExperts: of a layer, and for a token
  Routing routing = Routing::kSoftmaxOfAll;
  float alibi = 0;    // kAttendAll: the exponent that slopes end at, see alibi_slope; 0: none
  int32_t ahead = 0;  // kPositionScale
  int32_t chunk = 0;  // kAttend: tokens that see each other, the earlier the later not; 0: all. Not with a window

  bool has(OpTrait trait) const;
};
// Of an op, in the order of OpTrait.
std::vector<OpTrait> traits_of(const Op& op);
// What a step of distance takes from the scores of a head: 2^(-alibi (head + 1) / n) for the first n heads, n the
// largest power of two among `heads`, and 2^(-alibi (head - n + 1/2) / n) for the rest (Press et al.,
// arXiv:2108.12409).
float alibi_slope(const Op& op, int32_t head);

struct Register {
  std::string name;  // for printing
  int32_t width;     // values per token
};

enum class SlotKind : uint8_t {
  kKeys,       // [kv_heads, tokens, head_dim], after RoPE
  kValues,     // [kv_heads, tokens, head_dim]
  kConv,       // [columns, channels]: the last taps - 1 inputs of the convolution, oldest first; zero before the start
  kRecurrent,  // [value_heads, key_dim, value_dim]
};
std::string_view to_string(SlotKind kind);

// What an op keeps between steps, in canonical dims. `tokens` grows; the other dims are fixed.
struct Slot {
  SlotKind kind;
  int32_t layer;
  int32_t heads = 0;    // kKeys, kValues: kv_heads; kRecurrent: value_heads
  int32_t rows = 0;     // kConv: columns; kRecurrent: key_dim; 0 for keys and values (tokens)
  int32_t columns = 0;  // kKeys, kValues: head_dim; kConv: channels; kRecurrent: value_dim
};

struct Program {
  std::vector<Register> registers;
  std::vector<Slot> slots;
  std::vector<Op> ops;  // the first is kEmbed, the last kHead or kOutput
  int32_t vocab = 0;    // token ids are below it
  int32_t hidden = 0;
  int32_t output_width = 0;     // values of a row of outputs: what kHead or kOutput makes of a token
  bool whole_sequence = false;  // tokens see later ones: a sequence goes through in one step, never in pieces
};

// One line per op, registers and shapes by name: for `inspect` and error messages.
std::string to_text(const Program& program);

}  // namespace baton

// A compute unit of your own, whole: custom_unit MODEL. `toy` has plain loops for the ops of a Program and states in an
// order of its own. Its outputs are compared with `ref`; then it answers together with `cpu`, each prefilling for the
// other. To make yours: other arithmetic in ToyExecutor::apply, another home for the numbers of ToyState.
#include <baton/baton.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>

namespace baton::toy {
namespace {

using Floats = std::vector<float>;

// Keys and values lie token by token here, [tokens, heads, width]; outside, a state is its rows in canonical order. All
// that tokens_max asks for is there from the beginning: a state that does not fit is refused before a step.
class ToyState final : public SequenceState {
 public:
  ToyState(const StateShape& shape, uint64_t tokens_max, LiveStates& live)
      : SequenceState(tokens_max, live), shape_(shape) {
    for (const Segment& segment : shape.segments) {
      const Dims dims = dims_at(segment, tokens_max);
      parts_.emplace_back(dims[0] * dims[1] * dims[2]);
    }
  }
  const StateShape& shape() const override { return shape_; }
  uint64_t bytes() const override {
    uint64_t sum = 0;
    for (const Floats& part : parts_) sum += part.size() * sizeof(float);
    return sum;
  }
  float* part(SlotId slot) { return parts_[static_cast<size_t>(slot)].data(); }
  void advance() { set_position(position() + 1); }

 private:
  // Where a row of the canonical array lies.
  size_t place(size_t segment, const Dims& dims, uint64_t row) const {
    if (!has_tokens_dim(shape_.segments[segment].kind)) return row * dims[2];
    return (row % dims[1] * dims[0] + row / dims[1]) * dims[2];
  }
  Status read_rows(size_t segment, const Dims& dims, RowRange rows, std::byte* out) const override {
    const size_t bytes = dims[2] * sizeof(float);
    for (uint64_t i = 0; i < rows.count; ++i)
      std::memcpy(out + i * bytes, &parts_[segment][place(segment, dims, rows.first + i)], bytes);
    return {};
  }
  Status write_rows(size_t segment, const Dims& dims, RowRange rows, const std::byte* in) override {
    const size_t bytes = dims[2] * sizeof(float);
    for (uint64_t i = 0; i < rows.count; ++i)
      std::memcpy(&parts_[segment][place(segment, dims, rows.first + i)], in + i * bytes, bytes);
    return {};
  }

  const StateShape& shape_;
  std::vector<Floats> parts_;  // by slot
};

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }
float silu(float x) { return x * sigmoid(x); }
float dot(const float* a, const float* b, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// out = x / sqrt(mean or sum of squares + eps).
void normalise(const float* x, float* out, int64_t width, float divisor, float eps) {
  const float scale = 1 / std::sqrt(dot(x, x, width) / divisor + eps);
  for (int64_t i = 0; i < width; ++i) out[i] = x[i] * scale;
}

void rope(const Op& op, const float* factors, int64_t position, float* head) {
  const int64_t half = op.rotary / 2;
  for (int64_t i = 0; i < half; ++i) {
    float angle = static_cast<float>(position) * std::pow(op.rope_theta, -2.0f * static_cast<float>(i) / op.rotary);
    if (factors != nullptr) angle /= factors[i];
    float& a = op.pairing == RopePairing::kHalf ? head[i] : head[2 * i];
    float& b = op.pairing == RopePairing::kHalf ? head[i + half] : head[2 * i + 1];
    const float c = op.rope_magnitude * std::cos(angle), s = op.rope_magnitude * std::sin(angle), was = a;
    a = was * c - b * s;
    b = b * c + was * s;
  }
}

// softmax(scale q k^T) v over `tokens` keys and values that lie `stride` values apart.
void attend(const float* q, const float* keys, const float* values, int64_t tokens, int64_t stride, const Op& op,
            float* out) {
  Floats weights(static_cast<size_t>(tokens));
  for (int64_t t = 0; t < tokens; ++t) weights[static_cast<size_t>(t)] = op.scale * dot(q, keys + t * stride, op.width);
  const float highest = *std::max_element(weights.begin(), weights.end());
  float sum = 0;
  for (float& weight : weights) sum += weight = std::exp(weight - highest);
  std::fill_n(out, op.width, 0.0f);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < op.width; ++i) out[i] += weights[static_cast<size_t>(t)] / sum * values[t * stride + i];
  }
}

// A step of the gated delta rule of one head, S [key_dim, value_dim]: program.h.
void delta(float* state, const Floats& q, const Floats& k, const float* v, float decay, float beta, const Op& op,
           float* out) {
  std::fill_n(out, op.value_dim, 0.0f);
  for (int64_t j = 0; j < op.value_dim; ++j) {
    float error = v[j];
    for (int64_t i = 0; i < op.key_dim; ++i)
      error -= (state[i * op.value_dim + j] *= decay) * k[static_cast<size_t>(i)];
    for (int64_t i = 0; i < op.key_dim; ++i)
      out[j] += (state[i * op.value_dim + j] += k[static_cast<size_t>(i)] * beta * error) * q[static_cast<size_t>(i)];
  }
}

class ToyExecutor final : public Executor {
 public:
  explicit ToyExecutor(std::shared_ptr<const Model> model)
      : model_(std::move(model)), shape_(state_shape(model_->program, DType::kF32)) {
    for (const Weight& weight : model_->weights) {
      Floats& values = weights_.emplace_back(static_cast<size_t>(weight.rows * weight.columns));
      const size_t row_bytes = weight.bytes / static_cast<size_t>(weight.rows),
                   columns = static_cast<size_t>(weight.columns);
      for (size_t r = 0; r < static_cast<size_t>(weight.rows); ++r)
        format_of(weight.dtype).decode(weight.data + r * row_bytes, values.data() + r * columns, columns);
    }
    for (const Register& each : model_->program.registers) registers_.emplace_back(static_cast<size_t>(each.width));
  }
  const Model& model() const override { return *model_; }
  const StateShape& shape() const override { return shape_; }
  Result<std::unique_ptr<SequenceState>> new_state(uint64_t tokens_max) override {
    const uint64_t bytes = state_bytes(tokens_max);  // all of them, or UINT64_MAX
    if (bytes <= PTRDIFF_MAX) {
      try {
        return std::make_unique<ToyState>(shape_, tokens_max, live_);
      } catch (const std::bad_alloc&) {  // falls through
      }
    }
    return fail(Code::kOutOfMemory, "toy: no memory for a state of " + std::to_string(tokens_max) + " tokens (" +
                                        std::to_string(bytes >> 20) + " MiB); use a smaller context");
  }
  Placement placement() const override { return {.ran = "toy", .arithmetic = "loops of an example", .threads = 1}; }
  std::string arithmetic() const override { return arithmetic_name("toy/f32"); }

  // Token by token: nothing depends on how a prompt is cut or on who shares the step.
  Status step(std::span<const Seat> seats, std::span<float> out, const StepContext& context) override {
    BATON_OK(check_seats(*model_, seats, out));
    for (const Seat& seat : seats) {
      auto& state = static_cast<ToyState&>(*seat.state);
      for (size_t i = 0; i < seat.tokens.size(); ++i) {
        BATON_OK(context.check());
        const bool wanted = i + seat.rows_out >= seat.tokens.size();
        for (const Op& op : model_->program.ops) apply(op, state, seat.tokens[i], wanted ? out.data() : nullptr);
        if (wanted) out = out.subspan(static_cast<size_t>(model_->program.output_width));
        state.advance();
      }
    }
    return {};
  }

 private:
  const float* weight(const Op& op, size_t which) const {
    const WeightId id = op.weights[which];
    return id < 0 ? nullptr : weights_[static_cast<size_t>(id)].data();
  }
  int64_t width(RegisterId id) const { return model_->program.registers[static_cast<size_t>(id)].width; }
  float* at(RegisterId id) { return id < 0 ? nullptr : registers_[static_cast<size_t>(id)].data(); }

  void multiply(const Op& op, float* to) {
    const int64_t columns = width(op.x), rows = model_->weights[static_cast<size_t>(op.weights[Op::kMatrix])].rows;
    for (int64_t r = 0; r < rows; ++r) to[r] = dot(weight(op, Op::kMatrix) + r * columns, at(op.x), columns);
  }

  void apply(const Op& op, ToyState& state, int32_t token, float* outputs) {
    const float *x = at(op.x), *y = at(op.y);
    float* out = at(op.out);
    const int64_t position = static_cast<int64_t>(state.position());
    switch (op.kind) {
      case OpKind::kEmbed:
        std::copy_n(weight(op, Op::kMatrix) + token * width(op.out), width(op.out), out);
        return;
      case OpKind::kLinear:
        return multiply(op, out);
      case OpKind::kHead:
        if (outputs != nullptr) multiply(op, outputs);
        return;
      case OpKind::kRmsNorm:
      case OpKind::kGatedNorm:
        for (int64_t i = 0; i < width(op.x); i += op.width)
          normalise(x + i, out + i, op.width, static_cast<float>(op.width), op.eps);
        for (int64_t i = 0; i < width(op.x); ++i)
          out[i] *= weight(op, Op::kScale)[i % op.width] * (op.kind == OpKind::kGatedNorm ? silu(y[i]) : 1);
        return;
      case OpKind::kSplitPairs:
        for (int64_t i = 0; i < width(op.x); ++i) {
          const int64_t head = i / (2 * op.width), within = i % (2 * op.width);
          (within < op.width ? out : at(op.out2))[head * op.width + within % op.width] = x[i];
        }
        return;
      case OpKind::kRope:
        if (out != x) std::copy_n(x, width(op.x), out);
        for (int64_t head = 0; head < op.heads; ++head)
          rope(op, weight(op, Op::kRopeFactors), position, out + head * op.width);
        return;
      case OpKind::kAttend: {
        const int64_t stride = int64_t{op.kv_heads} * op.width;
        std::copy_n(y, stride, state.part(op.slot) + position * stride);
        std::copy_n(at(op.z), stride, state.part(op.slot2) + position * stride);
        for (int64_t head = 0; head < op.heads; ++head) {
          const int64_t from = head / (op.heads / op.kv_heads) * op.width;
          attend(x + head * op.width, state.part(op.slot) + from, state.part(op.slot2) + from, position + 1, stride, op,
                 out + head * op.width);
        }
        return;
      }
      case OpKind::kCausalConv: {
        const int64_t channels = width(op.x), past = op.taps - 1;
        float* columns = state.part(op.slot);
        for (int64_t c = 0; c < channels; ++c) {
          const float* taps = weight(op, Op::kTaps) + c * op.taps;
          float sum = taps[past] * x[c];
          for (int64_t j = 0; j < past; ++j) sum += taps[j] * columns[j * channels + c];
          out[c] = silu(sum);
        }
        std::copy(columns + channels, columns + past * channels, columns);
        std::copy_n(x, channels, columns + (past - 1) * channels);
        return;
      }
      case OpKind::kDeltaRule:
        return delta_heads(op, state);
      case OpKind::kSigmoidGate:
      case OpKind::kSwiGlu:
      case OpKind::kAdd:
        for (int64_t i = 0; i < width(op.out); ++i)
          out[i] = op.kind == OpKind::kAdd      ? x[i] + y[i]
                   : op.kind == OpKind::kSwiGlu ? silu(x[i]) * y[i]
                                                : x[i] * sigmoid(y[i]);
        return;
      default:
        BATON_CHECK(false);  // load() refused a program with an op that is not in ToyUnit's list
    }
  }

  void delta_heads(const Op& op, ToyState& state) {
    const int64_t keys = int64_t{op.kv_heads} * op.key_dim;
    const float* x = at(op.x);
    Floats q(static_cast<size_t>(op.key_dim)), k = q;
    for (int64_t head = 0; head < op.heads; ++head) {
      const int64_t from = op.head_map == HeadMap::kGrouped ? head / (op.heads / op.kv_heads) : head % op.kv_heads;
      normalise(x + from * op.key_dim, q.data(), op.key_dim, 1, op.eps);
      normalise(x + keys + from * op.key_dim, k.data(), op.key_dim, 1, op.eps);
      for (float& value : q) value /= std::sqrt(static_cast<float>(op.key_dim));
      const float a = at(op.z)[head] + weight(op, Op::kTimeBias)[head];
      const float decay = std::exp(weight(op, Op::kDecayRate)[head] * (a > 20 ? a : std::log1p(std::exp(a))));
      delta(state.part(op.slot) + head * op.key_dim * op.value_dim, q, k, x + 2 * keys + head * op.value_dim, decay,
            sigmoid(at(op.y)[head]), op, at(op.out) + head * op.value_dim);
    }
  }

  const std::shared_ptr<const Model> model_;
  const StateShape shape_;
  std::vector<Floats> weights_, registers_;  // decoded; of the token under way
};

class ToyUnit final : public Unit {
 public:
  ToyUnit() {
    caps_.ops = {OpKind::kEmbed,  OpKind::kRmsNorm,    OpKind::kLinear,    OpKind::kSplitPairs, OpKind::kRope,
                 OpKind::kAttend, OpKind::kCausalConv, OpKind::kDeltaRule, OpKind::kGatedNorm,  OpKind::kSigmoidGate,
                 OpKind::kSwiGlu, OpKind::kAdd,        OpKind::kHead};  // not kBias: such a model is refused
    caps_.prefill_tokens_preferred = 8;
    caps_.decode_seats_max = 4;
    caps_.logit_tolerances = equal_tolerances(2e-3f);
  }
  std::string_view name() const override { return "toy"; }
  const Caps& caps() const override { return caps_; }

 private:
  Result<std::unique_ptr<Executor>> make_executor(std::shared_ptr<const Model> model, uint32_t) override {
    return std::make_unique<ToyExecutor>(std::move(model));
  }
  Caps caps_;
};

Result<std::unique_ptr<Unit>> create(const UnitOptions&) { return std::make_unique<ToyUnit>(); }

// The largest difference between its outputs and `ref`'s over a prompt and a token that follows: kInternal above what
// it promises.
Status compare(const std::shared_ptr<const Model>& model, std::span<const int32_t> tokens) {
  BATON_TRY(const auto ref, create_unit("ref"));
  ToyUnit toy;
  Floats rows[2];
  for (Unit* unit : {static_cast<Unit*>(&toy), ref.get()}) {
    BATON_TRY(const auto executor, unit->load(model, 1));
    BATON_TRY(const auto state, executor->new_state(tokens.size() + 1));
    const auto width = static_cast<size_t>(model->program.output_width);
    Floats& all = rows[unit == &toy ? 0 : 1];
    all.resize((tokens.size() + 1) * width);
    BATON_OK(executor->prefill(*state, tokens, std::span(all).first(tokens.size() * width)));
    BATON_OK(executor->decode(*state, tokens[0], std::span(all).last(width)));
  }
  float worst = 0;
  for (size_t i = 0; i < rows[0].size(); ++i) worst = std::max(worst, std::abs(rows[0][i] - rows[1][i]));
  const float allowed = toy.caps().logit_tolerance(DType::kF32);
  std::printf("largest difference to ref: %g of %g\n", worst, allowed);
  if (!(worst <= allowed)) return fail(Code::kInternal, "toy computes something else than ref");
  return {};
}

Status run(const char* path) {
  const UnitEntry toy{"toy", create, nullptr};
  RuntimeOptions options;
  options.model = path;
  options.units = {"toy", "cpu"};
  options.own_units = {&toy};
  BATON_TRY(const auto runtime, Runtime::open(options));
  BATON_TRY(const auto tokens, runtime->encode("The definition of a bridge is", true, TextPlace::kStart));
  BATON_OK(compare(runtime->text().model, tokens));
  Program biased = runtime->model().program;
  biased.ops.push_back({.kind = OpKind::kBias});
  const Status refused = check_program("toy", ToyUnit().caps(), biased);
  std::printf("%s\n", refused ? "toy takes what it cannot run" : refused.error().message.c_str());
  for (const auto& [prefill, decode] : std::map<std::string, std::string>{{"toy", "cpu"}, {"cpu", "toy"}}) {
    CompletionRequest request{runtime->make_request(tokens), {}};
    request.request.prefill_unit = prefill;
    request.request.decode_unit = decode;
    request.request.max_new_tokens = 20;
    BATON_TRY(const Completion answer, runtime->complete(std::move(request), {}, {}));
    const RequestStats& stats = answer.stats;
    std::printf("%s\nprefill: %s, decode: %s, bridge: %s, %llu bytes%s\n", answer.text.c_str(),
                stats.prefill.ran.c_str(), stats.decode.ran.c_str(), to_string(stats.bridge.kind).data(),
                static_cast<unsigned long long>(stats.bridge.bytes), stats.fallback.c_str());
  }
  return {};
}

}  // namespace

int main_of(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: custom_unit MODEL\n"), 2;
  const Status status = run(argv[1]);
  if (!status) std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return status ? 0 : 1;
}

}  // namespace baton::toy

int main(int argc, char** argv) { return baton::toy::main_of(argc, argv); }

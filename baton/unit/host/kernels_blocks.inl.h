// How each integer packing's blocks become bytes and scales: BlockOf<L, packing>. Included as kernels_loops.inl.h is,
// after it and before kernels_int8.inl.h, which multiplies them.
//
// Blocks of 32 values of 16 rows. Two kinds of values: biased (v = q + 128, sum corrected by the activations' bias) and
// plain (v = q, 0 <= q < 64, which suits every instruction set's product of unsigned by signed bytes). Either may have
// minimums, which multiply the sum of the activations. kScales, kMinimums: how many per block.

// Codes of 2 to 8 bits; layouts in pack.h.
template <class L, int Bits>
struct Codes {
  static constexpr int kBytes = 64 * Bits;
  static constexpr bool kStreamed = true;
  const unsigned char* values;
  // As many lines as the block has, 2 KiB ahead: the next panel lies behind this one.
  BATON_INLINE void prefetch() const {
    unroll<Bits>([&](auto i) BATON_LAMBDA { __builtin_prefetch(values + 2048 + 64 * i.value); });
  }
  template <int I>
  BATON_INLINE typename L::B quant() const {
    if constexpr (Bits == 8) return L::load_bytes(values + 64 * I);
    if constexpr (Bits < 4) {
      const typename L::B low = L::template bit_pairs<I % 4>(L::load_bytes(values + 64 * (I / 4)));
      if constexpr (Bits == 3) return L::template with_bit2<I>(low, L::load_bytes(values + 128));
      return low;
    }
    const typename L::B raw = L::load_bytes(values + 64 * (I % 4));
    const typename L::B low = I < 4 ? L::low_nibbles(raw) : L::high_nibbles(raw);
    if constexpr (Bits == 5) return L::template with_bit4<I>(low, L::load_bytes(values + 256));
    if constexpr (Bits == 6) return L::template with_bits45<I % 4>(low, L::load_bytes(values + 256 + 64 * (I / 4)));
    return low;
  }
};

// The walk over a panel's groups: scales, then blocks of codes.
template <class L, Packing P>
struct Grouped : Codes<L, group_layout(P).bits> {
  const unsigned char* scales;  // of the group
  int64_t at = 0;               // of the block in the group
  BATON_INLINE void open(const Matrix&, const unsigned char* panel) { enter(panel); }
  BATON_INLINE void next(int64_t b) {
    this->values += this->kBytes;
    at = (b + 1) % group_layout(P).blocks;
    if (at == 0) enter(this->values);
  }
  BATON_INLINE void enter(const unsigned char* group) {
    scales = group;
    this->values = group + group_layout(P).scale_bytes;
  }
};

// Signed codes stored with a bias: `Offset` makes them q + 128.
template <class L, Packing P, int Offset>
struct Biased : Grouped<L, P> {
  static constexpr bool kPlain = false;
  static constexpr int kScales = 1, kMinimums = 0;
  template <int I>
  BATON_INLINE typename L::B value() const {
    const typename L::B codes = this->template quant<I>();
    if constexpr (Offset == 0) return codes;
    return L::add_bytes(codes, Offset);
  }
};

template <class L, Packing P>
struct Plain : Grouped<L, P> {
  static constexpr bool kPlain = true;
  static constexpr int kScales = 1, kMinimums = 1;
  template <int I>
  BATON_INLINE typename L::B value() const {
    return this->template quant<I>();
  }
};

// What the 4-bit codes of a format mean, plus 128.
struct Iq4Table {
  static constexpr unsigned char kValues[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                                129, 141, 153, 166, 181, 197, 217, 241};
};
struct Fp4Table {  // twice the value
  static constexpr unsigned char kValues[16] = {128, 129, 130, 131, 132, 134, 136, 140,
                                                128, 127, 126, 125, 124, 122, 120, 116};
};

template <class L, Packing P, class Table>
struct LookedUp : Grouped<L, P> {
  static constexpr bool kPlain = false;
  static constexpr int kScales = 1, kMinimums = 0;
  template <int I>
  BATON_INLINE typename L::B value() const {
    return L::look_up(this->template quant<I>(), Table::kValues);
  }
};

// Scales of one f16 per block.
template <class L, class Base>
struct F16Scales : Base {
  template <int I>
  BATON_INLINE typename L::F scale() const {
    return L::load_f16(this->scales + 32 * this->at);
  }
};

// Q4_1 and Q5_1.
template <class L, Packing P>
struct WithMinimum : Plain<L, P> {
  template <int I>
  BATON_INLINE typename L::F scale() const {
    return L::load_f16(this->scales);
  }
  template <int I>
  BATON_INLINE typename L::F minimum() const {
    return L::load_f16(this->scales + 32);
  }
};

// Q4_K and Q5_K.
template <class L, Packing P>
struct Super : Plain<L, P> {
  template <int I>
  BATON_INLINE typename L::F scale() const {
    return L::mul(L::load_f16(this->scales), L::load_u8(this->scales + 64 + 16 * this->at));
  }
  template <int I>
  BATON_INLINE typename L::F minimum() const {
    return L::sub(L::zero(), L::mul(L::load_f16(this->scales + 32), L::load_u8(this->scales + 192 + 16 * this->at)));
  }
};

// Q3_K and Q6_K.
template <class L, Packing P, int Offset>
struct Halves : Biased<L, P, Offset> {
  static constexpr int kScales = 2;
  template <int I>
  BATON_INLINE typename L::F scale() const {
    return L::mul(L::load_f16(this->scales), L::load_i8(this->scales + 32 + 32 * this->at + 16 * I));
  }
};

// MLX's affine formats. Codes of 8 bits are biased, so their minimum is m + 128 d.
template <class L, Packing P>
struct Affine : Codes<L, group_layout(P).bits> {
  static constexpr bool kPlain = group_layout(P).bits < 8;
  static constexpr int kScales = 1, kMinimums = 1;
  const float* scales;
  int64_t left, group_blocks;
  BATON_INLINE void open(const Matrix& w, const unsigned char* panel) {
    group_blocks = w.group / kBlock;
    enter(panel);
  }
  BATON_INLINE void next(int64_t) {
    this->values += this->kBytes;
    if (--left == 0) enter(this->values);
  }
  BATON_INLINE void enter(const unsigned char* group) {
    left = group_blocks;
    scales = reinterpret_cast<const float*>(group);
    this->values = group + group_layout(P).scale_bytes;
  }
  template <int I>
  BATON_INLINE typename L::B value() const {
    return this->template quant<I>();
  }
  template <int I>
  BATON_INLINE typename L::F scale() const {
    return L::load(scales);
  }
  template <int I>
  BATON_INLINE typename L::F minimum() const {
    return L::load(scales + 16);
  }
};

template <class L, Packing P>
struct BlockOf : Affine<L, P> {};

template <class L>
struct BlockOf<L, Packing::kQ8_0> : F16Scales<L, Biased<L, Packing::kQ8_0, 0>> {};
template <class L>
struct BlockOf<L, Packing::kQ4_0> : F16Scales<L, Biased<L, Packing::kQ4_0, 128 - 8>> {};
template <class L>
struct BlockOf<L, Packing::kQ5_0> : F16Scales<L, Biased<L, Packing::kQ5_0, 128 - 16>> {};
template <class L>
struct BlockOf<L, Packing::kIQ4_NL> : F16Scales<L, LookedUp<L, Packing::kIQ4_NL, Iq4Table>> {};
template <class L>
struct BlockOf<L, Packing::kQ4_1> : WithMinimum<L, Packing::kQ4_1> {};
template <class L>
struct BlockOf<L, Packing::kQ5_1> : WithMinimum<L, Packing::kQ5_1> {};
template <class L>
struct BlockOf<L, Packing::kQ4_K> : Super<L, Packing::kQ4_K> {};
template <class L>
struct BlockOf<L, Packing::kQ5_K> : Super<L, Packing::kQ5_K> {};
template <class L>
struct BlockOf<L, Packing::kQ6_K> : Halves<L, Packing::kQ6_K, 128 - 32> {};
template <class L>
struct BlockOf<L, Packing::kQ3_K> : Halves<L, Packing::kQ3_K, 128 - 4> {};

template <class L>
struct BlockOf<L, Packing::kQ2_K> : Plain<L, Packing::kQ2_K> {
  static constexpr int kScales = 2, kMinimums = 2;
  template <int I>
  BATON_INLINE typename L::F scale() const {
    return L::mul(L::load_f16(this->scales), L::load_low_nibbles(this->scales + 64 + 32 * this->at + 16 * I));
  }
  template <int I>
  BATON_INLINE typename L::F minimum() const {
    const typename L::F nibbles = L::load_high_nibbles(this->scales + 64 + 32 * this->at + 16 * I);
    return L::sub(L::zero(), L::mul(L::load_f16(this->scales + 32), nibbles));
  }
};

template <class L>
struct BlockOf<L, Packing::kIQ4_XS> : LookedUp<L, Packing::kIQ4_XS, Iq4Table> {
  template <int I>
  BATON_INLINE typename L::F scale() const {
    return L::mul(L::load_f16(this->scales), L::load_i8(this->scales + 32 + 16 * this->at));
  }
};

// A scale of 2^(e - 128).
template <class L>
struct BlockOf<L, Packing::kMXFP4> : LookedUp<L, Packing::kMXFP4, Fp4Table> {
  template <int I>
  BATON_INLINE typename L::F scale() const {
    return L::load_half_powers(this->scales + 16 * this->at);
  }
};

// f(packing) for every packing of integers, as a constant.
template <class Function>
constexpr void each_integer_packing(Function&& f) {
  unroll<kPackings - static_cast<int>(Packing::kQ8_0)>(
      [&](auto i) { f(Constant<static_cast<int>(Packing::kQ8_0) + decltype(i)::value>{}); });
}

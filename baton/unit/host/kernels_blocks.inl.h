// How each integer packing's blocks become bytes and scales. Included as kernels_loops.inl.h is, after it and before
// kernels_int8.inl.h, which multiplies them.
//
// Blocks of 32 values of 16 rows. Two kinds of values: biased (v = q + 128, sum corrected by the activations' bias) and
// plain (v = q, 0 <= q < 64, which suits every instruction set's product of unsigned by signed bytes). Either may have
// minimums, which multiply the sum of the activations. kScales, kMinimums: how many per block.

template <class L>
struct BlockQ8_0 {
  static constexpr bool kPlain = false;
  static constexpr int kScales = 1, kMinimums = 0;
  const unsigned char* values;
  const unsigned char* scales;
  BATON_INLINE void open(const Matrix& w, const unsigned char* panel) {
    scales = panel;
    values = panel + w.values_offset;
  }
  BATON_INLINE void next(int64_t) {
    scales += 32;
    values += 512;
  }
  template <int I>
  BATON_INLINE typename L::B value() const {
    return L::load_bytes(values + 64 * I);
  }
  template <int I>
  BATON_INLINE typename L::F scale() const {
    return L::load_f16(scales);
  }
};

// Codes of 2 to 8 bits; layouts in pack.h.
template <class L, int Bits>
struct Codes {
  static constexpr int kBytes = 64 * Bits;
  const unsigned char* values;
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

// Q4_0 and Q5_0.
template <class L, int HighBits>
struct BlockCentred : Codes<L, 4 + HighBits> {
  static constexpr bool kPlain = false;
  static constexpr int kScales = 1, kMinimums = 0;
  const unsigned char* scales;
  BATON_INLINE void open(const Matrix& w, const unsigned char* panel) {
    scales = panel;
    this->values = panel + w.values_offset;
  }
  BATON_INLINE void next(int64_t) {
    scales += 32;
    this->values += this->kBytes;
  }
  template <int I>
  BATON_INLINE typename L::B value() const {
    return L::add_bytes(this->template quant<I>(), 128 - (8 << HighBits));
  }
  template <int I>
  BATON_INLINE typename L::F scale() const {
    return L::load_f16(scales);
  }
};

// Q4_1 and Q5_1: f16 d[b][16], then f16 m[b][16].
template <class L, int HighBits>
struct BlockWithMinimum : Codes<L, 4 + HighBits> {
  static constexpr bool kPlain = true;
  static constexpr int kScales = 1, kMinimums = 1;
  const unsigned char* scales;
  const unsigned char* minimums;
  BATON_INLINE void open(const Matrix& w, const unsigned char* panel) {
    scales = panel;
    minimums = panel + w.columns / kBlock * 32;
    this->values = panel + w.values_offset;
  }
  BATON_INLINE void next(int64_t) {
    scales += 32;
    minimums += 32;
    this->values += this->kBytes;
  }
  template <int I>
  BATON_INLINE typename L::B value() const {
    return this->template quant<I>();
  }
  template <int I>
  BATON_INLINE typename L::F scale() const {
    return L::load_f16(scales);
  }
  template <int I>
  BATON_INLINE typename L::F minimum() const {
    return L::load_f16(minimums);
  }
};

// Q4_K and Q5_K: f16 d[16], f16 dmin[16], u8 sc[8][16], u8 m[8][16] per super-block.
template <class L, int HighBits>
struct BlockSuper : Codes<L, 4 + HighBits> {
  static constexpr bool kPlain = true;
  static constexpr int kScales = 1, kMinimums = 1;
  static constexpr int64_t kSuperBytes = 64 + 256;
  const unsigned char* super;
  int64_t block = 0;  // in the super-block
  BATON_INLINE void open(const Matrix& w, const unsigned char* panel) {
    super = panel;
    this->values = panel + w.values_offset;
  }
  BATON_INLINE void next(int64_t) {
    this->values += this->kBytes;
    block = (block + 1) & 7;
    if (block == 0) super += kSuperBytes;
  }
  template <int I>
  BATON_INLINE typename L::B value() const {
    return this->template quant<I>();
  }
  template <int I>
  BATON_INLINE typename L::F scale() const {
    return L::mul(L::load_f16(super), L::load_u8(super + 64 + 16 * block));
  }
  template <int I>
  BATON_INLINE typename L::F minimum() const {
    return L::sub(L::zero(), L::mul(L::load_f16(super + 32), L::load_u8(super + 192 + 16 * block)));
  }
};

// Q3_K and Q6_K: f16 d[16], i8 sc[16][16] per super-block.
template <class L, int Bits>
struct BlockHalves : Codes<L, Bits> {
  static constexpr bool kPlain = false;
  static constexpr int kScales = 2, kMinimums = 0;
  static constexpr int64_t kSuperBytes = 32 + 256;
  const unsigned char* super;
  int64_t block = 0;
  BATON_INLINE void open(const Matrix& w, const unsigned char* panel) {
    super = panel;
    this->values = panel + w.values_offset;
  }
  BATON_INLINE void next(int64_t) {
    this->values += this->kBytes;
    block = (block + 1) & 7;
    if (block == 0) super += kSuperBytes;
  }
  template <int I>
  BATON_INLINE typename L::B value() const {
    return L::add_bytes(this->template quant<I>(), 128 - (1 << (Bits - 1)));
  }
  template <int I>
  BATON_INLINE typename L::F scale() const {
    return L::mul(L::load_f16(super), L::load_i8(super + 32 + 32 * block + 16 * I));
  }
};

// Q2_K: f16 d[16], f16 dmin[16], u8 sm[16][16] per super-block: scale in the low nibble, minimum in the high one.
template <class L>
struct BlockQ2_K : Codes<L, 2> {
  static constexpr bool kPlain = true;
  static constexpr int kScales = 2, kMinimums = 2;
  static constexpr int64_t kSuperBytes = 64 + 256;
  const unsigned char* super;
  int64_t block = 0;
  BATON_INLINE void open(const Matrix& w, const unsigned char* panel) {
    super = panel;
    this->values = panel + w.values_offset;
  }
  BATON_INLINE void next(int64_t) {
    this->values += this->kBytes;
    block = (block + 1) & 7;
    if (block == 0) super += kSuperBytes;
  }
  template <int I>
  BATON_INLINE typename L::B value() const {
    return this->template quant<I>();
  }
  template <int I>
  BATON_INLINE typename L::F scale() const {
    return L::mul(L::load_f16(super), L::load_low_nibbles(super + 64 + 32 * block + 16 * I));
  }
  template <int I>
  BATON_INLINE typename L::F minimum() const {
    return L::sub(L::zero(), L::mul(L::load_f16(super + 32), L::load_high_nibbles(super + 64 + 32 * block + 16 * I)));
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

// IQ4_NL: f16 d[b][16].
template <class L>
struct BlockIQ4_NL : Codes<L, 4> {
  static constexpr bool kPlain = false;
  static constexpr int kScales = 1, kMinimums = 0;
  const unsigned char* scales;
  BATON_INLINE void open(const Matrix& w, const unsigned char* panel) {
    scales = panel;
    this->values = panel + w.values_offset;
  }
  BATON_INLINE void next(int64_t) {
    scales += 32;
    this->values += this->kBytes;
  }
  template <int I>
  BATON_INLINE typename L::B value() const {
    return L::look_up(this->template quant<I>(), Iq4Table::kValues);
  }
  template <int I>
  BATON_INLINE typename L::F scale() const {
    return L::load_f16(scales);
  }
};

// IQ4_XS: f16 d[16], i8 sc[8][16] per super-block.
template <class L>
struct BlockIQ4_XS : Codes<L, 4> {
  static constexpr bool kPlain = false;
  static constexpr int kScales = 1, kMinimums = 0;
  static constexpr int64_t kSuperBytes = 32 + 128;
  const unsigned char* super;
  int64_t block = 0;
  BATON_INLINE void open(const Matrix& w, const unsigned char* panel) {
    super = panel;
    this->values = panel + w.values_offset;
  }
  BATON_INLINE void next(int64_t) {
    this->values += this->kBytes;
    block = (block + 1) & 7;
    if (block == 0) super += kSuperBytes;
  }
  template <int I>
  BATON_INLINE typename L::B value() const {
    return L::look_up(this->template quant<I>(), Iq4Table::kValues);
  }
  template <int I>
  BATON_INLINE typename L::F scale() const {
    return L::mul(L::load_f16(super), L::load_i8(super + 32 + 16 * block));
  }
};

// MXFP4: u8 e[b][16], a scale of 2^(e - 128).
template <class L>
struct BlockMXFP4 : Codes<L, 4> {
  static constexpr bool kPlain = false;
  static constexpr int kScales = 1, kMinimums = 0;
  const unsigned char* scales;
  BATON_INLINE void open(const Matrix& w, const unsigned char* panel) {
    scales = panel;
    this->values = panel + w.values_offset;
  }
  BATON_INLINE void next(int64_t) {
    scales += 16;
    this->values += this->kBytes;
  }
  template <int I>
  BATON_INLINE typename L::B value() const {
    return L::look_up(this->template quant<I>(), Fp4Table::kValues);
  }
  template <int I>
  BATON_INLINE typename L::F scale() const {
    return L::load_half_powers(scales);
  }
};

// MLX's affine formats: f32 d[16], f32 m[16] per group. Codes of 8 bits are biased, so their minimum is m + 128 d.
template <class L, int Bits>
struct BlockAffine : Codes<L, Bits> {
  static constexpr bool kPlain = Bits < 8;
  static constexpr int kScales = 1, kMinimums = 1;
  const float* scales;
  int64_t block = 0, group_blocks = 1;
  BATON_INLINE void open(const Matrix& w, const unsigned char* panel) {
    scales = reinterpret_cast<const float*>(panel);
    group_blocks = w.group / kBlock;
    this->values = panel + w.values_offset;
  }
  BATON_INLINE void next(int64_t) {
    this->values += this->kBytes;
    if (++block < group_blocks) return;
    block = 0;
    scales += 32;
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

// How each integer packing's blocks become bytes and scales. Included as kernels_loops.inl.h is, after it and before
// kernels_int8.inl.h, which multiplies them.
//
// Two kinds of values: biased (v = q + 128, sum corrected by the activations' bias) and plain (v = q >= 0, with a
// minimum per lane that multiplies the activations' scaled sum).

// ---- Blocks of 32 values of 16 rows. scales(): how many per block; plain: has a minimum. ----

template <class L>
struct BlockQ8_0 {
  static constexpr bool kPlain = false;
  static constexpr int kScales = 1;
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
  BATON_INLINE typename L::F minimum() const { return L::zero(); }
};

// Nibbles, and how many bytes of high bits follow them.
template <class L, int HighBits>
struct Nibbles {
  static constexpr int kBytes = 256 + 64 * HighBits;
  const unsigned char* values;
  template <int I>
  BATON_INLINE typename L::B quant() const {
    const typename L::B raw = L::load_bytes(values + 64 * (I % 4));
    const typename L::B low = I < 4 ? L::low_nibbles(raw) : L::high_nibbles(raw);
    if constexpr (HighBits == 1) return L::template with_bit4<I>(low, L::load_bytes(values + 256));
    if constexpr (HighBits == 2) return L::template with_bits45<I % 4>(low, L::load_bytes(values + 256 + 64 * (I / 4)));
    return low;
  }
};

// Q4_0 and Q5_0.
template <class L, int HighBits>
struct BlockCentred : Nibbles<L, HighBits> {
  static constexpr bool kPlain = false;
  static constexpr int kScales = 1;
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
  BATON_INLINE typename L::F minimum() const { return L::zero(); }
};

// Q4_1 and Q5_1: f16 d[b][16], then f16 m[b][16].
template <class L, int HighBits>
struct BlockWithMinimum : Nibbles<L, HighBits> {
  static constexpr bool kPlain = true;
  static constexpr int kScales = 1;
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
  BATON_INLINE typename L::F minimum() const { return L::load_f16(minimums); }
};

// Q4_K and Q5_K: f16 d[16], f16 dmin[16], u8 sc[8][16], u8 m[8][16] per super-block.
template <class L, int HighBits>
struct BlockSuper : Nibbles<L, HighBits> {
  static constexpr bool kPlain = true;
  static constexpr int kScales = 1;
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
  BATON_INLINE typename L::F minimum() const {
    return L::sub(L::zero(), L::mul(L::load_f16(super + 32), L::load_u8(super + 192 + 16 * block)));
  }
};

// Q6_K: f16 d[16], i8 sc[16][16] per super-block.
template <class L>
struct BlockQ6_K : Nibbles<L, 2> {
  static constexpr bool kPlain = false;
  static constexpr int kScales = 2;
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
    return L::add_bytes(this->template quant<I>(), 128 - 32);
  }
  template <int I>
  BATON_INLINE typename L::F scale() const {
    return L::mul(L::load_f16(super), L::load_i8(super + 32 + 32 * block + 16 * I));
  }
  BATON_INLINE typename L::F minimum() const { return L::zero(); }
};

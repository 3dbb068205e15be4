// Decoding of quantized weights, as in gpumem_core::number::coding: w[i] = entry[code[i]] * scale[i / BLOCK], rounded to `real`. With SCALE_MAP,
// scales are themselves quantized, in words as in gpumem_core::number::double.
//
// PACKED   codes in a byte; the first of two is in the upper half
// BLOCK    elements that share a scale, a multiple of 32, consecutive in the stored weight
// ENTRIES  for codes of 4 bits: the entry of each, as the bits of f32
// MOST     for codes of 8 bits, which are integers: the one whose entry is 1
// SCALE_MAP given if scales are quantized: the entry of each code, as the bits of f32
// SCALES, SCALE_WORDS quantized scales of a group, and the words of a group
//
// No include guard: the tests include it once for each kernel they compile.

typedef unsigned char u8;

// The entries of codes. Sixteen are in shared memory, in separate banks, because lanes look up different ones at once.
struct Entries {
#if PACKED == 2
    float at[16];
#endif

    // Loads the entries, by all threads of a block. A barrier must follow.
    __device__ __forceinline__ void fill() {
#if PACKED == 2
        constexpr u32 bits[16] = ENTRIES;
#pragma unroll
        for (u32 code = 0; code < 16; code++)
            if (threadIdx.x == code) at[code] = from_bits(bits[code]);
#endif
    }
    // Returns the entry of the code in the last bits of a word.
    __device__ __forceinline__ float of(u32 word) const {
#if PACKED == 2
        return at[word & 15u];
#else
        // A byte with its sign bit flipped and the exponent of 2^23 is an f32 that is 2^23 + 128 too large.
        const float code = from_bits(0x4b000000u | ((word & 255u) ^ 128u)) - 8388736.0f;
        // The quotient, rounded as a division rounds it: the remainder of the product with the reciprocal is exact, and is added.
        constexpr float RECIPROCAL = 1.0f / MOST;
        const float quotient = code * RECIPROCAL;
        return fmaf(fmaf(-MOST, quotient, code), RECIPROCAL, quotient);
#endif
    }
};

// Return a word whose last bits are code k, counted from a word or from a byte.
static __device__ __forceinline__ u32 code_at(const u32 *words, u32 k) {
    constexpr u32 OF_WORD = 4 * PACKED;
    const u32 inside = k % OF_WORD;
    return words[k / OF_WORD] >> (PACKED == 2 ? inside / 2 * 8 + (inside % 2 == 0 ? 4 : 0) : inside * 8);
}

static __device__ __forceinline__ u32 code_at(const u8 *bytes, u64 k) {
    return (u32)bytes[k / PACKED] >> (PACKED == 2 && k % 2 == 0 ? 4 : 0);
}

// Returns the scale of a block.
#ifdef SCALE_MAP
static __device__ const u32 SCALE_ENTRIES[256] = SCALE_MAP;

static __device__ __forceinline__ float scale_of(const float *words, u64 block) {
    const float *group = words + 1 + block / SCALES * SCALE_WORDS;
    const u32 inside = (u32)(block % SCALES);
    const u32 code = bits_of(group[1 + inside / 4]) >> inside % 4 * 8 & 255u;
    return fmaf(from_bits(SCALE_ENTRIES[code]), group[0], words[0]);
}
#else
static __device__ __forceinline__ float scale_of(const float *scales, u64 block) { return scales[block]; }
#endif

// Returns an element as an unquantized weight would store it.
static __device__ __forceinline__ float rounded(float element) {
    real made;
    narrow(element, &made);
    return widen(made);
}

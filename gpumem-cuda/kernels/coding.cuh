// What codes of weights say, as gpumem_core::number::coding has them: w[i] = entry[code[i]] * scale[i / BLOCK], rounded to `real`.
// With SCALE_MAP scales are words as gpumem_core::number::double has them, with codes of scales inside.
//
// PACKED   codes in a byte: of two the first is in the upper half
// BLOCK    elements of a scale, a multiple of 32: consecutive ones of a weight as it is stored
// ENTRIES  of codes of 4 bits: the entry of each, as the bits of f32
// MOST     of codes of 8 bits, which are whole numbers: the one whose entry is 1
// SCALE_MAP where scales are in codes: the entry of each, as the bits of f32
// SCALES, SCALE_WORDS of such scales, how many share one, and their words
//
// No include guard: the tests include it once for each kernel they compile.

typedef unsigned char u8;

// The entries of codes. Sixteen are in shared memory, in as many banks, for lanes look up different ones at once.
struct Entries {
#if PACKED == 2
    float at[16];
#endif

    // By all threads of a block, with a barrier behind it.
    __device__ __forceinline__ void fill() {
#if PACKED == 2
        constexpr u32 bits[16] = ENTRIES;
#pragma unroll
        for (u32 code = 0; code < 16; code++)
            if (threadIdx.x == code) at[code] = from_bits(bits[code]);
#endif
    }
    // That of the code in the last bits of a word.
    __device__ __forceinline__ float of(u32 word) const {
#if PACKED == 2
        return at[word & 15u];
#else
        // A byte with another sign, behind the exponent of 2^23, is a number of f32 that is 2^23 + 128 too large.
        const float code = from_bits(0x4b000000u | ((word & 255u) ^ 128u)) - 8388736.0f;
        // The quotient as a division rounds it: what a product with the reciprocal lacks is exact, and added.
        constexpr float RECIPROCAL = 1.0f / MOST;
        const float quotient = code * RECIPROCAL;
        return fmaf(fmaf(-MOST, quotient, code), RECIPROCAL, quotient);
#endif
    }
};

// A word whose last bits are code k of those that begin with a word, or with a byte.
static __device__ __forceinline__ u32 code_at(const u32 *words, u32 k) {
    constexpr u32 OF_WORD = 4 * PACKED;
    const u32 inside = k % OF_WORD;
    return words[k / OF_WORD] >> (PACKED == 2 ? inside / 2 * 8 + (inside % 2 == 0 ? 4 : 0) : inside * 8);
}

static __device__ __forceinline__ u32 code_at(const u8 *bytes, u64 k) {
    return (u32)bytes[k / PACKED] >> (PACKED == 2 && k % 2 == 0 ? 4 : 0);
}

// The scale of a block.
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

// An element as it is in memory where a weight is not in codes.
static __device__ __forceinline__ float rounded(float element) {
    real made;
    narrow(element, &made);
    return widen(made);
}

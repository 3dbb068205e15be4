// Packs: elements that a thread loads and stores at a time.
//
// PACK  elements of a pack, one or a larger power of two
//
// No include guard: the tests include it once for each kernel they compile.

#if PACK > 1

// Stored as words, since the compiler would use a register for each 16-bit element.
struct alignas(sizeof(real) * PACK) Pack {
    u32 words[sizeof(real) * PACK / 4];
};

static __device__ __forceinline__ float element(const Pack &pack, int k, const float *) { return from_bits(pack.words[k]); }

template <class Half> static __device__ __forceinline__ float element(const Pack &pack, int k, const Half *) {
    Half half;
    half.bits = (u16)(pack.words[k / 2] >> k % 2 * 16);
    return widen(half);
}

static __device__ __forceinline__ void put(float value, Pack &pack, int k, const float *) { pack.words[k] = bits_of(value); }

// The first half of a word must be stored before the second one.
template <class Half> static __device__ __forceinline__ void put(float value, Pack &pack, int k, const Half *) {
    Half half;
    narrow(value, &half);
    pack.words[k / 2] = k % 2 == 0 ? half.bits : pack.words[k / 2] | (u32)half.bits << 16;
}

#else

struct Pack {
    real at[1];
};

static __device__ __forceinline__ float element(const Pack &pack, int, const real *) { return widen(pack.at[0]); }

static __device__ __forceinline__ void put(float value, Pack &pack, int, const real *) { narrow(value, &pack.at[0]); }

#endif

static __device__ __forceinline__ float element(const Pack &pack, int k) { return element(pack, k, (const real *)nullptr); }

// Rounds a number to element k of a pack. Elements must be stored in order.
static __device__ __forceinline__ void put(float value, Pack &pack, int k) { put(value, pack, k, (const real *)nullptr); }

// Load and store the pack that begins at element `at`.
static __device__ __forceinline__ Pack load(const real *from, u64 at) { return ((const Pack *)from)[at / PACK]; }
static __device__ __forceinline__ void store(const Pack &pack, real *to, u64 at) { ((Pack *)to)[at / PACK] = pack; }

// 8-bit optimizer states, as in gpumem_core::number::dynamic: an element is entry number `code` of a table, times the scale of its block of 256
// elements.
//
// SIGNED_MAP, UNSIGNED_MAP  the tables of a first and of a second state, in ascending order, as the bits of f32
//
// A thread has four elements, 64 threads a block of codes, and a block of threads four of those.
//
// No include guard: the tests include it once for each kernel they compile.

typedef unsigned char u8;

// Elements that share a scale: BLOCK of gpumem_core::number::dynamic.
constexpr u32 ENTRIES = 256, OF_SCALE = 256;

static __device__ const u32 MAPS[2][ENTRIES] = {SIGNED_MAP, UNSIGNED_MAP};

// The tables in shared memory, since lanes read different entries at once.
struct Maps {
    // A bound is half way between an entry and the next one; the last entry has none.
    float entries[2][ENTRIES], bounds[2][ENTRIES];
};

// The highest bits of each warp, for each state.
typedef u32 Highest[8][2];

// An optimizer state of a parameter.
struct Coded {
    u8 *codes;
    float *scales;
};

// Loads the tables, by 256 threads. A barrier must come before they are read.
static __device__ __forceinline__ void fill(Maps &maps) {
    const u32 at = threadIdx.x, next = at + 1 < ENTRIES ? at + 1 : at;
#pragma unroll
    for (u32 s = 0; s < 2; s++) {
        maps.entries[s][at] = from_bits(MAPS[s][at]);
        maps.bounds[s][at] = (from_bits(MAPS[s][at]) + from_bits(MAPS[s][next])) * 0.5f;
    }
    // In the unsigned table, a value above 0 must not become 0.
    if (at == 0) maps.bounds[1][0] = from_bits(1);
}

// Decodes the numbers of a thread; those beyond its elements are 0.
static __device__ __forceinline__ void decode(const Coded &state, const Part &part, const float entries[ENTRIES], float to[FOUR]) {
    const float scale = part.many != 0 ? state.scales[part.first / OF_SCALE] : 0.0f;
    const u8 *from = state.codes + part.first;
    Pack<u8> pack = {};
    if (part.many == FOUR) {
        pack = *(const Pack<u8> *)from;
    } else {
#pragma unroll
        for (u32 e = 0; e < FOUR; e++)
            if (e < part.many) pack.at[e] = from[e];
    }
#pragma unroll
    for (u32 e = 0; e < FOUR; e++) to[e] = e < part.many ? entries[pack.at[e]] * scale : 0.0f;
}

// Computes the largest magnitude of both states in the code blocks of the threads. The bits of unsigned floats are ordered, with NaN above all.
static __device__ __forceinline__ void scales_of(const float values[2][FOUR], Highest &highest, float scales[2]) {
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
    for (u32 s = 0; s < 2; s++) {
        u32 most = 0;
#pragma unroll
        for (u32 e = 0; e < FOUR; e++) {
            const u32 bits = bits_of(values[s][e]) & 0x7fffffffu;
            most = bits > most ? bits : most;
        }
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) {
            const u32 other = __shfl_xor_sync(FULL_WARP, most, offset);
            most = other > most ? other : most;
        }
        if (lane == 0) highest[warp][s] = most;
    }
    __syncthreads();
#pragma unroll
    for (u32 s = 0; s < 2; s++) {
        const u32 own = highest[warp][s], other = highest[warp ^ 1][s];
        scales[s] = from_bits(own > other ? own : other);
    }
}

// Returns the code of the nearest entry: the number of bounds that are not above the share. A NaN gets 0.
static __device__ __forceinline__ u32 code_of(float share, const float bounds[ENTRIES]) {
    u32 code = 0;
#pragma unroll
    for (u32 step = ENTRIES / 2; step > 0; step /= 2)
        if (share >= bounds[code + step - 1]) code += step;
    return code;
}

static __device__ __forceinline__ void encode(const float values[FOUR], float scale, const Part &part, const float bounds[ENTRIES],
                                              const Coded &state) {
    if (part.many != 0 && threadIdx.x % (OF_SCALE / FOUR) == 0) state.scales[part.first / OF_SCALE] = scale;
    Pack<u8> pack;
#pragma unroll
    for (u32 e = 0; e < FOUR; e++) pack.at[e] = (u8)code_of(values[e] / scale, bounds);
    u8 *to = state.codes + part.first;
    if (part.many == FOUR) {
        *(Pack<u8> *)to = pack;
        return;
    }
#pragma unroll
    for (u32 e = 0; e < FOUR; e++)
        if (e < part.many) to[e] = pack.at[e];
}

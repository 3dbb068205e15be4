// Optimizer states of 8 bits, as gpumem_core::number::dynamic has them: an element is the entry of a map, whose number is its code, times
// the scale of its block of 256.
//
// SIGNED_MAP, UNSIGNED_MAP  the entries of the maps of a first and of a second state, ascending, as the bits of f32
//
// A thread has four elements, 64 threads a block of codes, and a block of threads four of those.
//
// No include guard: the tests include it once for each kernel they compile.

typedef unsigned char u8;

// Elements of a scale: BLOCK of gpumem_core::number::dynamic.
constexpr u32 ENTRIES = 256, OF_SCALE = 256;

static __device__ const u32 MAPS[2][ENTRIES] = {SIGNED_MAP, UNSIGNED_MAP};

// In shared memory: what lanes read at once is anywhere in it.
struct Maps {
    // A bound is half way between an entry and the next one; behind the last one there is none.
    float entries[2][ENTRIES], bounds[2][ENTRIES];
};

// The highest bits of each warp, of each state.
typedef u32 Highest[8][2];

// A state of a parameter.
struct Coded {
    u8 *codes;
    float *scales;
};

// By 256 threads; a barrier is to come before the maps are read.
static __device__ __forceinline__ void fill(Maps &maps) {
    const u32 at = threadIdx.x, next = at + 1 < ENTRIES ? at + 1 : at;
#pragma unroll
    for (u32 s = 0; s < 2; s++) {
        maps.entries[s][at] = from_bits(MAPS[s][at]);
        maps.bounds[s][at] = (from_bits(MAPS[s][at]) + from_bits(MAPS[s][next])) * 0.5f;
    }
    // What is above 0 in the map without a sign does not become 0.
    if (at == 0) maps.bounds[1][0] = from_bits(1);
}

// The numbers of a thread; those that it has not are 0.
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

// The largest magnitude of both states in the blocks of a thread. Of numbers without a sign the bits are in order, and NaN is above all.
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

// The code of the nearest entry: how many bounds are not above the share. A share that is no number has 0.
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

// A weight from its codes and their scales, as gpumem_core::number::coding has them.
//
// COUNT    elements
// ENTRIES  the entry of each code, as the bits of f32
// PACKED   codes in a byte: of two the first is in the upper half
// BLOCK    elements of a scale: a multiple of PACK
// PACK     elements of a thread
//
// w[i] = entry[code[i]] * scale[i / BLOCK]
#include "base.cuh"
#include "real.cuh"
#include "pack.cuh"

typedef unsigned char u8;

static __device__ const u32 entry_bits[] = ENTRIES;

constexpr u32 KINDS = sizeof entry_bits / sizeof(u32), BYTES = PACK / PACKED;

// The codes of a thread.
struct alignas(BYTES) Codes {
    u8 at[BYTES];
};

// The code of element k of those that begin with this byte.
static __device__ __forceinline__ u32 code(const u8 *codes, u32 k) {
    return PACKED == 1 ? codes[k] : codes[k / 2] >> (k % 2 == 0 ? 4 : 0) & 15u;
}

// Blocks of 256 threads, PACK elements each.
KERNEL(dequantize)(const u8 *codes, const float *scales, real *w) {
    // In shared memory: what lanes read at once is anywhere in it.
    __shared__ float entries[KINDS];
    for (u32 kind = threadIdx.x; kind < KINDS; kind += blockDim.x) entries[kind] = from_bits(entry_bits[kind]);
    __syncthreads();
    const u64 first = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * PACK;
    if (first >= COUNT) return;
    const float scale = scales[first / BLOCK];
    const u8 *from = codes + first / PACKED;
    if (first + PACK <= COUNT) {
        const Codes mine = *(const Codes *)from;
        Pack made;
#pragma unroll
        for (u32 k = 0; k < PACK; k++) put(entries[code(mine.at, k)] * scale, made, k);
        store(made, w, first);
        return;
    }
    for (u32 k = 0; first + k < COUNT; k++) narrow(entries[code(from, k)] * scale, &w[first + k]);
}

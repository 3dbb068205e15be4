// Products with a quantized weight: y = x W^T + b and dx = dy W, where x is [rows, features in], y [rows, features out] and W [features out,
// features in] or its transpose.
//
// The constants are those of matrices.cuh, where B is the weight, whose rows have no gaps, and those of coding.cuh.
//
// A thread's part of a tile of W stays in codes until the previous tile is multiplied. It is decoded on its way from registers to shared memory.
// UNIT adjacent elements with one scale are moved at once: 8 or 16 bytes of codes with tensor cores.
//
// coded_product: C = A B + bias. Grid: a block for each tile of C, along x
#include "base.cuh"
#include "real.cuh"
#include "matrices.cuh"
#include "coding.cuh"

constexpr int UNIT = TILE_K / 2, UNIT_BYTES = UNIT / PACKED;

// Access to elements (e, k) of the weight, at e * RIGHT_ROW + k (ALONG_K) or at k * RIGHT_ROW + e.
template <bool ALONG_K> struct Coded {
    const u8 *codes;
    const float *scales;
    const Entries *entries;

    struct Place {
        u64 offset;
        bool inside;
    };
    typedef Place Depth;
    __device__ __forceinline__ Place place(u32 e) const { return {ALONG_K ? e * RIGHT_ROW : e, e < COLUMNS}; }
    __device__ __forceinline__ Depth depth(u32 k) const { return {ALONG_K ? k : k * RIGHT_ROW, k < DEPTH}; }
    // Returns one element, from any place.
    __device__ __forceinline__ real at(const Place &place, const Depth &depth) const {
        real made = real();
        if (place.inside && depth.inside) {
            const u64 at = place.offset + depth.offset;
            narrow(entries->of(code_at(codes, at)) * scale_of(scales, at / BLOCK), &made);
        }
        return made;
    }
};

// Moves TILE x TILE_K elements of a weight whose stored rows are whole units: one unit a thread, so that a tile of 64 occupies half of the threads.
template <int TILE, bool ALONG_K> struct Units {
    static constexpr bool K_FIRST = !ALONG_K;
    struct alignas(UNIT_BYTES) Codes {
        u32 words[UNIT_BYTES / 4];
    };
    Coded<ALONG_K> source;
    typename Coded<ALONG_K>::Place place;
    Codes held;
    float scale;

    static __device__ __forceinline__ bool busy() { return TILE >= 128 || threadIdx.x < TILE * 2; }
    // Eight lanes that store at once have eight rows along k.
    static __device__ __forceinline__ u32 e() {
        return ALONG_K ? threadIdx.x / 16 * 8 + threadIdx.x % 8 : threadIdx.x % (TILE / UNIT) * UNIT;
    }
    static __device__ __forceinline__ u32 k() { return ALONG_K ? threadIdx.x / 8 % 2 * UNIT : threadIdx.x / (TILE / UNIT); }

    __device__ __forceinline__ Units(const Coded<ALONG_K> &from, u32 first) : source(from), place(from.place(first + e())) {}
    __device__ __forceinline__ void fetch(u32 first) {
        if (!busy()) return;
        const typename Coded<ALONG_K>::Depth depth = source.depth(first + k());
        // With a scale of 0 any codes are zeros.
        held = Codes{};
        scale = 0.0f;
        if (place.inside && depth.inside) {
            const u64 at = place.offset + depth.offset;
            held = *(const Codes *)(source.codes + at / PACKED);
            scale = scale_of(source.scales, at / BLOCK);
        }
    }
    // Returns element i of the unit, in f32.
    __device__ __forceinline__ float element(u32 i) const { return source.entries->of(code_at(held.words, i)) * scale; }
#if TENSOR_CORES
    __device__ __forceinline__ void put(u16 *tile) const {
        if (!busy()) return;
        u16 *to = tile + (K_FIRST ? k() * (TILE + 8) + e() : e() * K_PITCH + k());
#pragma unroll
        for (u32 i = 0; i < UNIT; i += 8) {
            const uint4 words = {pack(element(i), element(i + 1)), pack(element(i + 2), element(i + 3)),
                                 pack(element(i + 4), element(i + 5)), pack(element(i + 6), element(i + 7))};
            *(uint4 *)(to + i) = words;
        }
    }
#else
    __device__ __forceinline__ void put(float (*tile)[TILE + 4]) const {
        if (!busy()) return;
#pragma unroll
        for (u32 i = 0; i < UNIT; i += 4) {
            const float four[4] = {rounded(element(i)), rounded(element(i + 1)), rounded(element(i + 2)), rounded(element(i + 3))};
            if constexpr (ALONG_K) {
#pragma unroll
                for (u32 j = 0; j < 4; j++) tile[k() + i + j][e()] = four[j];
            } else {
                store4(four, &tile[k()][e() + i]);
            }
        }
    }
#endif
};

// Units if stored rows consist of whole ones, else element by element, which needs more registers than two blocks have.
constexpr bool IN_UNITS = RIGHT_ROW % UNIT == 0;
constexpr int RESIDENT = IN_UNITS ? TILE_RESIDENT : 1;
template <bool> struct Carried {
    typedef Single<TILE_N, B_TRANSPOSED, Coded<B_TRANSPOSED>> Type;
};
template <> struct Carried<true> {
    typedef Units<TILE_N, B_TRANSPOSED> Type;
};

KERNEL(__launch_bounds__(TILE_THREADS, RESIDENT) coded_product)
(const real *__restrict__ a, const u8 *__restrict__ codes, const float *__restrict__ scales, const real *__restrict__ bias, real *c) {
    __shared__ Tiles tiles;
    __shared__ Entries entries;
    entries.fill();
    __syncthreads();
    const Corner corner = corner_of(blockIdx.x);
    Carried<IN_UNITS>::Type right({codes, scales, &entries}, corner.n);
    product_with(corner, a, right, bias, c, tiles);
}

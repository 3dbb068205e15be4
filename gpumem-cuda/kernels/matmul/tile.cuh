// Tiles of a matrix product C = A B with C[M, N], A[M, K], B[K, N]. A and B may be computed from other tensors on the way to shared memory (implicit
// products).
//
// TILE_M, TILE_N rows and columns of C that a block computes: 32, 64 or 128 each
// ADD            1 if C is added to its tensor (+=), 0 if it overwrites it
// TENSOR_CORES   terms that a tensor-core instruction sums, or 0: see mma.cuh
//
// A block has 256 threads. Two buffers alternate, so that the next TILE_K columns of A and rows of B are loaded while the current ones are
// multiplied. Every element of C is summed in the same order in every run.
//
// An operand is a `Source`: `place(e)` and `depth(k)` compute once what depends only on the row of A (or column of B) and only on k.
// `at(place, depth)` returns the element, 0 outside. Neighbouring threads load neighbouring k (ALONG_K) or neighbouring places, whichever are
// adjacent in memory.
//
// tile_fma.cuh and tile_mma.cuh each define TILE_K, VECTOR, Tiles (in shared memory), Sums (of one thread), clear, add, multiply, store, and two
// types that load an operand from a source into shared memory: Single, element by element, and Vectors, VECTOR elements at once.
//
// No include guard: the tests include it once for each kernel they compile.

constexpr int TILE_THREADS = 256;
// Blocks for which a multiprocessor must have registers, so that one multiplies while the other waits for memory. Two blocks of f32, or of compute
// capability 7.5, would spill registers; without a bound, ptxas tries to fit more than one there and spills as well.
constexpr int TILE_RESIDENT = TENSOR_CORES == 16 ? 2 : 1;

// Load four elements at once: 16 bytes of float, 8 of the others, with that alignment.
static __device__ __forceinline__ void load4(const float *from, float *to) {
    const float4 four = *(const float4 *)from;
    to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
}

template <class Half> static __device__ __forceinline__ void load4(const Half *from, float *to) {
    const uint2 four = *(const uint2 *)from;
    const u32 words[2] = {four.x, four.y};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        Half half;
        half.bits = (u16)(words[i / 2] >> 16 * (i % 2));
        to[i] = widen(half);
    }
}

static __device__ __forceinline__ void store4(const float *from, float *to) {
    *(float4 *)to = make_float4(from[0], from[1], from[2], from[3]);
}

// Store four results at once. A plain store of several words is split into single words, because the compiler loses track of their alignment.
static __device__ __forceinline__ void put4(const float *from, float *to) {
#ifdef __CUDA_ARCH__
    __stwb((float4 *)to, make_float4(from[0], from[1], from[2], from[3]));
#else
    store4(from, to);
#endif
}

template <class Half> static __device__ __forceinline__ void put4(const float *from, Half *to) {
    Half halves[4];
#pragma unroll
    for (int i = 0; i < 4; i++) narrow(from[i], &halves[i]);
    const u32 low = halves[0].bits | (u32)halves[1].bits << 16, high = halves[2].bits | (u32)halves[3].bits << 16;
    // Stored as two words: for one 64-bit word made of four binary16 numbers, ptxas 13.0 stores only the low half.
#ifdef __CUDA_ARCH__
    __stwb((uint2 *)to, make_uint2(low, high));
#else
    *(u64 *)to = (u64)high << 32 | low;
#endif
}

// Read VECTOR adjacent elements of a source: four widened, or eight of 16 bits unchanged. Zeros outside.
static __device__ __forceinline__ void read_four(const real *from, bool inside, float *to) {
    if (inside) {
        load4(from, to);
    } else {
        to[0] = to[1] = to[2] = to[3] = 0.0f;
    }
}

static __device__ __forceinline__ uint4 read_eight(const real *from, bool inside) {
    uint4 words = {0, 0, 0, 0};
    if (inside) words = *(const uint4 *)from;
    return words;
}

// A stored matrix with elements (e, k) of an operand at e * stride + k (ALONG_K) or at k * stride + e.
template <bool ALONG_K> struct Matrix {
    const real *data;
    u64 stride;
    u32 extent, length;

    struct Place {
        const real *data;
        bool inside;
    };
    struct Depth {
        u64 offset;
        bool inside;
    };
    __device__ __forceinline__ Place place(u32 e) const { return {data + (ALONG_K ? e * stride : e), e < extent}; }
    __device__ __forceinline__ Depth depth(u32 k) const { return {ALONG_K ? k : k * stride, k < length}; }
    __device__ __forceinline__ real at(const Place &place, const Depth &depth) const {
        return place.inside && depth.inside ? place.data[depth.offset] : real();
    }
    __device__ __forceinline__ void four(const Place &place, const Depth &depth, float *to) const {
        read_four(place.data + depth.offset, place.inside && depth.inside, to);
    }
    __device__ __forceinline__ uint4 eight(const Place &place, const Depth &depth) const {
        return read_eight(place.data + depth.offset, place.inside && depth.inside);
    }
};

// Stores one element of C in a `Target`. A target has `column(n)`, which computes what depends only on n; `at(column, m)`, the element's address;
// `bias(m, n)`, which is added; and `through(x)`, the function applied in the end.
template <class Target, class Element>
static __device__ __forceinline__ void put_one(const Target &target, u32 m, u32 n, float sum, Element *to) {
    sum += target.bias(m, n);
#if ADD
    sum += widen(*to);
#endif
    narrow(target.through(sum), to);
}

// Stores four columns from n on.
template <class Target, class Element>
static __device__ __forceinline__ void put_four(const Target &target, u32 m, u32 n, const float *sums, Element *to) {
    float four[4];
#if ADD
    load4(to, four);
#endif
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float sum = sums[i] + target.bias(m, n + i);
#if ADD
        four[i] = target.through(four[i] + sum);
#else
        four[i] = target.through(sum);
#endif
    }
    put4(four, to);
}

#if TENSOR_CORES
#include "tile_mma.cuh"
#else
#include "tile_fma.cuh"
#endif

// Selects Vectors for a matrix whose stride is a multiple of VECTOR, else Single.
template <bool IN_VECTORS, int TILE, bool ALONG_K, class Source> struct Carrier {
    typedef Single<TILE, ALONG_K, Source> Type;
};
template <int TILE, bool ALONG_K, class Source> struct Carrier<true, TILE, ALONG_K, Source> {
    typedef Vectors<TILE, ALONG_K, Source> Type;
};

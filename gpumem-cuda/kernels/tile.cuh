// Tiles of a matrix product C = A B with C[M, N], A[M, K], B[K, N], where A and B may be computed from other tensors on the
// way to shared memory (implicit products).
//
// TILE_M, TILE_N rows and columns of C that a block computes: 32, 64 or 128 each
// ADD            1 if C is added to its tensor (+=), 0 if it overwrites it
// TENSOR_CORES   terms that an instruction of the tensor cores multiplies, or 0: see mma.cuh
//
// A block has 256 threads. Two buffers take turns, so that the next TILE_K columns of A and rows of B come from memory while
// these are multiplied. Every element of C is summed in the same order in every run.
//
// An operand is a `Source`: `place(e)` and `depth(k)` do once what depends on the row of A (or column of B) alone and on k
// alone, `at(place, depth)` gives the element, and 0 outside. Neighbouring threads take neighbouring k (ALONG_K) or
// neighbouring places, whichever lie together in memory.
//
// tile_fma.cuh and tile_mma.cuh each have: TILE_K, VECTOR, Tiles (in shared memory), Sums (of one thread), clear, add, multiply,
// store, and what carries an operand from a source to shared memory: Single element by element, Vectors VECTOR of them at once.
//
// No include guard: the tests include it once for each kernel they compile.

constexpr int TILE_THREADS = 256;
// Blocks that a multiprocessor is to have registers for, so that one multiplies while the other waits for memory. Two of f32, or of
// compute capability 7.5, would spill registers; left to itself, ptxas aims at more than one there and spills as well.
constexpr int TILE_RESIDENT = TENSOR_CORES == 16 ? 2 : 1;

// Four elements at once: 16 bytes of float, 8 of the others, aligned to as much.
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

// The same of results. A plain store of several words ends as one of each, for the compiler loses sight of how they are aligned.
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
    // As two words: of one of 64 bits that is made of four numbers of binary16, ptxas 13.0 stores the low half alone.
#ifdef __CUDA_ARCH__
    __stwb((uint2 *)to, make_uint2(low, high));
#else
    *(u64 *)to = (u64)high << 32 | low;
#endif
}

// What sources give where VECTOR elements lie together: four widened, or eight of 16 bits as they are. Zeros outside.
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

// Where C goes is a `Target`: `column(n)` does what depends on n alone, `at(column, m)` is the element's address, `bias(m, n)` what
// is added to it, `through(x)` what becomes of it in the end.
template <class Target, class Element>
static __device__ __forceinline__ void put_one(const Target &target, u32 m, u32 n, float sum, Element *to) {
    sum += target.bias(m, n);
#if ADD
    sum += widen(*to);
#endif
    narrow(target.through(sum), to);
}

// The same of four columns from n on.
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

// Vectors for a matrix whose stride is a multiple of VECTOR.
template <bool IN_VECTORS, int TILE, bool ALONG_K, class Source> struct Carrier {
    typedef Single<TILE, ALONG_K, Source> Type;
};
template <int TILE, bool ALONG_K, class Source> struct Carrier<true, TILE, ALONG_K, Source> {
    typedef Vectors<TILE, ALONG_K, Source> Type;
};

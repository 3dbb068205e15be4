// A chain of elementwise operations in one pass. Their intermediate values stay in registers.
//
// COUNT   elements
// INPUTS  packs that are loaded
// LOADS   their sources: `in[0]=load_piece(x0,first);in[1]=spread(x1[at/6u])`
// VALUES  values of an element, each rounded as memory would store it
// DRAWS   layers that draw random words
// SHARES  neighbouring elements that share each of their words: `{1ull,784ull}`
// TERMS   the most terms of a formula
// WORK    the operations: `r[0]=in[0].at[e];put(Silu::value(widen(r[0]),Arguments{}),r[1])`
// SIDES   given if some operations write or read activation masks: the number of masks, see activation_mask.cuh
// EIGHT   given with masks: a thread has eight elements in every format
// OUTPUTS packs that are stored
// STORES  their destinations: `store_piece(out[0],y0,first)`
//
// x are tensors that are only read, y those that are written (a y that is added to is also read). Unused pointers at the end of either are null.
// All have COUNT elements, except a broadcast x. A y may have the place of an x: a thread loads its elements of all tensors before it stores any.
#include "base.cuh"
#include "real.cuh"
#include "vector16.cuh"
#include "pointwise.cuh"
#include "binary.cuh"
#include "mask.cuh"
#include "random.cuh"
#include "part.cuh"
#ifdef SIDES
#include "activation_mask.cuh"
#endif

// Division by a constant is cheap in 32 bits only.
#if COUNT < 0x80000000ull
typedef u32 Index;
#else
typedef u64 Index;
#endif

// One number more than needed, because an array has at least one.
struct Rows {
    u32 at[DRAWS + 1];
};

static __device__ constexpr u64 share_of(int k) {
    constexpr u64 shares[] = SHARES;
    return shares[k];
}

// Returns a pack filled with one element.
static __device__ __forceinline__ Piece spread(real x) {
    Piece piece;
#pragma unroll
    for (int e = 0; e < PIECE; e++) piece.at[e] = x;
    return piece;
}

// Rounds a number as if it were stored in memory. In f32 that changes nothing, but a product must not be contracted with a later sum. The compiler
// does not know that the grid is flat, so this prevents it.
static __device__ __forceinline__ void put(float value, real &to) {
    narrow(SAME<real, float> ? from_bits(bits_of(value) ^ blockIdx.y) : value, &to);
}

KERNEL(chain)(const u32 *state, const real *x0, const real *x1, const real *x2, const real *x3, const real *x4, const real *x5,
              const real *x6, const real *x7, real *y0, real *y1, real *y2, real *y3, real *y4,
              real *y5, IN_PLACE Rows rows) {
    const u64 first = first_of_piece();
    if (first >= COUNT) return;
    const Index at = (Index)first;
    Piece in[INPUTS], out[OUTPUTS];
#ifdef SIDES
    u32 sides[SIDES];
#endif
    LOADS;
    u32 words[DRAWS + 1][PIECE];
#pragma unroll
    for (int k = 0; k < DRAWS; k++) piece_words(draws_of(state, rows.at[k]), share_of(k), at, words[k]);
#pragma unroll
    for (int e = 0; e < PIECE; e++) {
        real r[VALUES];
        float t[TERMS + 1], x, y;
        WORK;
    }
    STORES;
}

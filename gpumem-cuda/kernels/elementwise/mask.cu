// Dropout: sets elements to 0 at random and scales the others up; also its gradient.
//
// COUNT     elements
// THRESHOLD an element is dropped if its random word is below it
// SCALE     1 / (1 - p) for a share p of dropped elements
// SHARED    neighbours, in the order of the shape, that share a draw
// ADD       1 if the result is added to its tensor (+=), 0 if it overwrites it
// CHANNELS, HEIGHT, WIDTH, X_STRIDES  given if the tensors are not dense: sizes and strides of all of them, see layout.cuh
//
// y = keep ? x * SCALE : 0, where y may be x, and dx = keep ? dy * SCALE : 0, where dx may be dy: one entry point for both. The draw depends on
// seed and step in the state, the row of the layer and the element's index; no mask is stored.
#include "base.cuh"
#include "real.cuh"
#include "layout.cuh"
#include "vector16.cuh"
#include "mask.cuh"
#include "random.cuh"
#include "part.cuh"

static __device__ __forceinline__ void drop(u32 word, real x, real *y) {
    float value = drop(word, THRESHOLD, widen(x), (float)(SCALE));
#if ADD
    value += widen(*y);
#endif
    narrow(value, y);
}

#ifdef X_STRIDES

// Grid: a thread for each element, which is drawn by its index in the order of the shape.
KERNEL(mask)(const real *x, const u32 *state, real *y, u32 row) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT) return;
    const u64 at = in_order(Strides X_STRIDES, CHANNELS, HEIGHT, WIDTH, i);
    drop(drop_word(draws_of(state, row), i / SHARED), x[at], &y[at]);
}

#else

// A draw decides about four elements, or about SHARED.
KERNEL(mask)(const real *x, const u32 *state, real *y, u32 row) {
    const u64 first = first_of_piece();
    if (first >= COUNT) return;
    const Piece in = load_piece(x, first);
#if ADD
    Piece out = load_piece(y, first);
#else
    Piece out;
#endif
    u32 words[PIECE];
    piece_words(draws_of(state, row), SHARED, first, words);
#pragma unroll
    for (int e = 0; e < PIECE; e++) drop(words[e], in.at[e], &out.at[e]);
    store_piece(out, y, first);
}

#endif

// Elementwise functions of one number, and their gradients.
//
// COUNT     elements
// FUNCTION  the function: a struct of pointwise.cuh
// ARGUMENTS parameters of the function
// ADD       1 if the gradient is added to its tensor (+=), 0 if it overwrites it
//
// pointwise:          y = f(x), where y may be x
// pointwise_backward: dx = dy * f', where dx may be dy. The derivative is computed from the saved tensor, null if the
//                     function saves none.
#include "base.cuh"
#include "real.cuh"
#include "vector16.cuh"
#include "pointwise.cuh"

KERNEL(pointwise)(const real *x, real *y) {
    const Arguments arguments = ARGUMENTS;
    const u64 first = first_of_piece();
    if (first >= COUNT) return;
    Piece piece = load_piece(x, first);
#pragma unroll
    for (int e = 0; e < PIECE; e++) narrow(FUNCTION::value(widen(piece.at[e]), arguments), &piece.at[e]);
    store_piece(piece, y, first);
}

KERNEL(pointwise_backward)(const real *dy, const real *kept, real *dx) {
    const Arguments arguments = ARGUMENTS;
    const u64 first = first_of_piece();
    if (first >= COUNT) return;
    const Piece gradients = load_piece(dy, first), values = kept == nullptr ? Piece() : load_piece(kept, first);
#if ADD
    Piece out = load_piece(dx, first);
#else
    Piece out;
#endif
#pragma unroll
    for (int e = 0; e < PIECE; e++) {
        const float gradient = widen(gradients.at[e]) * FUNCTION::slope(widen(values.at[e]), arguments);
        narrow(ADD ? widen(out.at[e]) + gradient : gradient, &out.at[e]);
    }
    store_piece(out, dx, first);
}

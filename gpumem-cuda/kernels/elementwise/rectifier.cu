// Elementwise functions with two slopes that save an activation mask, one bit of each element, and their gradients.
//
// COUNT     elements
// EIGHT     a thread has eight of them: see activation_mask.cuh
// FUNCTION  the function: a struct of pointwise.cuh
// ARGUMENTS parameters of the function
// INSIDE    an output with another slope than at 0, for elements whose bit is set
// ADD       1 if the gradient is added to its tensor (+=), 0 if it overwrites it
//
// rectifier:          y = f(x), where y may be x, and the mask, unless it is null
// rectifier_backward: dx = dy * f', where dx may be dy. The mask selects the slope.
#include "base.cuh"
#include "real.cuh"
#include "vector16.cuh"
#include "pointwise.cuh"
#include "activation_mask.cuh"

KERNEL(rectifier)(const real *x, real *y, Sides *bits) {
    const Arguments arguments = ARGUMENTS;
    const u64 first = first_of_piece();
    if (first >= COUNT) return;
    Piece piece = load_piece(x, first);
    u32 sides = 0;
#pragma unroll
    for (int e = 0; e < PIECE; e++) {
        narrow(FUNCTION::value(widen(piece.at[e]), arguments), &piece.at[e]);
        sides |= side_of<FUNCTION>(widen(piece.at[e]), arguments) << e;
    }
    store_piece(piece, y, first);
    if (bits != nullptr) store_sides(sides, bits, first);
}

KERNEL(rectifier_backward)(const real *dy, const Sides *bits, real *dx) {
    const Arguments arguments = ARGUMENTS;
    const u64 first = first_of_piece();
    if (first >= COUNT) return;
    const Piece gradients = load_piece(dy, first);
    const u32 sides = load_sides(bits, first);
#if ADD
    Piece out = load_piece(dx, first);
#else
    Piece out;
#endif
#pragma unroll
    for (int e = 0; e < PIECE; e++) {
        const float gradient = widen(gradients.at[e]) * slope_of<FUNCTION>(sides, e, INSIDE, arguments);
        narrow(ADD ? widen(out.at[e]) + gradient : gradient, &out.at[e]);
    }
    store_piece(out, dx, first);
}

// Elementwise formulas of a user, and their derivatives.
//
// COUNT elements
// TERMS, VALUE  number of terms of the formula and the terms, `t[0]=x;t[1]=expf(t[0]);`; the last one is its value
// SLOPES, SLOPE number and terms of its derivative, a function of x and y
// ADD   1 if the gradient is added to its tensor (+=), 0 if it overwrites it
//
// formula:          y = f(x), where y may be x
// formula_backward: dx = dy * f'(x, y), where dx may be dy; x and y are null if the derivative does not read them
#include "base.cuh"
#include "real.cuh"
#include "vector16.cuh"
#include "formula.cuh"

static __device__ __forceinline__ float value_of(float x) {
    float t[TERMS];
    VALUE;
    return t[TERMS - 1];
}

static __device__ __forceinline__ float slope_of(float x, float y) {
    float t[SLOPES];
    SLOPE;
    return t[SLOPES - 1];
}

KERNEL(formula)(const real *x, real *y) {
    const u64 first = first_of_piece();
    if (first >= COUNT) return;
    Piece piece = load_piece(x, first);
#pragma unroll
    for (int e = 0; e < PIECE; e++) narrow(value_of(widen(piece.at[e])), &piece.at[e]);
    store_piece(piece, y, first);
}

KERNEL(formula_backward)(const real *dy, const real *x, const real *y, real *dx) {
    const u64 first = first_of_piece();
    if (first >= COUNT) return;
    const Piece gradients = load_piece(dy, first);
    const Piece inputs = x == nullptr ? Piece() : load_piece(x, first), outputs = y == nullptr ? Piece() : load_piece(y, first);
#if ADD
    Piece out = load_piece(dx, first);
#else
    Piece out;
#endif
#pragma unroll
    for (int e = 0; e < PIECE; e++) {
        const float gradient = widen(gradients.at[e]) * slope_of(widen(inputs.at[e]), widen(outputs.at[e]));
        narrow(ADD ? widen(out.at[e]) + gradient : gradient, &out.at[e]);
    }
    store_piece(out, dx, first);
}

// Repeated rows and columns of a feature map, and their gradient.
//
// COUNT              elements of what the entry point writes
// WIDTH              of a row of x; rows of all planes are counted through
// SCALE_H, SCALE_W   how often each row and each column is repeated
// ADD                whether the gradient is added to what is there
// CHANNELS, HEIGHT, X_STRIDES, Y_STRIDES  where maps are not dense, of x and y: see layout.cuh
//
// forward:  y[r, c] = x[r / SCALE_H, c / SCALE_W]. x is [B * C * H, WIDTH], y [B * C * H * SCALE_H, WIDTH * SCALE_W].
// backward: dx[r, c] = sum of dy over the SCALE_H x SCALE_W copies of (r, c)
#include "base.cuh"
#include "real.cuh"
#include "layout.cuh"

// Divisions by constants are cheap in 32 bits only.
#if COUNT < 0x80000000ull
typedef u32 Index;
#else
typedef u64 Index;
#endif

// A thread writes PIECE elements of a row in one access: four where rows of y are multiples of four.
#if WIDTH * SCALE_W % 4 == 0
constexpr int PIECE = 4;
#else
constexpr int PIECE = 1;
#endif

struct alignas(PIECE * sizeof(real)) Piece {
    real at[PIECE];
};

#ifdef X_STRIDES

// Elements of y, and of x, one by one in the order of their shapes.
KERNEL(resize_forward)(const real *x, real *y) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT) return;
    const u64 row = i / (WIDTH * SCALE_W), plane = row / (HEIGHT * SCALE_H);
    const u32 column = (u32)(i % (WIDTH * SCALE_W)), line = (u32)(row % (HEIGHT * SCALE_H));
    y[in_map(Strides Y_STRIDES, CHANNELS, plane, line, column)] =
        x[in_map(Strides X_STRIDES, CHANNELS, plane, line / SCALE_H, column / SCALE_W)];
}

KERNEL(resize_backward)(const real *dy, real *dx) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT) return;
    const u64 plane = i / (HEIGHT * WIDTH);
    const u32 line = (u32)(i / WIDTH % HEIGHT), column = (u32)(i % WIDTH);
    float sum = 0.0f;
    for (int k = 0; k < SCALE_H; k++)
        for (int l = 0; l < SCALE_W; l++)
            sum += widen(dy[in_map(Strides Y_STRIDES, CHANNELS, plane, line * SCALE_H + k, column * SCALE_W + l)]);
    real *to = &dx[in_map(Strides X_STRIDES, CHANNELS, plane, line, column)];
#if ADD
    sum += widen(*to);
#endif
    narrow(sum, to);
}

#else

KERNEL(resize_forward)(const real *x, real *y) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT / PIECE) return;
    const Index row = i / (WIDTH * SCALE_W / PIECE);
    const u32 column = (u32)(i % (WIDTH * SCALE_W / PIECE)) * PIECE;
    x += (u64)(row / SCALE_H) * WIDTH;
    Piece piece;
#pragma unroll
    for (int e = 0; e < PIECE; e++) piece.at[e] = x[(column + e) / SCALE_W];
    ((Piece *)y)[i] = piece;
}

KERNEL(resize_backward)(const real *dy, real *dx) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT) return;
    dy += (u64)(i / WIDTH) * (SCALE_H * WIDTH * SCALE_W) + (u32)(i % WIDTH) * SCALE_W;
    float sum = 0.0f;
    for (int k = 0; k < SCALE_H; k++)
        for (int l = 0; l < SCALE_W; l++) sum += widen(dy[(u32)k * (WIDTH * SCALE_W) + l]);
#if ADD
    sum += widen(dx[i]);
#endif
    narrow(sum, &dx[i]);
}

#endif

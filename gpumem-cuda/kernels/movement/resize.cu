// Nearest-neighbour resizing by whole factors, which repeats rows and columns of a feature map, and its gradient.
//
// COUNT              elements that the entry point writes
// WIDTH              of a row of x; rows of all planes are numbered consecutively
// SCALE_H, SCALE_W   repetitions of each row and each column
// ADD                1 if the gradient is added to its tensor (+=), 0 if it overwrites it
// CHANNELS, HEIGHT, X_STRIDES, Y_STRIDES, PACK  given if maps are not dense: sizes, and strides of x and y, see layout.cuh and planes.cuh
//
// forward:  y[r, c] = x[r / SCALE_H, c / SCALE_W]. x is [B * C * H, WIDTH], y [B * C * H * SCALE_H, WIDTH * SCALE_W].
// backward: dx[r, c] = sum of dy over the SCALE_H x SCALE_W copies of (r, c)
#include "base.cuh"
#include "real.cuh"
#ifdef X_STRIDES
#include "planes.cuh"
#endif

// Division by a constant is cheap in 32 bits only.
#if COUNT < 0x80000000ull
typedef u32 Index;
#else
typedef u64 Index;
#endif

#ifdef X_STRIDES

// Single elements, or packs of channels.
KERNEL(resize_forward)(const real *x, real *y) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT / PACK) return;
    const Site at = site(i, HEIGHT * SCALE_H, WIDTH * SCALE_W);
    store(load(x, x_place(at, at.row / SCALE_H, at.column / SCALE_W)), y, y_place(at, at.row, at.column));
}

KERNEL(resize_backward)(const real *dy, real *dx) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT / PACK) return;
    const Site at = site(i, HEIGHT, WIDTH);
    float sum[PACK] = {};
    for (int k = 0; k < SCALE_H; k++)
        for (int l = 0; l < SCALE_W; l++) {
            const Pack pack = load(dy, y_place(at, at.row * SCALE_H + k, at.column * SCALE_W + l));
#pragma unroll
            for (int e = 0; e < PACK; e++) sum[e] += element(pack, e);
        }
    store_gradient(sum, dx, x_place(at, at.row, at.column));
}

#else

// A thread writes PIECE elements of a row in one access: four if rows of y are multiples of four.
#if WIDTH * SCALE_W % 4 == 0
constexpr int PIECE = 4;
#else
constexpr int PIECE = 1;
#endif

struct alignas(PIECE * sizeof(real)) Piece {
    real at[PIECE];
};

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

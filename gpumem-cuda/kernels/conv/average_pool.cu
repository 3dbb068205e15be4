// Mean over windows of a feature map, and its gradient.
//
// COUNT                    elements that the entry point writes
// HEIGHT, WIDTH            of a plane of x; a plane is one channel of one sample
// OUT_HEIGHT, OUT_WIDTH    of a plane of y
// KERNEL_H, KERNEL_W       window
// STRIDE_H, STRIDE_W       elements from one window to the next
// PADDING_H, PADDING_W     elements by which the first window extends beyond the plane
// PADDED                   1 if zeros of the padding count in the mean
// ADD                      1 if the gradient is added to its tensor (+=), 0 if it overwrites it
// PACK                     channels that a thread works on: see planes.cuh
// CHANNELS, X_STRIDES, Y_STRIDES  given if maps are not dense: see layout.cuh
//
// The window at (o, p) covers rows o * STRIDE_H - PADDING_H up to KERNEL_H rows later, columns likewise, as far as they are inside the plane.
// size[o, p] is the number of elements covered, or with PADDED that of all within HEIGHT + 2 * PADDING_H times WIDTH + 2 * PADDING_W: elements
// beyond that, which the last window has if the number of windows was rounded up, never count.
//
// forward:  y[o, p] = sum over the window of x[h, w] / size[o, p]. x is [B * C, HEIGHT, WIDTH], y [B * C, OUT_HEIGHT, OUT_WIDTH].
// backward: dx[h, w] = sum over the windows that cover (h, w) of dy[o, p] / size[o, p], gathered by one thread for each element
#include "base.cuh"
#include "real.cuh"
#include "planes.cuh"

// Division by a constant is cheap in 32 bits only.
#if COUNT < 0x80000000ull
typedef u32 Index;
#else
typedef u64 Index;
#endif

// Returns the number of elements of the window at (o, p) that count.
static __device__ __forceinline__ float divisor(int o, int p) {
    const int top = o * STRIDE_H, left = p * STRIDE_W;
#if PADDED
    const int rows = min(top + KERNEL_H, HEIGHT + 2 * PADDING_H) - top;
    const int columns = min(left + KERNEL_W, WIDTH + 2 * PADDING_W) - left;
#else
    const int rows = min(top + KERNEL_H - PADDING_H, HEIGHT) - max(top - PADDING_H, 0);
    const int columns = min(left + KERNEL_W - PADDING_W, WIDTH) - max(left - PADDING_W, 0);
#endif
    // A window with padding only sums to 0, so that the divisor does not matter.
    return rows > 0 && columns > 0 ? (float)rows * (float)columns : 1.0f;
}

KERNEL(average_pool_forward)(const real *x, real *y) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT / PACK) return;
    const Site at = site(i, OUT_HEIGHT, OUT_WIDTH);
    const int p = (int)at.column, o = (int)at.row;
    float sum[PACK] = {};
    for (int k = 0; k < KERNEL_H; k++) {
        const int h = o * STRIDE_H + k - PADDING_H;
        if (h < 0 || h >= HEIGHT) continue;
        for (int l = 0; l < KERNEL_W; l++) {
            const int w = p * STRIDE_W + l - PADDING_W;
            if (w < 0 || w >= WIDTH) continue;
            const Pack pack = load(x, x_place(at, (u32)h, (u32)w));
#pragma unroll
            for (int e = 0; e < PACK; e++) sum[e] += element(pack, e);
        }
    }
    const float size = divisor(o, p);
#pragma unroll
    for (int e = 0; e < PACK; e++) sum[e] /= size;
    store(sum, y, y_place(at, at.row, at.column));
}

KERNEL(average_pool_backward)(const real *dy, real *dx) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT / PACK) return;
    const Site at = site(i, HEIGHT, WIDTH);
    const int w = (int)at.column, h = (int)at.row;
    const int before_h = h + PADDING_H - KERNEL_H + 1, before_w = w + PADDING_W - KERNEL_W + 1;
    const int first_o = before_h > 0 ? (before_h + STRIDE_H - 1) / STRIDE_H : 0;
    const int first_p = before_w > 0 ? (before_w + STRIDE_W - 1) / STRIDE_W : 0;
    const int last_o = min((h + PADDING_H) / STRIDE_H, OUT_HEIGHT - 1);
    const int last_p = min((w + PADDING_W) / STRIDE_W, OUT_WIDTH - 1);
    float sum[PACK] = {};
    for (int o = first_o; o <= last_o; o++)
        for (int p = first_p; p <= last_p; p++) {
            const Pack pack = load(dy, y_place(at, (u32)o, (u32)p));
            const float size = divisor(o, p);
#pragma unroll
            for (int e = 0; e < PACK; e++) sum[e] += element(pack, e) / size;
        }
    store_gradient(sum, dx, x_place(at, at.row, at.column));
}

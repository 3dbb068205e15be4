// Max pooling of feature maps, and its gradient.
//
// COUNT                    elements that the entry point writes
// HEIGHT, WIDTH            of a plane of x; a plane is one channel of one sample
// OUT_HEIGHT, OUT_WIDTH    of a plane of y
// KERNEL_H, KERNEL_W       window
// STRIDE_H, STRIDE_W       elements from one window to the next
// PADDING_H, PADDING_W     elements by which the first window extends beyond the plane
// DILATION_H, DILATION_W   elements of the map from one element of a window to the next
// ADAPTIVE                 1 for adaptive pooling, with a window of up to KERNEL_H x KERNEL_W for each element of the output: see adaptive.cuh.
//                          Strides and padding are not used then
// SAVES                    1 if the places of the maxima are saved
// BYTES                    1 if a place is a byte, 0 if it is a word
// RECTIFIER                function applied to the maxima, through which their gradient passes: see rectify.cuh
// ADD                      1 if the gradient is added to its tensor (+=), 0 if it overwrites it
// PACK                     channels that a thread works on: see planes.cuh
// BLOCKS_H, BLOCKS_W       given if a thread of backward works on the elements of x between two windows, STRIDE_H x STRIDE_W: the number of such
//                          blocks along each axis. Each window is then read once for all of them
// CHANNELS, X_STRIDES, Y_STRIDES, S_STRIDES  given if maps are not dense: channels, and strides of x, y and the places, see layout.cuh
//
// Element (k, l) of the window at (o, p) is at h = o * STRIDE_H + k * DILATION_H - PADDING_H, w likewise.
//
// forward:  y[o, p] = rectify(max over (k, l) of x[h, w]), places[o, p] = k * KERNEL_W + l of the maximum. x is
//           [B * C, HEIGHT, WIDTH], y and places are [B * C, OUT_HEIGHT, OUT_WIDTH]. A NaN is larger than anything.
// backward: dx[h, w] = sum of dy[o, p], times the slope of the rectifier at y[o, p], over the windows whose place is (h, w). It is gathered,
//           so that every element is summed by one thread, in the same order in every run.
#include "base.cuh"
#include "real.cuh"
#include "planes.cuh"
#include "rectify.cuh"
#include "adaptive.cuh"

// Division by a constant is cheap in 32 bits only.
#if COUNT < 0x80000000ull
typedef u32 Index;
#else
typedef u64 Index;
#endif

#if BYTES
typedef unsigned char Place;
#else
typedef u32 Place;
#endif

// The places of a thread's channels, in one access, or two if a pack has eight words.
struct alignas(PACK * sizeof(Place) < 16 ? PACK * sizeof(Place) : 16) Places {
    Place at[PACK];
};

#ifdef X_STRIDES
constexpr Strides S_MAP = S_STRIDES;
#else
constexpr Strides S_MAP = Y_MAP;
#endif

// Return the place of element k of the window at o, along each axis; -1 if it does not exist.
#if ADAPTIVE
static __device__ __forceinline__ int adaptive_of(int o, int k, int size, int windows) {
    const int at = (int)window_start(o, size, windows) + k;
    return at < (int)window_end(o, size, windows) ? at : -1;
}
static __device__ __forceinline__ int row_of(int o, int k) { return adaptive_of(o, k, HEIGHT, OUT_HEIGHT); }
static __device__ __forceinline__ int column_of(int p, int l) { return adaptive_of(p, l, WIDTH, OUT_WIDTH); }
#else
static __device__ __forceinline__ int row_of(int o, int k) { return o * STRIDE_H + k * DILATION_H - PADDING_H; }
static __device__ __forceinline__ int column_of(int p, int l) { return p * STRIDE_W + l * DILATION_W - PADDING_W; }
#endif

KERNEL(max_pool_forward)(const real *x, real *y, Place *places) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT / PACK) return;
    const Site at = site(i, OUT_HEIGHT, OUT_WIDTH);
    const int p = (int)at.column, o = (int)at.row;
    float best[PACK];
    u32 found[PACK];
#pragma unroll
    for (int e = 0; e < PACK; e++) {
        best[e] = -__int_as_float(0x7f800000);
        // No place yet: the first element is taken even if it is minus infinity.
        found[e] = 0xffffffffu;
    }
    for (int k = 0; k < KERNEL_H; k++) {
        const int h = row_of(o, k);
        if (h < 0 || h >= HEIGHT) continue;
        for (int l = 0; l < KERNEL_W; l++) {
            const int w = column_of(p, l);
            if (w < 0 || w >= WIDTH) continue;
            const u32 here = (u32)(k * KERNEL_W + l);
            const Pack pack = load(x, x_place(at, (u32)h, (u32)w));
#pragma unroll
            for (int e = 0; e < PACK; e++) {
                const float value = element(pack, e);
                if (value > best[e] || value != value || found[e] == 0xffffffffu) {
                    best[e] = value;
                    found[e] = here;
                }
            }
        }
    }
#pragma unroll
    for (int e = 0; e < PACK; e++) best[e] = rectify(best[e]);
    store(best, y, y_place(at, at.row, at.column));
#if SAVES
    Places kept;
#pragma unroll
    for (int e = 0; e < PACK; e++) kept.at[e] = (Place)found[e];
    ((Places *)places)[place(S_MAP, at, at.row, at.column) / PACK] = kept;
#endif
}

// Adds the gradients of maxima whose place is `here`. y is the rectifier's output, and dy its gradient.
static __device__ __forceinline__ void
add_from(const Site &at, u32 o, u32 p, u32 here, const real *dy, const Place *places, const real *y, float (&sum)[PACK]) {
    const Places found = ((const Places *)places)[place(S_MAP, at, o, p) / PACK];
    bool any = false;
#pragma unroll
    for (int e = 0; e < PACK; e++) any |= found.at[e] == here;
    if (!any) return;
    const Pack gradients = load(dy, y_place(at, o, p));
    Pack outputs = gradients;
    if (!SAME<RECTIFIER, Identity>) outputs = load(y, y_place(at, o, p));
#pragma unroll
    for (int e = 0; e < PACK; e++) {
        float gradient = element(gradients, e);
        if (!SAME<RECTIFIER, Identity>) gradient *= rectifier_slope(element(outputs, e));
        if (found.at[e] == here) sum[e] += gradient;
    }
}

#ifdef BLOCKS_H

KERNEL(max_pool_backward)(const real *dy, const Place *places, const real *y, real *dx) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT / PACK / (HEIGHT * WIDTH) * BLOCKS_H * BLOCKS_W) return;
    const Site at = site(i, BLOCKS_H, BLOCKS_W);
    // The window that begins at the block. Only it and some before it extend into the block.
    const int own_o = (int)at.row + PADDING_H / STRIDE_H, own_p = (int)at.column + PADDING_W / STRIDE_W;
    float sums[STRIDE_H][STRIDE_W][PACK] = {};
#pragma unroll
    for (int m = (KERNEL_H - 1) / STRIDE_H; m >= 0; m--)
#pragma unroll
        for (int n = (KERNEL_W - 1) / STRIDE_W; n >= 0; n--) {
            const int o = own_o - m, p = own_p - n;
            if (o < 0 || o >= OUT_HEIGHT || p < 0 || p >= OUT_WIDTH) continue;
            const Places found = ((const Places *)places)[place(S_MAP, at, (u32)o, (u32)p) / PACK];
            const Pack gradients = load(dy, y_place(at, (u32)o, (u32)p));
            Pack outputs = gradients;
            if (!SAME<RECTIFIER, Identity>) outputs = load(y, y_place(at, (u32)o, (u32)p));
#pragma unroll
            for (int e = 0; e < PACK; e++) {
                float gradient = element(gradients, e);
                if (!SAME<RECTIFIER, Identity>) gradient *= rectifier_slope(element(outputs, e));
#pragma unroll
                for (int h = 0; h < STRIDE_H && m * STRIDE_H + h < KERNEL_H; h++)
#pragma unroll
                    for (int w = 0; w < STRIDE_W && n * STRIDE_W + w < KERNEL_W; w++)
                        if (found.at[e] == (u32)((m * STRIDE_H + h) * KERNEL_W + n * STRIDE_W + w)) sums[h][w][e] += gradient;
            }
        }
#pragma unroll
    for (int h = 0; h < STRIDE_H; h++)
#pragma unroll
        for (int w = 0; w < STRIDE_W; w++) {
            const int row = own_o * STRIDE_H - PADDING_H + h, column = own_p * STRIDE_W - PADDING_W + w;
            if (row < 0 || row >= HEIGHT || column < 0 || column >= WIDTH) continue;
            store_gradient(sums[h][w], dx, x_place(at, (u32)row, (u32)column));
        }
}

#else

KERNEL(max_pool_backward)(const real *dy, const Place *places, const real *y, real *dx) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT / PACK) return;
    const Site at = site(i, HEIGHT, WIDTH);
    const int w = (int)at.column, h = (int)at.row;
#if ADAPTIVE
    float sum[PACK] = {};
    const u32 end_o = end_of_windows(h, HEIGHT, OUT_HEIGHT), end_p = end_of_windows(w, WIDTH, OUT_WIDTH);
    for (u32 o = first_window(h, HEIGHT, OUT_HEIGHT); o < end_o; o++) {
        const u32 k = h - window_start(o, HEIGHT, OUT_HEIGHT);
        for (u32 p = first_window(w, WIDTH, OUT_WIDTH); p < end_p; p++) {
            const u32 l = w - window_start(p, WIDTH, OUT_WIDTH);
            add_from(at, o, p, k * KERNEL_W + l, dy, places, y, sum);
        }
    }
#else
    // Windows that cover this element start at most their span before it. With a dilation some of them skip it.
    const int before_h = h + PADDING_H - (KERNEL_H - 1) * DILATION_H;
    const int before_w = w + PADDING_W - (KERNEL_W - 1) * DILATION_W;
    const int first_o = before_h > 0 ? (before_h + STRIDE_H - 1) / STRIDE_H : 0;
    const int first_p = before_w > 0 ? (before_w + STRIDE_W - 1) / STRIDE_W : 0;
    const int last_o = min((h + PADDING_H) / STRIDE_H, OUT_HEIGHT - 1);
    const int last_p = min((w + PADDING_W) / STRIDE_W, OUT_WIDTH - 1);
    float sum[PACK] = {};
    for (int o = first_o; o <= last_o; o++) {
        const int k = h + PADDING_H - o * STRIDE_H;
        if (DILATION_H > 1 && k % DILATION_H != 0) continue;
        for (int p = first_p; p <= last_p; p++) {
            const int l = w + PADDING_W - p * STRIDE_W;
            if (DILATION_W > 1 && l % DILATION_W != 0) continue;
            const u32 here = (u32)(k / DILATION_H * KERNEL_W + l / DILATION_W);
            add_from(at, (u32)o, (u32)p, here, dy, places, y, sum);
        }
    }
#endif
    store_gradient(sum, dx, x_place(at, at.row, at.column));
}

#endif

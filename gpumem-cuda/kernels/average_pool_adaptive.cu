// Mean over as many windows of a feature map as the output has elements, and its gradient; with one window, the mean over the
// whole plane.
//
// COUNT                   elements of what the entry point writes
// HEIGHT, WIDTH           of a plane of x; a plane is one channel of one sample
// OUT_HEIGHT, OUT_WIDTH   of a plane of y
// LANES                   threads that add up one window: 32 where windows are large, else 1
// ADD                     whether the gradient is added to what is there
// CHANNELS, X_STRIDES, Y_STRIDES  where maps are not dense: see layout.cuh
//
// The window at (o, p) covers rows floor(o * HEIGHT / OUT_HEIGHT) up to, not including, ceil((o + 1) * HEIGHT / OUT_HEIGHT),
// columns likewise; size[o, p] is the number of its elements. Windows may overlap.
//
// forward:  y[o, p] = sum over the window of x[h, w] / size[o, p]. x is [B * C, HEIGHT, WIDTH], y [B * C, OUT_HEIGHT, OUT_WIDTH].
// backward: dx[h, w] = sum over the windows that cover (h, w) of dy[o, p] / size[o, p], gathered by one thread an element
#include "base.cuh"
#include "real.cuh"
#include "planes.cuh"

// Divisions by constants are cheap in 32 bits only.
#if COUNT < 0x4000000ull
typedef u32 Index;
#else
typedef u64 Index;
#endif

// Four elements in one access, where a plane is a multiple of four.
struct alignas(4 * sizeof(real)) Four {
    real at[4];
};

static __device__ __forceinline__ u32 window_start(u32 o, u32 size, u32 windows) { return (u32)((u64)o * size / windows); }

static __device__ __forceinline__ u32 window_end(u32 o, u32 size, u32 windows) {
    return (u32)(((u64)(o + 1) * size + windows - 1) / windows);
}

KERNEL(average_pool_adaptive_forward)(const real *x, real *y) {
    // Whole warps take part in the sum, so that one beyond the end adds up the last element once more.
    const Index team = ((Index)blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    const Index i = team < COUNT ? team : (Index)(COUNT - 1);
    const u32 lane = threadIdx.x % LANES;
    const u64 plane = i / (OUT_HEIGHT * OUT_WIDTH);
    const u32 p = (u32)(i % OUT_WIDTH), o = (u32)(i / OUT_WIDTH % OUT_HEIGHT);
    float sum = 0.0f;
#if OUT_HEIGHT == 1 && OUT_WIDTH == 1 && !defined(X_STRIDES)
    x += x_place(plane, 0, 0);
    // The window is the plane: its rows lie one after the other.
    const u32 size = HEIGHT * WIDTH;
#if HEIGHT * WIDTH % 4 == 0
    for (u32 e = lane; e < size / 4; e += LANES) {
        const Four four = ((const Four *)x)[e];
        sum += (widen(four.at[0]) + widen(four.at[1])) + (widen(four.at[2]) + widen(four.at[3]));
    }
#else
    for (u32 e = lane; e < size; e += LANES) sum += widen(x[e]);
#endif
#else
    const u32 top = window_start(o, HEIGHT, OUT_HEIGHT), left = window_start(p, WIDTH, OUT_WIDTH);
    const u32 columns = window_end(p, WIDTH, OUT_WIDTH) - left;
    const u32 size = (window_end(o, HEIGHT, OUT_HEIGHT) - top) * columns;
    for (u32 e = lane; e < size; e += LANES) sum += widen(x[x_place(plane, top + e / columns, left + e % columns)]);
#endif
#if LANES == 32
    sum = warp_sum(sum);
#endif
    if (team < COUNT && lane == 0) narrow(sum / (float)size, &y[y_place(plane, o, p)]);
}

KERNEL(average_pool_adaptive_backward)(const real *dy, real *dx) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT) return;
    const u32 w = (u32)(i % WIDTH), h = (u32)(i / WIDTH % HEIGHT);
    const u64 plane = i / (HEIGHT * WIDTH);
    // Row h is in window o when o * HEIGHT < (h + 1) * OUT_HEIGHT and h * OUT_HEIGHT < (o + 1) * HEIGHT.
    const u32 first_o = window_start(h, OUT_HEIGHT, HEIGHT), end_o = window_end(h, OUT_HEIGHT, HEIGHT);
    const u32 first_p = window_start(w, OUT_WIDTH, WIDTH), end_p = window_end(w, OUT_WIDTH, WIDTH);
    float sum = 0.0f;
    for (u32 o = first_o; o < end_o; o++) {
        const u32 rows = window_end(o, HEIGHT, OUT_HEIGHT) - window_start(o, HEIGHT, OUT_HEIGHT);
        for (u32 p = first_p; p < end_p; p++) {
            const u32 columns = window_end(p, WIDTH, OUT_WIDTH) - window_start(p, WIDTH, OUT_WIDTH);
            sum += widen(dy[y_place(plane, o, p)]) / (float)(rows * columns);
        }
    }
    real *to = &dx[x_place(plane, h, w)];
#if ADD
    sum += widen(*to);
#endif
    narrow(sum, to);
}

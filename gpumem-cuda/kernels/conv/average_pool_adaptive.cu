// Adaptive average pooling and its gradient: a window for each element of the output. With one window it is the mean over the whole plane.
//
// COUNT                   elements that the entry point writes
// HEIGHT, WIDTH           of a plane of x; a plane is one channel of one sample
// OUT_HEIGHT, OUT_WIDTH   of a plane of y
// LANES                   threads that sum one window: 32 for large windows, 4 for smaller ones with packs, else 1
// PACK                    channels that a thread works on: see planes.cuh
// ADD                     1 if the gradient is added to its tensor (+=), 0 if it overwrites it
// CHANNELS, X_STRIDES, Y_STRIDES  given if maps are not dense: see layout.cuh
//
// The window at (o, p) covers rows floor(o * HEIGHT / OUT_HEIGHT) up to, not including, ceil((o + 1) * HEIGHT / OUT_HEIGHT),
// columns likewise; size[o, p] is the number of its elements. Windows may overlap.
//
// forward:  y[o, p] = sum over the window of x[h, w] / size[o, p]. x is [B * C, HEIGHT, WIDTH], y [B * C, OUT_HEIGHT, OUT_WIDTH].
// backward: dx[h, w] = sum over the windows that cover (h, w) of dy[o, p] / size[o, p], gathered by one thread for each element
#include "base.cuh"
#include "real.cuh"
#include "planes.cuh"
#include "adaptive.cuh"

// Division by a constant is cheap in 32 bits only.
#if COUNT < 0x4000000ull
typedef u32 Index;
#else
typedef u64 Index;
#endif

// Computes a lane's sum of a window.
static __device__ __forceinline__ void add_up(const Site &at, u32 lane, const real *x, float (&sum)[PACK]) {
    const u32 top = window_start(at.row, HEIGHT, OUT_HEIGHT), left = window_start(at.column, WIDTH, OUT_WIDTH);
    const u32 rows = window_end(at.row, HEIGHT, OUT_HEIGHT) - top, columns = window_end(at.column, WIDTH, OUT_WIDTH) - left;
    // Lanes take elements in turns; the next place is found without a division.
    const u32 down = LANES / columns, right = LANES % columns;
    u32 row = lane / columns, column = lane % columns;
#pragma unroll 4
    for (u32 e = lane; e < rows * columns; e += LANES) {
        const Pack pack = load(x, x_place(at, top + row, left + column));
#pragma unroll
        for (int k = 0; k < PACK; k++) sum[k] += element(pack, k);
        row += down;
        column += right;
        if (column >= columns) {
            column -= columns;
            row++;
        }
    }
}

static __device__ __forceinline__ float size_of(const Site &at) {
    const u32 rows = window_end(at.row, HEIGHT, OUT_HEIGHT) - window_start(at.row, HEIGHT, OUT_HEIGHT);
    const u32 columns = window_end(at.column, WIDTH, OUT_WIDTH) - window_start(at.column, WIDTH, OUT_WIDTH);
    return (float)(rows * columns);
}

#if PACK == 1

#if OUT_HEIGHT == 1 && OUT_WIDTH == 1 && !defined(X_STRIDES) && HEIGHT * WIDTH % 4 == 0

// Four elements in one access, if a plane is a multiple of four.
struct alignas(4 * sizeof(real)) Four {
    real at[4];
};

// The window is the whole plane, so its rows are adjacent.
static __device__ __forceinline__ float sum_of(const Site &at, u32 lane, const real *x) {
    x += x_place(at, 0, 0);
    float sum = 0.0f;
    for (u32 e = lane; e < HEIGHT * WIDTH / 4; e += LANES) {
        const Four four = ((const Four *)x)[e];
        sum += (widen(four.at[0]) + widen(four.at[1])) + (widen(four.at[2]) + widen(four.at[3]));
    }
    return sum;
}

#else

static __device__ __forceinline__ float sum_of(const Site &at, u32 lane, const real *x) {
    float sum[1] = {};
    add_up(at, lane, x, sum);
    return sum[0];
}

#endif

KERNEL(average_pool_adaptive_forward)(const real *x, real *y) {
    // Whole warps take part in the sum, so one beyond the end sums the last window once more.
    const Index team = ((Index)blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    const Site at = site(team < COUNT ? team : (Index)(COUNT - 1), OUT_HEIGHT, OUT_WIDTH);
    const u32 lane = threadIdx.x % LANES;
    float sum = sum_of(at, lane, x);
#if LANES == 32
    sum = warp_sum(sum);
#endif
    if (team < COUNT && lane == 0) narrow(sum / size_of(at), &y[y_place(at, at.row, at.column)]);
}

#else

// Adjacent packs that neighbouring lanes of a warp work on, if several lanes share a window.
constexpr u32 WIDE = LANES == 1 ? 1 : 8;

// Adds up the sums of all lanes of a window in the first one, in blocks of 256 threads.
static __device__ __forceinline__ void join_lanes(u32 lane, float (&sum)[PACK]) {
#if LANES > 1
#pragma unroll
    for (int k = 0; k < PACK; k++) {
        sum[k] += __shfl_xor_sync(FULL_WARP, sum[k], 8);
        sum[k] += __shfl_xor_sync(FULL_WARP, sum[k], 16);
    }
#endif
#if LANES == 32
    __shared__ float scratch[8][WIDE][PACK];
    const u32 warp = threadIdx.x / 32, own = threadIdx.x % WIDE;
#pragma unroll
    for (int k = 0; k < PACK; k++)
        if (lane % 4 == 0) scratch[warp][own][k] = sum[k];
    __syncthreads();
    if (lane > 0) return;
#pragma unroll
    for (int other = 1; other < 8; other++)
#pragma unroll
        for (int k = 0; k < PACK; k++) sum[k] += scratch[other][own][k];
#endif
}

KERNEL(average_pool_adaptive_forward)(const real *x, real *y) {
    const Index thread = (Index)blockIdx.x * blockDim.x + threadIdx.x, packs = (Index)(COUNT / PACK);
    const Index team = thread / (LANES * WIDE) * WIDE + thread % WIDE;
    const u32 lane = threadIdx.x % (LANES * WIDE) / WIDE;
    // Whole blocks take part in the sum, as above.
    const Site at = site(team < packs ? team : packs - 1, OUT_HEIGHT, OUT_WIDTH);
    float sum[PACK] = {};
    add_up(at, lane, x, sum);
    join_lanes(lane, sum);
    if (team >= packs || lane > 0) return;
    const float size = size_of(at);
#pragma unroll
    for (int k = 0; k < PACK; k++) sum[k] /= size;
    store(sum, y, y_place(at, at.row, at.column));
}

#endif

KERNEL(average_pool_adaptive_backward)(const real *dy, real *dx) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT / PACK) return;
    const Site at = site(i, HEIGHT, WIDTH);
    const u32 w = at.column, h = at.row;
    // Row h is in window o if o * HEIGHT < (h + 1) * OUT_HEIGHT and h * OUT_HEIGHT < (o + 1) * HEIGHT.
    const u32 first_o = window_start(h, OUT_HEIGHT, HEIGHT), end_o = window_end(h, OUT_HEIGHT, HEIGHT);
    const u32 first_p = window_start(w, OUT_WIDTH, WIDTH), end_p = window_end(w, OUT_WIDTH, WIDTH);
    float sum[PACK] = {};
    for (u32 o = first_o; o < end_o; o++) {
        const u32 rows = window_end(o, HEIGHT, OUT_HEIGHT) - window_start(o, HEIGHT, OUT_HEIGHT);
        for (u32 p = first_p; p < end_p; p++) {
            const u32 columns = window_end(p, WIDTH, OUT_WIDTH) - window_start(p, WIDTH, OUT_WIDTH);
            const Pack pack = load(dy, y_place(at, o, p));
            const float size = (float)(rows * columns);
#pragma unroll
            for (int k = 0; k < PACK; k++) sum[k] += element(pack, k) / size;
        }
    }
    store_gradient(sum, dx, x_place(at, h, w));
}

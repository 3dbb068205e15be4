// Padding or cropping of maps, and the gradient.
//
// COUNT                    elements that the entry point writes
// HEIGHT, WIDTH            of a plane of x; a plane is one channel of one sample
// OUT_HEIGHT, OUT_WIDTH    of a plane of y
// BEYOND                   mode of the elements beyond the edges of x: Constant, Reflect, Replicate or Circular
// VALUE                    the number there, for Constant
// BEFORE_H, BEFORE_W       rows and columns before those of x; below 0 if x is cropped
// ADD                      1 if the gradient is added to its tensor (+=), 0 if it overwrites it
// PACK                     channels that a thread works on: see planes.cuh
// CHANNELS, X_STRIDES, Y_STRIDES  given if maps are not dense: see layout.cuh
//
// forward:  y[o, p] = x[row(o), column(p)], or VALUE if there is no such element. x is [B * C, HEIGHT, WIDTH], y
//           [B * C, OUT_HEIGHT, OUT_WIDTH].
// backward: dx[h, w] = sum of dy over all copies of (h, w), gathered by one thread for each element
#include "base.cuh"
#include "real.cuh"
#include "planes.cuh"

// Division by a constant is cheap in 32 bits only.
#if COUNT < 0x80000000ull
typedef u32 Index;
#else
typedef u64 Index;
#endif

// A mode, along an axis of `size` elements. `place` returns the element at a place that may be beyond the edges, -1 for none. `copies` returns how
// often element h may occur in y, and `copy` the k-th of those places, which may be beyond the edges of y.
struct Constant {
    static __device__ __forceinline__ int place(int at, int size) { return at < 0 || at >= size ? -1 : at; }
    static __device__ __forceinline__ int copies(int, int, int, int) { return 1; }
    static __device__ __forceinline__ int copy(int, int h, int, int) { return h; }
};

// The copies are a reflection at the first element, the element itself, and a reflection at the last element. The first and last element themselves
// have no such reflection.
struct Reflect {
    static __device__ __forceinline__ int place(int at, int size) { return at < 0 ? -at : at < size ? at : 2 * (size - 1) - at; }
    static __device__ __forceinline__ int copies(int, int, int, int) { return 3; }
    static __device__ __forceinline__ int copy(int k, int h, int size, int nowhere) {
        if (k == 1) return h;
        if (k == 0) return h == 0 ? nowhere : -h;
        return h == size - 1 ? nowhere : 2 * (size - 1) - h;
    }
};

// The outermost elements are repeated beyond the edges.
struct Replicate {
    static __device__ __forceinline__ int place(int at, int size) { return at < 0 ? 0 : at < size ? at : size - 1; }
    static __device__ __forceinline__ int copies(int h, int size, int before, int outputs) {
        return 1 + (h == 0 ? before : 0) + (h == size - 1 ? outputs - before - size : 0);
    }
    static __device__ __forceinline__ int copy(int k, int h, int, int nowhere) { return h == 0 ? nowhere + 1 + k : h + k; }
};

struct Circular {
    static __device__ __forceinline__ int place(int at, int size) { return at < 0 ? at + size : at < size ? at : at - size; }
    static __device__ __forceinline__ int copies(int, int, int, int) { return 3; }
    static __device__ __forceinline__ int copy(int k, int h, int size, int) { return h + (k - 1) * size; }
};

KERNEL(pad_forward)(const real *x, real *y) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT / PACK) return;
    const Site at = site(i, OUT_HEIGHT, OUT_WIDTH);
    const int h = BEYOND::place((int)at.row - BEFORE_H, HEIGHT), w = BEYOND::place((int)at.column - BEFORE_W, WIDTH);
    Pack pack;
    if (h >= 0 && w >= 0) {
        pack = load(x, x_place(at, (u32)h, (u32)w));
    } else {
#pragma unroll
        for (int e = 0; e < PACK; e++) put((float)VALUE, pack, e);
    }
    store(pack, y, y_place(at, at.row, at.column));
}

// Returns the k-th row or column of y that is element h of x, which may not exist.
static __device__ __forceinline__ int output_of(int k, int h, int size, int before) {
    // A place before all of y means that there is none.
    return BEYOND::copy(k, h, size, -before - 1) + before;
}

KERNEL(pad_backward)(const real *dy, real *dx) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT / PACK) return;
    const Site at = site(i, HEIGHT, WIDTH);
    const int h = (int)at.row, w = (int)at.column;
    const int rows = BEYOND::copies(h, HEIGHT, BEFORE_H, OUT_HEIGHT), columns = BEYOND::copies(w, WIDTH, BEFORE_W, OUT_WIDTH);
    float sum[PACK] = {};
    for (int k = 0; k < rows; k++) {
        const int o = output_of(k, h, HEIGHT, BEFORE_H);
        if (o < 0 || o >= OUT_HEIGHT) continue;
        for (int l = 0; l < columns; l++) {
            const int p = output_of(l, w, WIDTH, BEFORE_W);
            if (p < 0 || p >= OUT_WIDTH) continue;
            const Pack pack = load(dy, y_place(at, (u32)o, (u32)p));
#pragma unroll
            for (int e = 0; e < PACK; e++) sum[e] += element(pack, e);
        }
    }
    store_gradient(sum, dx, x_place(at, at.row, at.column));
}

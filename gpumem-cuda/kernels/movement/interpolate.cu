// Interpolation of a map to another size, and its gradient.
//
// COUNT                    elements that the entry point writes
// HEIGHT, WIDTH            of a plane of x; a plane is one channel of one sample
// OUT_HEIGHT, OUT_WIDTH    of a plane of y
// BETWEEN                  method of interpolation: Nearest, Linear or Cubic
// START_H, STEP_H          row o of y is at START_H + o * STEP_H in x, in units of 2^-32 of a row. For Nearest the unit is rows, and START_H is
//                          added to o: 0, or 0.5 for the middles of rows
// START_W, STEP_W          as START_H and STEP_H, for columns
// ADD                      1 if the gradient is added to its tensor (+=), 0 if it overwrites it
// PACK                     channels that a thread works on: see planes.cuh
// CHANNELS, X_STRIDES, Y_STRIDES  given if maps are not dense: see layout.cuh
//
// forward:  y[o, p] = sum over h and w of a[o, h] * b[p, w] * x[h, w], where a and b have one, two or four non-zero weights a row.
//           Beyond its edges x repeats its outermost elements. x is [B * C, HEIGHT, WIDTH], y [B * C, OUT_HEIGHT, OUT_WIDTH].
// backward: dx[h, w] = sum over o and p of a[o, h] * b[p, w] * dy[o, p], gathered by one thread for each element
//
// Places are integers, so that both passes compute the same ones, however the code is compiled.
#include "base.cuh"
#include "real.cuh"
#include "planes.cuh"

// Division by a constant is cheap in 32 bits only.
#if COUNT < 0x80000000ull
typedef u32 Index;
#else
typedef u64 Index;
#endif

typedef long long i64;

// The elements of x that one of y reads along an axis, and their weights.
template <int N> struct Taps {
    u32 at[N];
    float weight[N];
};

// The elements of y from `first` up to, not including, `end`.
struct Range {
    u32 first, end;
};

// Returns the element of x at a place, or the outermost one.
static __device__ __forceinline__ u32 inside(i64 place, u32 size) { return place < 0 ? 0 : place < size ? (u32)place : size - 1; }

// Returns the fraction of a place beyond its element.
static __device__ __forceinline__ float fraction(i64 place) { return (float)(u32)place * 2.3283064365386963e-10f; }

// Returns the first element of y at or after an element of x.
static __device__ __forceinline__ u32 first_behind(i64 element, i64 start, i64 step, u32 outputs) {
    const i64 distance = element * 0x100000000ll - start;
    if (distance <= 0) return 0;
    const u64 first = ((u64)distance + (u64)step - 1) / (u64)step;
    return first < outputs ? (u32)first : outputs;
}

// Returns the elements of y that may read element h of x: those from BEFORE elements before it to AFTER elements after it. At the edges they may be
// anywhere beyond.
template <int BEFORE, int AFTER>
static __device__ __forceinline__ Range readers(u32 h, i64 start, i64 step, u32 size, u32 outputs) {
    if (step == 0) return {0, outputs};
    return {
        h == 0 ? 0 : first_behind((i64)h - BEFORE, start, step, outputs),
        h == size - 1 ? outputs : first_behind((i64)h + AFTER, start, step, outputs),
    };
}

// The element at or before a place, which is rounded as PyTorch rounds it.
struct Nearest {
    static __device__ __forceinline__ Taps<1> taps(u32 o, float middle, float step, u32 size) {
        return {{inside((i64)(((float)o + middle) * step), size)}, {1.0f}};
    }

    // Wide enough for rounding errors.
    static __device__ __forceinline__ Range range(u32 h, float, float step, u32 size, u32 outputs) {
        const float first = (float)h / step, end = (float)(h + 1) / step, slack = 2.0f + end * 4.8e-7f;
        return {
            first > slack ? (u32)(first - slack) : 0,
            h == size - 1 || end + slack >= (float)outputs ? outputs : (u32)(end + slack),
        };
    }
};

struct Linear {
    static __device__ __forceinline__ Taps<2> taps(u32 o, i64 start, i64 step, u32 size) {
        const i64 place = start + o * step;
        // A place before the first element reads that element.
        if (place <= 0) return {{0, 0}, {1.0f, 0.0f}};
        const float rest = fraction(place);
        return {{inside(place >> 32, size), inside((place >> 32) + 1, size)}, {1.0f - rest, rest}};
    }

    static __device__ __forceinline__ Range range(u32 h, i64 start, i64 step, u32 size, u32 outputs) {
        return readers<1, 1>(h, start, step, size, outputs);
    }
};

// With PyTorch's a = -0.75.
struct Cubic {
    // Return the weights of an element less than 1 away, and of one less than 2 away.
    static __device__ __forceinline__ float near(float distance) { return (1.25f * distance - 2.25f) * distance * distance + 1.0f; }
    static __device__ __forceinline__ float far(float distance) {
        return ((-0.75f * distance + 3.75f) * distance - 6.0f) * distance + 3.0f;
    }

    static __device__ __forceinline__ Taps<4> taps(u32 o, i64 start, i64 step, u32 size) {
        const i64 place = start + o * step, whole = place >> 32;
        const float rest = fraction(place);
        return {
            {inside(whole - 1, size), inside(whole, size), inside(whole + 1, size), inside(whole + 2, size)},
            {far(1.0f + rest), near(rest), near(1.0f - rest), far(2.0f - rest)},
        };
    }

    static __device__ __forceinline__ Range range(u32 h, i64 start, i64 step, u32 size, u32 outputs) {
        return readers<2, 2>(h, start, step, size, outputs);
    }
};

static __device__ __forceinline__ auto row_taps(u32 o) { return BETWEEN::taps(o, START_H, STEP_H, HEIGHT); }
static __device__ __forceinline__ auto column_taps(u32 p) { return BETWEEN::taps(p, START_W, STEP_W, WIDTH); }

// Returns the weight of an element of x. At the edges it may stand for several.
template <int N> static __device__ __forceinline__ float weight(const Taps<N> &taps, u32 element) {
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < N; k++) sum += taps.at[k] == element ? taps.weight[k] : 0.0f;
    return sum;
}

// Computes one element of y from x.
template <int N>
static __device__ __forceinline__ void interpolate(
    const Site &at, const Taps<N> &rows, const Taps<N> &columns, const real *x, float (&sum)[PACK]) {
#pragma unroll
    for (int k = 0; k < N; k++)
#pragma unroll
        for (int l = 0; l < N; l++) {
            const Pack pack = load(x, x_place(at, rows.at[k], columns.at[l]));
            const float both = rows.weight[k] * columns.weight[l];
#pragma unroll
            for (int e = 0; e < PACK; e++) sum[e] += both * element(pack, e);
        }
}

KERNEL(interpolate_forward)(const real *x, real *y) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT / PACK) return;
    const Site at = site(i, OUT_HEIGHT, OUT_WIDTH);
    float sum[PACK] = {};
    interpolate(at, row_taps(at.row), column_taps(at.column), x, sum);
    store(sum, y, y_place(at, at.row, at.column));
}

KERNEL(interpolate_backward)(const real *dy, real *dx) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT / PACK) return;
    const Site at = site(i, HEIGHT, WIDTH);
    const Range rows = BETWEEN::range(at.row, START_H, STEP_H, HEIGHT, OUT_HEIGHT);
    const Range columns = BETWEEN::range(at.column, START_W, STEP_W, WIDTH, OUT_WIDTH);
    float sum[PACK] = {};
    for (u32 o = rows.first; o < rows.end; o++) {
        const float row_weight = weight(row_taps(o), at.row);
        for (u32 p = columns.first; p < columns.end; p++) {
            const float both = row_weight * weight(column_taps(p), at.column);
            // Both ranges may be wider than the elements that are read.
            if (both == 0.0f) continue;
            const Pack pack = load(dy, y_place(at, o, p));
#pragma unroll
            for (int e = 0; e < PACK; e++) sum[e] += both * element(pack, e);
        }
    }
    store_gradient(sum, dx, x_place(at, at.row, at.column));
}

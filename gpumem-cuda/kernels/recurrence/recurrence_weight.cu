// The gradient of the recurrent weight of one direction, after recurrence.cu has processed all time steps: dW = sum of ds[t]^T h[t - 1] over
// samples and time steps but the first. Also that of its projection, dW_r = sum of dh[t]^T u[t] over samples and time steps, with u = o tanh(c).
//
// The constants are those of recurrence.cuh and tile.cuh, and
// DIRECTION  0, or 1 for the direction from the last time step to the first
//
// Grid: along x a block for each tile of dW or dW_r.
#include "base.cuh"
#include "real.cuh"
#include "recurrence.cuh"
#include "tile.cuh"

// Terms of a sample's sum, at least 1 for divisions, and of the whole sum.
constexpr u32 TERMS = STEPS > 1 ? STEPS - 1 : 1;
constexpr u32 DEPTH = (u32)(BATCH * (STEPS - 1));
constexpr u32 ACROSS = (OUTPUTS + TILE_N - 1) / TILE_N;

// Sample and time step of a term. The first time step of a direction has none before it.
struct Term {
    u64 sample;
    u32 t;
    bool inside;
    __device__ __forceinline__ Term(u32 k, u32 back) {
        sample = k / TERMS;
        t = on_the_way(DIRECTION, k % TERMS + 1 - back);
        inside = k < DEPTH;
    }
};

struct Inside {
    u32 at;
    bool inside;
};

struct Slopes {
    const real *dp;
    const float *rows;

    typedef Inside Place;
    typedef Term Depth;
    static __device__ __forceinline__ Place place(u32 e) { return {e, e < WIDTH}; }
    static __device__ __forceinline__ Depth depth(u32 k) { return Term(k, 0); }
    __device__ __forceinline__ real at(const Place &place, const Depth &depth) const {
        if (!place.inside || !depth.inside) return real();
        if (place.at < SHARED_WIDTH) return dp[(depth.sample * STEPS + depth.t) * WIDTH + place.at];
        real of_n;
        narrow(slope(dp, rows, DIRECTION, depth.sample, depth.t, place.at), &of_n);
        return of_n;
    }
};

struct Outputs {
    const real *y;

    typedef Inside Place;
    typedef Term Depth;
    static __device__ __forceinline__ Place place(u32 e) { return {e, e < OUTPUTS}; }
    static __device__ __forceinline__ Depth depth(u32 k) { return Term(k, 1); }
    __device__ __forceinline__ real at(const Place &place, const Depth &depth) const {
        if (!place.inside || !depth.inside) return real();
        return y[(depth.sample * STEPS + depth.t) * FEATURES + DIRECTION * OUTPUTS + place.at];
    }
};

// The result dW [ROWS, COLUMNS].
template <u32 ROWS, u32 COLUMNS> struct Result {
    real *dw;

    struct Column {
        real *dw;
    };
    static __device__ __forceinline__ u32 rows() { return ROWS; }
    static __device__ __forceinline__ u32 columns() { return COLUMNS; }
    __device__ __forceinline__ Column column(u32 n) const { return {dw + n}; }
    static __device__ __forceinline__ real *at(const Column &column, u32 m) { return column.dw + (u64)m * COLUMNS; }
    static __device__ __forceinline__ float bias(u32, u32) { return 0.0f; }
    static __device__ __forceinline__ float through(float sum) { return sum; }
};

KERNEL(__launch_bounds__(TILE_THREADS, TILE_RESIDENT) recurrence_weight)
(const real *dp, const float *rows, const real *y, real *dw) {
    __shared__ Tiles tiles;
    const u32 m = blockIdx.x / ACROSS * TILE_M, n = blockIdx.x % ACROSS * TILE_N;
    typename Carrier<false, TILE_M, false, Slopes>::Type left({dp, rows}, m);
    typename Carrier<false, TILE_N, false, Outputs>::Type right({y}, n);
    Sums sums;
    clear(sums);
    multiply(left, right, 0, DEPTH, tiles, sums);
    store<false>(Result<WIDTH, OUTPUTS>{dw}, m, n, tiles, sums);
}

// Consecutive rows of f32, WIDE numbers each.
template <u32 WIDE> struct Dense {
    const float *rows;

    typedef Inside Place;
    typedef Inside Depth;
    static __device__ __forceinline__ Place place(u32 e) { return {e, e < WIDE}; }
    static __device__ __forceinline__ Depth depth(u32 k) { return {k, k < (u32)(BATCH * STEPS)}; }
    __device__ __forceinline__ real at(const Place &place, const Depth &depth) const {
        real element = real();
        if (place.inside && depth.inside) narrow(rows[(u64)depth.at * WIDE + place.at], &element);
        return element;
    }
};

KERNEL(__launch_bounds__(TILE_THREADS, TILE_RESIDENT) recurrence_projection_weight)(const float *rows, real *dw) {
    constexpr u32 ACROSS_UNITS = (HIDDEN + TILE_N - 1) / TILE_N;
    __shared__ Tiles tiles;
    const u32 m = blockIdx.x / ACROSS_UNITS * TILE_M, n = blockIdx.x % ACROSS_UNITS * TILE_N;
    const Dense<OUTPUTS> slopes = {rows + room_of_outputs(DIRECTION, 0, 0)};
    const Dense<HIDDEN> units = {rows + room(DIRECTION, 0, 0)};
    typename Carrier<false, TILE_M, false, Dense<OUTPUTS>>::Type left(slopes, m);
    typename Carrier<false, TILE_N, false, Dense<HIDDEN>>::Type right(units, n);
    Sums sums;
    clear(sums);
    multiply(left, right, 0, (u32)(BATCH * STEPS), tiles, sums);
    store<false>(Result<OUTPUTS, HIDDEN>{dw}, m, n, tiles, sums);
}

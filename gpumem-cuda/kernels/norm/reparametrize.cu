// Reparametrised weights, such as weight norm: parts of v, each normalised, then scaled.
//
// OUTER, PARTS, INNER  v is [OUTER, PARTS, INNER]; a part has all elements at one index of the middle axis
// CENTER       1 if the mean is subtracted
// EPS          added to the variance, or to the mean square
// FACTOR       factor of all parts
// SCALE        1 if each part has a factor of its own, g
// WARP         1 if a warp works on a part, 0 if a block does
// NORM_REAL    number format of g
// ADD, ADD_G   1 if the gradient of v, or of g, is added to its tensor (+=), 0 if it overwrites it
//
// reparametrize:          w = FACTOR g n with n = (v - mean) rstd; `saved` may be absent, else it has means, with CENTER, and rstd
// reparametrize_backward: dg = FACTOR sum of dw n; dv = FACTOR g rstd (dw - mean(dw) - n mean(dw n)), without mean(dw) if CENTER
//                         is 0; either may be absent
#include "base.cuh"
#include "real.cuh"

typedef NORM_REAL Norm;

constexpr u64 LENGTH = (u64)OUTER * INNER;

// Number of a part's threads, index of this one among them, and their sum.
#if WARP
#define LANES 32
#define LANE (threadIdx.x & 31)
#define PART ((u64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5))
#define PART_SUM(x) warp_sum(x)
#else
#define LANES blockDim.x
#define LANE threadIdx.x
#define PART ((u64)blockIdx.x)
#define PART_SUM(x) block_sum(x, scratch)
#endif

// Returns the place of element `i` of a part.
static __device__ __forceinline__ u64 place(u64 part, u64 i) {
    return OUTER == 1 ? part * INNER + i : (i / INNER * PARTS + part) * INNER + i % INNER;
}

static __device__ __forceinline__ float factor_of(const Norm *g, u64 part) {
#if SCALE
    return (float)(FACTOR)*widen(g[part]);
#else
    return (float)(FACTOR);
#endif
}

KERNEL(__launch_bounds__(1024) reparametrize)(const real *v, const Norm *g, real *w, float *saved) {
#if !WARP
    __shared__ float scratch[32];
#endif
    const u64 part = PART;
    // Whole warps leave, and only if no barrier follows.
    if (part >= PARTS) return;
    float total = 0.0f, squares = 0.0f;
#if CENTER
    for (u64 i = LANE; i < LENGTH; i += LANES) total += widen(v[place(part, i)]);
    const float mean = PART_SUM(total) / (float)LENGTH;
#else
    const float mean = total;
#endif
    for (u64 i = LANE; i < LENGTH; i += LANES) {
        const float x = widen(v[place(part, i)]) - mean;
        squares += x * x;
    }
    const float rstd = 1.0f / sqrtf(PART_SUM(squares) / (float)LENGTH + (float)(EPS));
    if (saved != nullptr && LANE == 0) {
#if CENTER
        saved[part] = mean;
        saved[PARTS + part] = rstd;
#else
        saved[part] = rstd;
#endif
    }
    const float factor = factor_of(g, part);
    for (u64 i = LANE; i < LENGTH; i += LANES) {
        const u64 at = place(part, i);
        narrow(factor * ((widen(v[at]) - mean) * rstd), &w[at]);
    }
}

KERNEL(__launch_bounds__(1024) reparametrize_backward)(const real *dw, const real *v, const Norm *g, const float *saved, real *dv, Norm *dg) {
#if !WARP
    __shared__ float scratch[32];
#endif
    const u64 part = PART;
    // Whole warps leave, and only if no barrier follows.
    if (part >= PARTS) return;
    const float mean = CENTER ? saved[part] : 0.0f, rstd = saved[CENTER * PARTS + part];
    float sum = 0.0f, product = 0.0f;
    for (u64 i = LANE; i < LENGTH; i += LANES) {
        const u64 at = place(part, i);
        const float gradient = widen(dw[at]);
        sum += gradient;
        product += gradient * ((widen(v[at]) - mean) * rstd);
    }
    product = PART_SUM(product);
    sum = CENTER ? PART_SUM(sum) / (float)LENGTH : 0.0f;
    if (dg != nullptr && LANE == 0) {
        const float own = (float)(FACTOR)*product;
        narrow(ADD_G ? widen(dg[part]) + own : own, &dg[part]);
    }
    if (dv == nullptr) return;
    product /= (float)LENGTH;
    const float factor = factor_of(g, part) * rstd;
    for (u64 i = LANE; i < LENGTH; i += LANES) {
        const u64 at = place(part, i);
        const float normal = (widen(v[at]) - mean) * rstd, own = factor * (widen(dw[at]) - sum - normal * product);
        narrow(ADD ? widen(dv[at]) + own : own, &dv[at]);
    }
}
#undef LANES
#undef LANE
#undef PART
#undef PART_SUM

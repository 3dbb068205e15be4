// Joins of branches: sum, product, side by side; and the gradients of the last two.
//
// COUNT  elements of the output (add, multiply) or of the branch (concat)
// SAMPLE elements of a sample of the sum
// INPUTS how many of the sum's pointers are given
// SHARED bit k says that branch k of the sum has one sample for the whole batch
// OWN    how often the sum's output is a branch itself
// PART   elements of a row of the branch
// WHOLE  elements of a row of all branches together
// START  where the branch begins in such a row
// ADD    whether a gradient is added to what is there
// RECTIFIER what the sum goes through: see rectify.cuh
//
// add:             y = rectify(OWN * y + x0 + x1 + ..), y and branches [B, SAMPLE], shared branches [SAMPLE]
// multiply:        y = a * b, where y may be either; also the gradient of one branch, dx = dy * the other branch, where dx may be dy
// concat:          y[r, START + c] = x[r, c], x [COUNT / PART, PART], y [COUNT / PART, WHOLE]
// concat_backward: dx[r, c] = dy[r, START + c]
#include "base.cuh"
#include "real.cuh"
#include "rectify.cuh"

// Divisions by constants are cheap in 32 bits only.
#if COUNT < 0x80000000ull
typedef u32 Index;
#else
typedef u64 Index;
#endif

// Elements that a thread of each entry point works on, four in one access where all rows begin at a multiple of four.
#if SAMPLE % 4 == 0
constexpr int SUMMED = 4;
#else
constexpr int SUMMED = 1;
#endif
#if PART % 4 == 0 && WHOLE % 4 == 0 && START % 4 == 0
constexpr int MOVED = 4;
#else
constexpr int MOVED = 1;
#endif

// N elements in one access.
template <int N> struct alignas(N * sizeof(real)) Pack {
    real at[N];
};

template <int N> static __device__ __forceinline__ void accumulate(const real *x, u64 at, float sum[N]) {
    const Pack<N> pack = *(const Pack<N> *)(x + at);
#pragma unroll
    for (int e = 0; e < N; e++) sum[e] += widen(pack.at[e]);
}

KERNEL(add)(const real *x0, const real *x1, const real *x2, const real *x3, const real *x4, const real *x5, const real *x6,
            const real *x7, real *y) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT / SUMMED) return;
    const Index at = i * SUMMED;
    const real *branches[8] = {x0, x1, x2, x3, x4, x5, x6, x7};
    float sum[SUMMED] = {};
#if OWN > 0
    accumulate<SUMMED>(y, at, sum);
#pragma unroll
    for (int e = 0; e < SUMMED; e++) sum[e] *= OWN;
#endif
#pragma unroll
    for (int k = 0; k < INPUTS; k++) accumulate<SUMMED>(branches[k], SHARED >> k & 1 ? at % (Index)SAMPLE : at, sum);
    Pack<SUMMED> pack;
#pragma unroll
    for (int e = 0; e < SUMMED; e++) narrow(rectify(sum[e]), &pack.at[e]);
    *(Pack<SUMMED> *)(y + at) = pack;
}

static __device__ __forceinline__ void product(real a, real b, real *y) {
    float value = widen(a) * widen(b);
#if ADD
    value += widen(*y);
#endif
    narrow(value, y);
}

// A thread for each four elements.
KERNEL(multiply)(const real *a, const real *b, real *y) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    const u64 first = i * 4;
    if (first >= COUNT) return;
    if (first + 4 <= COUNT) {
        const Pack<4> left = ((const Pack<4> *)a)[i], right = ((const Pack<4> *)b)[i];
        Pack<4> out;
#if ADD
        out = ((const Pack<4> *)y)[i];
#endif
#pragma unroll
        for (int e = 0; e < 4; e++) product(left.at[e], right.at[e], &out.at[e]);
        ((Pack<4> *)y)[i] = out;
        return;
    }
    for (u64 e = first; e < COUNT; e++) product(a[e], b[e], &y[e]);
}

// Where element `at` of the branch is among all branches.
static __device__ __forceinline__ u64 place(Index at) { return at / (Index)PART * (u64)WHOLE + START + at % (Index)PART; }

KERNEL(concat)(const real *x, real *y) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT / MOVED) return;
    const Index at = i * MOVED;
    *(Pack<MOVED> *)(y + place(at)) = *(const Pack<MOVED> *)(x + at);
}

KERNEL(concat_backward)(const real *dy, real *dx) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT / MOVED) return;
    const Index at = i * MOVED;
    Pack<MOVED> pack = *(const Pack<MOVED> *)(dy + place(at));
#if ADD
    float sum[MOVED] = {};
    accumulate<MOVED>(dx, at, sum);
#pragma unroll
    for (int e = 0; e < MOVED; e++) narrow(sum[e] + widen(pack.at[e]), &pack.at[e]);
#endif
    *(Pack<MOVED> *)(dx + at) = pack;
}

// Values side by side, one at a time, and the gradient of one of them.
//
// COUNT elements of the value
// PART  elements of a row of it
// WHOLE elements of a row of all values together
// START where the value begins in such a row
// ADD   whether the gradient is added to what is there
//
// concat:          y[r, START + c] = x[r, c], x [COUNT / PART, PART], y [COUNT / PART, WHOLE]
// concat_backward: dx[r, c] = dy[r, START + c]
#include "base.cuh"
#include "real.cuh"

// Divisions by constants are cheap in 32 bits only.
#if COUNT < 0x80000000ull
typedef u32 Index;
#else
typedef u64 Index;
#endif

// Elements that a thread works on, four in one access where all rows begin at a multiple of four.
constexpr int MOVED = PART % 4 == 0 && WHOLE % 4 == 0 && START % 4 == 0 ? 4 : 1;

struct alignas(MOVED * sizeof(real)) Pack {
    real at[MOVED];
};

// Where element `at` of the value is among all values.
static __device__ __forceinline__ u64 place(Index at) { return at / (Index)PART * (u64)WHOLE + START + at % (Index)PART; }

KERNEL(concat)(const real *x, real *y) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT / MOVED) return;
    const Index at = i * MOVED;
    *(Pack *)(y + place(at)) = *(const Pack *)(x + at);
}

KERNEL(concat_backward)(const real *dy, real *dx) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT / MOVED) return;
    const Index at = i * MOVED;
    Pack pack = *(const Pack *)(dy + place(at));
#if ADD
    const Pack before = *(const Pack *)(dx + at);
#pragma unroll
    for (int e = 0; e < MOVED; e++) narrow(widen(before.at[e]) + widen(pack.at[e]), &pack.at[e]);
#endif
    *(Pack *)(dx + at) = pack;
}

// Concatenation along an axis, one value a launch, and the gradient of one of the values.
//
// COUNT elements of the value
// PART  elements of a row of it
// WHOLE elements of a row of all values together
// START index at which the value begins in such a row
// ADD   1 if the gradient is added to its tensor (+=), 0 if it overwrites it
// X_STRIDES, Y_STRIDES  given if maps that are concatenated are not dense: strides of the value and of the concatenation, see layout.cuh
// CHANNELS, HEIGHT, WIDTH, FIRST  given then: sizes of the value, and the index of its first channel in the concatenation
//
// A row has the elements of one index before the axis. With channels last and without gaps, a row is a pixel with its channels.
//
// concat:          y[r, START + c] = x[r, c], x [COUNT / PART, PART], y [COUNT / PART, WHOLE]
// concat_backward: dx[r, c] = dy[r, START + c]
#include "base.cuh"
#include "real.cuh"
#include "layout.cuh"

// Division by a constant is cheap in 32 bits only.
#if COUNT < 0x80000000ull
typedef u32 Index;
#else
typedef u64 Index;
#endif

static __device__ constexpr bool is_whole(int piece) {
    return PART % piece == 0 && WHOLE % piece == 0 && START % piece == 0;
}

// Elements that a thread moves: 16 bytes or four elements in one access, if all rows begin at a multiple of that.
constexpr int WIDEST = 16 / sizeof(real), MOVED = is_whole(WIDEST) ? WIDEST : is_whole(4) ? 4 : 1;

struct alignas(MOVED * sizeof(real)) Pack {
    real at[MOVED];
};

#ifdef X_STRIDES

// Return the places of element `i` of the value and in the concatenation.
static __device__ __forceinline__ u64 own(u64 i) { return in_order(Strides X_STRIDES, CHANNELS, HEIGHT, WIDTH, i); }
static __device__ __forceinline__ u64 among_all(u64 i) {
    return in_order(Strides Y_STRIDES, CHANNELS, HEIGHT, WIDTH, i) + FIRST * (Strides Y_STRIDES).channel;
}

KERNEL(concat)(const real *x, real *y) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < COUNT) y[among_all(i)] = x[own(i)];
}

KERNEL(concat_backward)(const real *dy, real *dx) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT) return;
    float value = widen(dy[among_all(i)]);
#if ADD
    value += widen(dx[own(i)]);
#endif
    narrow(value, &dx[own(i)]);
}

#else

// Returns the place of element `at` of the value in the concatenation.
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

#endif

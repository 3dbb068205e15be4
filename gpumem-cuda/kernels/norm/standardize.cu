// Input normalisation: channels less a mean, divided by a deviation, and the gradient.
//
// COUNT    elements
// CHANNELS, INNER  channels of a sample, and elements of each
// SCALES, SHIFTS   factor and addend of each channel, in braces, or one of both for all channels
// BYTES    1 if x is bytes
// ADD      1 if the gradient is added to its tensor (+=), 0 if it overwrites it
// X_STRIDES, Y_STRIDES  given if maps are not dense: see layout.cuh
// HEIGHT, WIDTH    given then: sizes of a channel
// PIXELS   pixels that a thread works on if x is dense and y is channels last; else 0
//
// standardize:          y[c] = SCALES[c] x[c] + SHIFTS[c]
// standardize_backward: dx[c] = SCALES[c] dy[c]
#include "base.cuh"
#include "real.cuh"
#include "layout.cuh"

typedef unsigned char u8;
#if BYTES
typedef u8 Input;
#else
typedef real Input;
#endif

static __device__ __forceinline__ float number(u8 x) { return (float)x; }
static __device__ __forceinline__ float number(real x) { return widen(x); }

// Division by a constant is cheap in 32 bits only.
#if COUNT < 0x80000000ull
typedef u32 Index;
#else
typedef u64 Index;
#endif

static __constant__ const float scales[] = SCALES, shifts[] = SHIFTS;

static __device__ __forceinline__ u32 line(u32 channel) { return sizeof scales == sizeof(float) ? 0 : channel; }
static __device__ __forceinline__ float scaled(float x, u32 channel) { return scales[line(channel)] * x; }
static __device__ __forceinline__ float standardized(float x, u32 channel) { return scaled(x, channel) + shifts[line(channel)]; }

template <class T, int MANY> struct alignas(sizeof(T) * MANY) Pieces {
    T at[MANY];
};

#if PIXELS > 0

// Grid: a thread for PIXELS pixels. It reads a word of each channel, and writes contiguous memory.
KERNEL(__launch_bounds__(1024) standardize)(const Input *x, real *y) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT / CHANNELS / PIXELS) return;
    const Index first = i * PIXELS;
    const Input *from = x + first / (Index)INNER * (CHANNELS * (u64)INNER) + first % (Index)INNER;
    Pieces<real, 4> out[PIXELS * CHANNELS / 4];
#pragma unroll
    for (u32 c = 0; c < CHANNELS; c++) {
        const Pieces<Input, PIXELS> pixels = *(const Pieces<Input, PIXELS> *)(from + c * (u64)INNER);
#pragma unroll
        for (u32 p = 0; p < PIXELS; p++) {
            const u32 at = p * CHANNELS + c;
            narrow(standardized(number(pixels.at[p]), c), &out[at / 4].at[at % 4]);
        }
    }
    Pieces<real, 4> *to = (Pieces<real, 4> *)(y + first * (u64)CHANNELS);
#pragma unroll
    for (u32 k = 0; k < PIXELS * CHANNELS / 4; k++) to[k] = out[k];
}

#elif defined X_STRIDES

static __device__ __forceinline__ u64 in_x(u64 i) { return in_order(Strides X_STRIDES, CHANNELS, HEIGHT, WIDTH, i); }
static __device__ __forceinline__ u64 in_y(u64 i) { return in_order(Strides Y_STRIDES, CHANNELS, HEIGHT, WIDTH, i); }

// Threads are in the order of y, channels innermost.
static __device__ __forceinline__ u64 place(u64 i) {
    const u64 pixel = i / CHANNELS;
    return (pixel / INNER * CHANNELS + i % CHANNELS) * INNER + pixel % INNER;
}

KERNEL(__launch_bounds__(1024) standardize)(const Input *x, real *y) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT) return;
    const u64 at = place(i);
    narrow(standardized(number(x[in_x(at)]), (u32)(i % CHANNELS)), &y[in_y(at)]);
}

KERNEL(__launch_bounds__(1024) standardize_backward)(const real *dy, real *dx) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT) return;
    const u64 at = place(i);
    float gradient = scaled(widen(dy[in_y(at)]), (u32)(i % CHANNELS));
#if ADD
    gradient += widen(dx[in_x(at)]);
#endif
    narrow(gradient, &dx[in_x(at)]);
}

#else

// Elements of one channel that a thread works on.
constexpr int WIDE = 16 / sizeof(real), PACK = INNER % WIDE == 0 ? WIDE : INNER % 4 == 0 ? 4 : 1;

static __device__ __forceinline__ u32 channel_of(Index element) { return (u32)(element / (Index)INNER % CHANNELS); }

KERNEL(__launch_bounds__(1024) standardize)(const Input *x, real *y) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT / PACK) return;
    const u32 channel = channel_of(i * PACK);
    const Pieces<Input, PACK> pack = ((const Pieces<Input, PACK> *)x)[i];
    Pieces<real, PACK> out;
#pragma unroll
    for (int k = 0; k < PACK; k++) narrow(standardized(number(pack.at[k]), channel), &out.at[k]);
    ((Pieces<real, PACK> *)y)[i] = out;
}

KERNEL(__launch_bounds__(1024) standardize_backward)(const real *dy, real *dx) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT / PACK) return;
    const u32 channel = channel_of(i * PACK);
    Pieces<real, PACK> pack = ((const Pieces<real, PACK> *)dy)[i];
#if ADD
    const Pieces<real, PACK> before = ((const Pieces<real, PACK> *)dx)[i];
#endif
#pragma unroll
    for (int k = 0; k < PACK; k++) {
        float gradient = scaled(widen(pack.at[k]), channel);
#if ADD
        gradient += widen(before.at[k]);
#endif
        narrow(gradient, &pack.at[k]);
    }
    ((Pieces<real, PACK> *)dx)[i] = pack;
}

#endif

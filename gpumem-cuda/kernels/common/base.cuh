// Definitions that all kernels share: 16-bit floats, reductions over a warp and a block, and the random numbers of gpumem_core::random.
//
// Everything is computed in f32. `real.cuh` defines the format of elements in memory.
#pragma once

// An entry point. The host shim of the tests defines its own.
#ifndef KERNEL
#define KERNEL(name) extern "C" __global__ void name
#endif

// A struct of plain numbers among the parameters, which is read directly from constant memory. Cards older than Volta lack this qualifier; their
// compilers find out by themselves that no copy is needed.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
#define IN_PLACE const __grid_constant__
#else
#define IN_PLACE const
#endif

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;

// Number formats are types, named by constants: float, and bfloat16 and binary16 as their bits. No header of the toolkit is needed, so that NVRTC
// compiles from memory alone.
struct Bf16 {
    u16 bits;
};
struct F16 {
    u16 bits;
};

// True if two types are the same.
template <class A, class B> constexpr bool SAME = false;
template <class A> constexpr bool SAME<A, A> = true;

__device__ __forceinline__ u32 bits_of(float x) {
#ifdef __CUDA_ARCH__
    return __float_as_uint(x);
#else
    u32 bits;
    memcpy(&bits, &x, 4);
    return bits;
#endif
}

__device__ __forceinline__ float from_bits(u32 bits) {
#ifdef __CUDA_ARCH__
    return __uint_as_float(bits);
#else
    float x;
    memcpy(&x, &bits, 4);
    return x;
#endif
}

// Returns an f64 from the two words of its bits, low word first.
__device__ __forceinline__ double from_two_words(const u32 *words) {
#ifdef __CUDA_ARCH__
    return __hiloint2double((int)words[1], (int)words[0]);
#else
    const u64 bits = (u64)words[1] << 32 | words[0];
    double x;
    memcpy(&x, &bits, 8);
    return x;
#endif
}

__device__ __forceinline__ float widen(float x) { return x; }

__device__ __forceinline__ float widen(Bf16 x) { return from_bits((u32)x.bits << 16); }

__device__ __forceinline__ float widen(F16 x) {
#ifdef __CUDA_ARCH__
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
#else
    const u32 sign = (u32)(x.bits & 0x8000) << 16;
    const u32 exponent = (x.bits >> 10) & 31, fraction = x.bits & 1023;
    if (exponent == 31) return from_bits(sign | 0x7f800000u | fraction << 13);
    if (exponent != 0) return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
    // Subnormal: fraction * 2^-24.
    const float small = (float)fraction * 5.9604644775390625e-8f;
    return sign ? -small : small;
#endif
}

// Rounds to nearest, ties to even; NaN stays NaN.
__device__ __forceinline__ void narrow(float x, float *out) { *out = x; }

__device__ __forceinline__ void narrow(float x, Bf16 *out) {
    const u32 bits = bits_of(x);
    const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    out->bits = is_nan ? (u16)(bits >> 16 | 0x40) : (u16)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

__device__ __forceinline__ void narrow(float x, F16 *out) {
#ifdef __CUDA_ARCH__
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out->bits) : "f"(x));
#else
    const u32 bits = bits_of(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        out->bits = (u16)(sign | 0x7e00);
    } else if (magnitude >= 0x477ff000u) {
        out->bits = (u16)(sign | 0x7c00);
    } else if (magnitude >= 0x38800000u) {
        const u32 rounded = magnitude + 0xfffu + (magnitude >> 13 & 1);
        out->bits = (u16)(sign | (rounded - 0x38000000u) >> 13);
    } else {
        // Subnormal: a multiple of 2^-24, rounded by adding and removing 2^23 * 2^-24.
        const float shifted = from_bits(magnitude) + 0.5f;
        out->bits = (u16)(sign | (bits_of(shifted) - bits_of(0.5f)));
    }
#endif
}

#define FULL_WARP 0xffffffffu

// Returns the larger one. Unlike fmaxf, it keeps NaN.
__device__ __forceinline__ float at_least(float least, float x) { return x < least ? least : x; }

// Return the sum or the maximum over the 32 lanes of a warp, in every lane.
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(FULL_WARP, x, offset);
    return x;
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(FULL_WARP, x, offset));
    return x;
}

// Return the sum or the maximum over a block of whole warps, in every thread. `scratch` has 32 floats of shared memory and may be used again after
// the call: a barrier comes before it is written and one before it is read.
__device__ __forceinline__ float block_sum(float x, float *scratch) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
    x = warp_sum(x);
    __syncthreads();
    if (lane == 0) scratch[warp] = x;
    __syncthreads();
    return warp_sum(lane < warps ? scratch[lane] : 0.0f);
}

__device__ __forceinline__ float block_max(float x, float *scratch) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
    x = warp_max(x);
    __syncthreads();
    if (lane == 0) scratch[warp] = x;
    __syncthreads();
    return warp_max(lane < warps ? scratch[lane] : -__int_as_float(0x7f800000));
}

// Returns the root of the sum of squares over a block, times `factor`, in every thread. `values` are each thread's own numbers.
//
// They are divided by the largest before they are squared: the square of a large number would be infinite, that of a small one 0. `scratch` is as
// in block_sum.
template <int each> __device__ __forceinline__ float block_norm(const float (&values)[each], float *scratch, float factor = 1.0f) {
    float most = 0.0f;
#pragma unroll
    for (int e = 0; e < each; e++) most = fmaxf(most, fabsf(values[e]));
    most = block_max(most, scratch);
    // Infinities and NaN stay what they are.
    if (!(most > 0.0f && most <= 3.4028234663852886e38f)) most = 1.0f;
    float sum = 0.0f;
#pragma unroll
    for (int e = 0; e < each; e++) sum += values[e] / most * (values[e] / most);
    return most * (sqrtf(block_sum(sum, scratch)) * factor);
}

// Replaces `counter` by the four words of Philox 4x32-10: gpumem_core::random::philox.
__device__ __forceinline__ void philox(u32 counter[4], u32 key0, u32 key1) {
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const u64 low = (u64)counter[0] * 0xD2511F53u, high = (u64)counter[2] * 0xCD9E8D57u;
        const u32 first = (u32)(high >> 32) ^ counter[1] ^ key0, third = (u32)(low >> 32) ^ counter[3] ^ key1;
        counter[1] = (u32)high;
        counter[3] = (u32)low;
        counter[0] = first;
        counter[2] = third;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
}

// Words of the state tensor: gpumem_core::program::StateWord.
#define STATE_STEP 0
#define STATE_SEED 2
#define STATE_LEARNING_RATE 4
#define STATE_LOSS_SCALE 5
#define STATE_OVERFLOW 6
#define STATE_GOOD_STEPS 7
#define STATE_CORRECTIONS 8
#define STATE_READERS 10
#define STATE_BLOCKS 11
#define STATE_LOSSES 12
#define STATE_RATE 13
#define STATE_CLIP 14
#define STATE_NORM 15
#define STATE_SCHEDULE 16
#define STATE_SKIPPED 24
#define STATE_AVERAGED 25
// Another use of that word: StateWord::PART.
#define STATE_PART 14

// Returns the number of earlier steps: training steps, or time steps of a sequence that has a cache.
__device__ __forceinline__ u64 steps_before(const u32 *state) { return (u64)state[STATE_STEP + 1] << 32 | state[STATE_STEP]; }

// Returns how many of `steps` current time steps belong to the sequence that has a cache: StateWord::AT_HAND.
__device__ __forceinline__ u32 steps_at_hand(const u32 *state, u32 steps) {
    return state[STATE_SEED] < steps ? state[STATE_SEED] : steps;
}

// The source of a layer's random numbers: the state, and the layer's row, so that each layer draws different numbers.
struct Draws {
    const u32 *state;
    u32 row;
    // The number of the first draw: that of the current micro-batch. See part.cuh.
    u64 first;
};

// Computes the words that decide about elements 4 * block to 4 * block + 3 of a drawing layer: gpumem_core::random::drop_words.
__device__ __forceinline__ void words_of_block(const Draws &draws, u64 block, u32 words[4]) {
    words[0] = (u32)block;
    words[1] = (u32)(block >> 32);
    words[2] = draws.row ^ draws.state[STATE_STEP + 1] << 24;
    words[3] = draws.state[STATE_STEP];
    philox(words, draws.state[STATE_SEED], draws.state[STATE_SEED + 1]);
}

// Computes these words for elements of a micro-batch, which may begin between two blocks of the whole batch.
__device__ __forceinline__ void drop_words(const Draws &draws, u64 block, u32 words[4]) {
    const u64 own = block + draws.first / 4, shift = draws.first % 4;
    words_of_block(draws, own, words);
    if (shift == 0) return;
    u32 all[8] = {words[0], words[1], words[2], words[3]};
    words_of_block(draws, own + 1, all + 4);
#pragma unroll
    for (int e = 0; e < 7; e++) all[e] = shift & 1 ? all[e + 1] : all[e];
#pragma unroll
    for (int e = 0; e < 4; e++) words[e] = shift & 2 ? all[e + 2] : all[e];
}

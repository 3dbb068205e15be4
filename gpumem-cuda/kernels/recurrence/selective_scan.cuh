// Definitions that selective scans share: the division of states among threads, and the forward recurrence.
//
// SAMPLES  samples of the batch
// STEPS, CHANNELS, STATES  time steps, channels, and states of a channel: T, D and N of the formulas
// NORM     number format of A_log, d and their gradients
// CHUNK    time steps whose numbers are in shared memory at a time
// LANES    threads of a channel: a power of two up to 32
// EACH     states of a thread: state j * LANES + lane is its number j
// THREADS  threads of a block
//
// u, delta and y are [B, T, D], b and c [B, T, N], A_log is [D, N], d is [D]. Threads process the time steps one after the other with their states
// in registers.
#include "base.cuh"
#include "real.cuh"

#undef norm
#define norm NORM

// Channels that a block works on at a time.
constexpr u32 HERE = THREADS / LANES;
// States of a channel, rounded up; additional ones stay 0.
constexpr u32 ALL = LANES * EACH;
// Blocks of a sample.
constexpr u32 BLOCKS = (CHANNELS + HERE - 1) / HERE;
// Return the thread's channel within the block, and its lane within the channel.
static __device__ __forceinline__ u32 own_channel() { return threadIdx.x / LANES; }
static __device__ __forceinline__ u32 own_lane() { return threadIdx.x % LANES; }

// Returns the sum over the lanes of a channel, in each of them.
static __device__ __forceinline__ float lane_sum(float x) {
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(FULL_WARP, x, offset);
    return x;
}

// A chunk of time steps of some channels, in shared memory; 0 for channels that do not exist.
typedef float Wide[CHUNK][HERE];
// A chunk of time steps of b or c.
typedef float Narrow[CHUNK][ALL];

static __device__ __forceinline__ void fetch(const real *from, u64 sample, u32 first, u32 steps, u32 channel, Wide &to) {
    for (u32 e = threadIdx.x; e < steps * HERE; e += THREADS) {
        const u32 k = e / HERE, own = e % HERE;
        const bool exists = channel + own < CHANNELS;
        to[k][own] = exists ? widen(from[(sample * STEPS + first + k) * CHANNELS + channel + own]) : 0.0f;
    }
}

static __device__ __forceinline__ void fetch(const real *from, u64 sample, u32 first, u32 steps, Narrow &to) {
    for (u32 e = threadIdx.x; e < steps * ALL; e += THREADS) {
        const u32 k = e / ALL, n = e % ALL;
        to[k][n] = n < STATES ? widen(from[(sample * STEPS + first + k) * STATES + n]) : 0.0f;
    }
}

static __device__ __forceinline__ void put(const Wide &from, u64 sample, u32 first, u32 steps, u32 channel, bool add, real *to) {
    for (u32 e = threadIdx.x; e < steps * HERE; e += THREADS) {
        const u32 k = e / HERE, own = e % HERE;
        if (channel + own >= CHANNELS) continue;
        real *place = &to[(sample * STEPS + first + k) * CHANNELS + channel + own];
        narrow(add ? from[k][own] + widen(*place) : from[k][own], place);
    }
}

// Computes A for the thread's states.
static __device__ __forceinline__ void decays(const norm *a_log, u32 channel, float a[EACH]) {
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        const u32 n = j * LANES + own_lane();
        a[j] = channel < CHANNELS && n < STATES ? -expf(widen(a_log[(u64)channel * STATES + n])) : 0.0f;
    }
}

// Runs `count` time steps of the channels of a block, and updates the states.
static __device__ __forceinline__ void walk(const real *u, const real *delta, const norm *a_log, const real *b, const real *c,
                                            const norm *skip, u64 sample, u32 first_channel, u32 count, float h[EACH], real *y) {
    __shared__ Wide us, deltas, ys;
    __shared__ Narrow bs, cs;
    const u32 own = own_channel(), lane = own_lane(), channel = first_channel + own;
    const float d = channel < CHANNELS ? widen(skip[channel]) : 0.0f;
    float a[EACH];
    decays(a_log, channel, a);
    for (u32 first = 0; first < count; first += CHUNK) {
        const u32 steps = count - first < CHUNK ? count - first : CHUNK;
        __syncthreads();
        fetch(u, sample, first, steps, first_channel, us);
        fetch(delta, sample, first, steps, first_channel, deltas);
        fetch(b, sample, first, steps, bs);
        fetch(c, sample, first, steps, cs);
        __syncthreads();
        for (u32 k = 0; k < steps; k++) {
            const float x = us[k][own], size = deltas[k][own], arriving = size * x;
            float sum = 0.0f;
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                const u32 n = j * LANES + lane;
                h[j] = expf(size * a[j]) * h[j] + arriving * bs[k][n];
                sum += cs[k][n] * h[j];
            }
            sum = lane_sum(sum);
            if (lane == 0) ys[k][own] = sum + d * x;
        }
        __syncthreads();
        put(ys, sample, first, steps, first_channel, false, y);
    }
}

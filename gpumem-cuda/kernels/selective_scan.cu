// The selective scan of a state space model: h[t] = exp(delta[t] A) h[t - 1] + delta[t] u[t] b[t] for each state of each channel, with
// A = -exp(A_log), and y[t] = c[t] . h[t] + d u[t].
//
// SAMPLES  of the batch
// STEPS, CHANNELS, STATES  of a channel, N of the formulas
// NORM     what A_log, d and their gradients are made of
// CHUNK    steps whose numbers are in shared memory at a time
// LANES    threads of a channel: a power of two up to 32
// EACH     states of a thread: state j * LANES + lane is its number j
// THREADS  of a block
// GROUP    channels of a block of the backward pass: a multiple of the channels that a block has at a time
// ROOM     elements of a sample's workspace: see `Room`
// ADDS     which gradients are added to what is there: a bit for each input, by its number
//
// u, delta and y are [B, T, D], b and c [B, T, N], A_log is [D, N], d is [D]. Threads go through the steps one after the other with
// their states in registers. The way back needs the states of each step: those before each chunk are computed first and lie in the
// workspace; from them those of a chunk are computed when the way back comes to it, and lie in shared memory. No sum depends on the
// order in which blocks run.
#include "base.cuh"
#include "real.cuh"

#undef norm
#define norm NORM

// Channels that a block has at a time.
constexpr u32 HERE = THREADS / LANES;
// States of a channel with those that there are not, which stay 0.
constexpr u32 ALL = LANES * EACH;
// Blocks of a sample.
constexpr u32 BLOCKS = (CHANNELS + HERE - 1) / HERE, GROUPS = (CHANNELS + GROUP - 1) / GROUP;
constexpr u32 CHUNKS = (STEPS + CHUNK - 1) / CHUNK;
// Threads that read neighbours in shared memory, for one state each, find them in different banks.
constexpr u32 PITCH = THREADS + (LANES < 32 ? LANES : 0);

// A sample's workspace: the states before each chunk [CHUNKS, D, N]; for each group of channels the sums of db, then of dc [T, N]; the
// sample's share of the gradients of A_log [D, N] and of d [D].
struct Room {
    static constexpr u64 SUMS = (u64)CHUNKS * CHANNELS * STATES, EACH_SUM = (u64)STEPS * STATES;
    static constexpr u64 OF_A = SUMS + 2 * GROUPS * EACH_SUM, OF_D = OF_A + (u64)CHANNELS * STATES;
};

// Where a thread is: its channel among those of the block, and its lane among those of the channel.
static __device__ __forceinline__ u32 own_channel() { return threadIdx.x / LANES; }
static __device__ __forceinline__ u32 own_lane() { return threadIdx.x % LANES; }

// The sum over the lanes of a channel, in each of them.
static __device__ __forceinline__ float lane_sum(float x) {
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(FULL_WARP, x, offset);
    return x;
}

// Some steps of some channels, in shared memory; 0 for channels that there are not.
typedef float Wide[CHUNK][HERE];
// Some steps of b or c.
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

// A of the thread's states.
static __device__ __forceinline__ void decays(const norm *a_log, u32 channel, float a[EACH]) {
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        const u32 n = j * LANES + own_lane();
        a[j] = channel < CHANNELS && n < STATES ? -expf(widen(a_log[(u64)channel * STATES + n])) : 0.0f;
    }
}

static __device__ __forceinline__ u32 steps_from(u32 first) { return STEPS - first < CHUNK ? STEPS - first : CHUNK; }

// A block for HERE channels of a sample.
KERNEL(__launch_bounds__(THREADS, 1) selective_scan_forward)
(const real *u, const real *delta, const norm *a_log, const real *b, const real *c, const norm *skip, real *y) {
    __shared__ Wide us, deltas, ys;
    __shared__ Narrow bs, cs;
    const u64 sample = blockIdx.x / BLOCKS;
    const u32 first_channel = blockIdx.x % BLOCKS * HERE, own = own_channel(), lane = own_lane();
    const u32 channel = first_channel + own;
    const float d = channel < CHANNELS ? widen(skip[channel]) : 0.0f;
    float a[EACH], h[EACH] = {};
    decays(a_log, channel, a);
    for (u32 first = 0; first < STEPS; first += CHUNK) {
        const u32 steps = steps_from(first);
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

// The states before each chunk. A block for HERE channels of a sample.
KERNEL(__launch_bounds__(THREADS, 1) selective_scan_states)
(const real *u, const real *delta, const norm *a_log, const real *b, float *rooms) {
    __shared__ Wide us, deltas;
    __shared__ Narrow bs;
    const u64 sample = blockIdx.x / BLOCKS;
    const u32 first_channel = blockIdx.x % BLOCKS * HERE, own = own_channel(), lane = own_lane();
    const u32 channel = first_channel + own;
    float *borders = rooms + sample * ROOM;
    float a[EACH], h[EACH] = {};
    decays(a_log, channel, a);
    for (u32 chunk = 0; chunk < CHUNKS; chunk++) {
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const u32 n = j * LANES + lane;
            if (channel < CHANNELS && n < STATES) borders[((u64)chunk * CHANNELS + channel) * STATES + n] = h[j];
        }
        if (chunk + 1 == CHUNKS) break;
        __syncthreads();
        fetch(u, sample, chunk * CHUNK, CHUNK, first_channel, us);
        fetch(delta, sample, chunk * CHUNK, CHUNK, first_channel, deltas);
        fetch(b, sample, chunk * CHUNK, CHUNK, bs);
        __syncthreads();
        for (u32 k = 0; k < CHUNK; k++) {
            const float size = deltas[k][own], arriving = size * us[k][own];
#pragma unroll
            for (int j = 0; j < EACH; j++) h[j] = expf(size * a[j]) * h[j] + arriving * bs[k][j * LANES + lane];
        }
    }
}

// What a block of the backward pass has in shared memory. `slots` holds, of each thread's states, first those after each step, and on
// the way back what a step adds to db.
struct Chunk {
    Wide us, deltas, dys, dus, ddeltas;
    Narrow bs, cs;
    float slots[CHUNK][EACH][PITCH];
};

// Adds to the sums over channels of a step and a state: of dy h for dc, or of what is in the slots for db.
template <bool OF_C> static __device__ __forceinline__ void add_channels(const Chunk &chunk, u32 steps, bool is_first, float *sums) {
    for (u32 e = threadIdx.x; e < steps * STATES; e += THREADS) {
        const u32 k = e / STATES, n = e % STATES;
        const float *slots = &chunk.slots[k][n / LANES][n % LANES];
        float sum = is_first ? 0.0f : sums[e];
#pragma unroll 4
        for (u32 own = 0; own < HERE; own++) sum += OF_C ? chunk.dys[k][own] * slots[own * LANES] : slots[own * LANES];
        sums[e] = sum;
    }
}

// The gradients of u and delta, and shares of the others. A block for GROUP channels of a sample, HERE of them at a time.
KERNEL(__launch_bounds__(THREADS) selective_scan_backward)
(const real *dy, const real *u, const real *delta, const norm *a_log, const real *b, const real *c, const norm *skip, real *du,
 real *ddelta, float *rooms) {
    __shared__ Chunk chunk;
    const u64 sample = blockIdx.x / GROUPS;
    const u32 group = blockIdx.x % GROUPS, own = own_channel(), lane = own_lane();
    float *room = rooms + sample * ROOM, *sums = room + Room::SUMS + 2 * group * Room::EACH_SUM;
    for (u32 done = 0; done < GROUP && group * GROUP + done < CHANNELS; done += HERE) {
        const u32 first_channel = group * GROUP + done, channel = first_channel + own;
        const bool exists = channel < CHANNELS;
        const float d = exists ? widen(skip[channel]) : 0.0f;
        float a[EACH], g[EACH] = {}, da[EACH] = {}, dd = 0.0f;
        decays(a_log, channel, a);
        for (u32 number = CHUNKS; number-- > 0;) {
            const u32 first = number * CHUNK, steps = steps_from(first);
            __syncthreads();
            fetch(u, sample, first, steps, first_channel, chunk.us);
            fetch(delta, sample, first, steps, first_channel, chunk.deltas);
            fetch(dy, sample, first, steps, first_channel, chunk.dys);
            fetch(b, sample, first, steps, chunk.bs);
            fetch(c, sample, first, steps, chunk.cs);
            float before[EACH], h[EACH];
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                const u32 n = j * LANES + lane;
                const bool is_there = exists && n < STATES;
                h[j] = before[j] = is_there ? room[((u64)number * CHANNELS + channel) * STATES + n] : 0.0f;
            }
            __syncthreads();
            for (u32 k = 0; k < steps; k++) {
                const float size = chunk.deltas[k][own], arriving = size * chunk.us[k][own];
#pragma unroll
                for (int j = 0; j < EACH; j++) {
                    h[j] = expf(size * a[j]) * h[j] + arriving * chunk.bs[k][j * LANES + lane];
                    chunk.slots[k][j][threadIdx.x] = h[j];
                }
            }
            __syncthreads();
            add_channels<true>(chunk, steps, done == 0, sums + Room::EACH_SUM + (u64)first * STATES);
            __syncthreads();
            for (u32 k = steps; k-- > 0;) {
                const float x = chunk.us[k][own], size = chunk.deltas[k][own], slope = chunk.dys[k][own];
                float of_b = 0.0f, of_a = 0.0f;
#pragma unroll
                for (int j = 0; j < EACH; j++) {
                    const u32 n = j * LANES + lane;
                    const float last = k > 0 ? chunk.slots[k > 0 ? k - 1 : 0][j][threadIdx.x] : before[j];
                    g[j] += chunk.cs[k][n] * slope;
                    of_b += g[j] * chunk.bs[k][n];
                    chunk.slots[k][j][threadIdx.x] = g[j] * size * x;
                    g[j] *= expf(size * a[j]);
                    of_a += g[j] * last * a[j];
                    da[j] += g[j] * last * size;
                }
                of_b = lane_sum(of_b);
                of_a = lane_sum(of_a);
                dd += slope * x;
                if (lane == 0) {
                    chunk.dus[k][own] = d * slope + size * of_b;
                    chunk.ddeltas[k][own] = x * of_b + of_a;
                }
            }
            __syncthreads();
            add_channels<false>(chunk, steps, done == 0, sums + (u64)first * STATES);
            if (du != nullptr) put(chunk.dus, sample, first, steps, first_channel, ADDS & 1, du);
            if (ddelta != nullptr) put(chunk.ddeltas, sample, first, steps, first_channel, ADDS >> 1 & 1, ddelta);
        }
        if (!exists) continue;
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const u32 n = j * LANES + lane;
            if (n < STATES) room[Room::OF_A + (u64)channel * STATES + n] = da[j] * a[j];
        }
        if (lane == 0) room[Room::OF_D + channel] = dd;
    }
}

// db and dc: the sums over the groups of channels. Blocks of 256 threads, a thread for each step and state.
KERNEL(selective_scan_sums)(const float *rooms, real *db, real *dc) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= SAMPLES * Room::EACH_SUM) return;
    const float *sums = rooms + i / Room::EACH_SUM * ROOM + Room::SUMS + i % Room::EACH_SUM;
    float of_b = 0.0f, of_c = 0.0f;
    for (u32 group = 0; group < GROUPS; group++) {
        of_b += sums[2 * group * Room::EACH_SUM];
        of_c += sums[(2 * group + 1) * Room::EACH_SUM];
    }
    if (db != nullptr) narrow(ADDS >> 3 & 1 ? of_b + widen(db[i]) : of_b, &db[i]);
    if (dc != nullptr) narrow(ADDS >> 4 & 1 ? of_c + widen(dc[i]) : of_c, &dc[i]);
}

// The gradients of A_log and d: the sums over samples. Blocks of 256 threads, a thread for each element of both.
KERNEL(selective_scan_parameters)(const float *rooms, norm *da_log, norm *dd) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    constexpr u64 OF_A = (u64)CHANNELS * STATES;
    if (i >= OF_A + CHANNELS) return;
    norm *to = i < OF_A ? (da_log != nullptr ? &da_log[i] : nullptr) : (dd != nullptr ? &dd[i - OF_A] : nullptr);
    if (to == nullptr) return;
    float sum = 0.0f;
    for (u64 sample = 0; sample < SAMPLES; sample++) sum += rooms[sample * ROOM + Room::OF_A + i];
    const bool add = i < OF_A ? ADDS >> 2 & 1 : ADDS >> 5 & 1;
    narrow(add ? sum + widen(*to) : sum, to);
}

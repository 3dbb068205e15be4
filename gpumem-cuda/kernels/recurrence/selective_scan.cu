// The selective scan of a state space model: h[t] = exp(delta[t] A) h[t - 1] + delta[t] u[t] b[t] for each state of each channel, with
// A = -exp(A_log), and y[t] = c[t] . h[t] + d u[t].
//
// The constants are those of selective_scan.cuh, and:
// GROUP    channels of a block of the backward pass: a multiple of the channels that a block has at a time
// ROOM     elements of a sample's workspace: see `Room`
// ADDS     gradients that are added to their tensors (+=): a bit for each input, by its index; the others overwrite
//
// The backward pass needs the states of each time step. The states before each chunk are computed first and stored in the workspace; from them
// those of a chunk are recomputed in shared memory when the backward pass reaches it. No sum depends on the order in which blocks run.
#include "selective_scan.cuh"

constexpr u32 GROUPS = (CHANNELS + GROUP - 1) / GROUP, CHUNKS = (STEPS + CHUNK - 1) / CHUNK;
// Threads that read neighbours in shared memory, for one state each, access different banks with this pitch.
constexpr u32 PITCH = THREADS + (LANES < 32 ? LANES : 0);

// A sample's workspace: the states before each chunk [CHUNKS, D, N]; for each group of channels the sums of db, then of dc [T, N]; the
// sample's share of the gradients of A_log [D, N] and of d [D].
struct Room {
    static constexpr u64 SUMS = (u64)CHUNKS * CHANNELS * STATES, EACH_SUM = (u64)STEPS * STATES;
    static constexpr u64 OF_A = SUMS + 2 * GROUPS * EACH_SUM, OF_D = OF_A + (u64)CHANNELS * STATES;
};

static __device__ __forceinline__ u32 steps_from(u32 first) { return STEPS - first < CHUNK ? STEPS - first : CHUNK; }

// Grid: a block for HERE channels of a sample.
KERNEL(__launch_bounds__(THREADS, 1) selective_scan_forward)
(const real *u, const real *delta, const norm *a_log, const real *b, const real *c, const norm *skip, real *y) {
    float h[EACH] = {};
    walk(u, delta, a_log, b, c, skip, blockIdx.x / BLOCKS, blockIdx.x % BLOCKS * HERE, STEPS, h, y);
}

// The states before each chunk. Grid: a block for HERE channels of a sample.
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

// Shared memory of a block of the backward pass. `slots` has each thread's states: first those after each time step, later a time step's share of
// db.
struct Chunk {
    Wide us, deltas, dys, dus, ddeltas;
    Narrow bs, cs;
    float slots[CHUNK][EACH][PITCH];
};

// Adds to the sums over channels for a time step and a state: dy h for dc, or the slots for db.
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

// The gradients of u and delta, and shares of the others. Grid: a block for GROUP channels of a sample, HERE of them at a time.
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

// db and dc: the sums over the groups of channels. Grid: blocks of 256 threads, a thread for each time step and state.
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

// The gradients of A_log and d: the sums over samples. Grid: blocks of 256 threads, a thread for each element of both.
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

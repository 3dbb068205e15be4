// Attention for decoding: the current time steps attend to themselves and to all earlier ones, whose keys and values are cached.
//
// HEADS, KV_HEADS       heads of the queries, and of keys and values
// HEAD, VALUE_HEAD      elements of a head of queries and keys, and of one of values
// STEPS, CACHE, WINDOW  current time steps, time steps that fit in the cache, and time steps that a query attends to; 0 for all
// APART                 1 if queries, keys and values are three inputs; 0 if they are adjacent in the rows of one
// SCALE                 factor of products of queries and keys
// SAMPLES               samples of the batch
// PARTS                 parts that the keys of a query are divided into
// GROUP                 heads of queries that a block works on, which share a head of keys
// PACK                  elements that a thread works on at a time; heads are whole packs; see pack.cuh
//
// q [B, STEPS, HEADS * HEAD], k [B, STEPS, KV_HEADS * HEAD], v [B, STEPS, KV_HEADS * VALUE_HEAD], y [B, STEPS, HEADS * VALUE_HEAD];
// keys [B, CACHE, KV_HEADS * HEAD], values [B, CACHE, KV_HEADS * VALUE_HEAD].
//
// keep:         copies rows of k and v to the caches keys and values; a row beyond the cache is dropped
// attend_parts: for each query and part of its keys: the largest score, the sum of exponentials and the weighted sum of values
// join_parts:   y from these results
//
// A single token has few queries, so the keys of each are divided among many blocks. The order of summation depends only on the number of time
// steps.
#include "base.cuh"
#include "real.cuh"
#include "pack.cuh"

constexpr u32 THREADS = 128, TILE = 256;
constexpr u32 QUERY_ROW = HEADS * HEAD, KEY_ROW = KV_HEADS * HEAD, VALUE_ROW = KV_HEADS * VALUE_HEAD;
constexpr u32 JOINED = QUERY_ROW + KEY_ROW + VALUE_ROW;
// Pitches of the inputs, and the places of keys and values in a row, in elements.
constexpr u32 QUERY_PITCH = APART ? QUERY_ROW : JOINED, KEY_PITCH = APART ? KEY_ROW : JOINED;
constexpr u32 VALUE_PITCH = APART ? VALUE_ROW : JOINED;
constexpr u32 KEY_START = APART ? 0 : QUERY_ROW, VALUE_START = APART ? 0 : QUERY_ROW + KEY_ROW;
// Numbers that a part of a query writes: the largest score, the sum, and a row of values.
constexpr u32 PART = VALUE_HEAD + 2;

// The range of keys that a query attends to, and the keys of each part.
struct Seen {
    u32 first, end, each;
};

static __device__ __forceinline__ Seen seen_by(const u32 *state, u32 step) {
    const u64 before = steps_before(state);
    const u64 all = (before < CACHE ? before : CACHE) + step + 1;
    Seen seen;
    seen.end = all < CACHE ? (u32)all : CACHE;
    seen.first = 0;
#if WINDOW > 0
    if (all > WINDOW) seen.first = all - WINDOW < seen.end - 1 ? (u32)(all - WINDOW) : seen.end - 1;
#endif
    seen.each = (seen.end - seen.first + PARTS - 1) / PARTS;
    return seen;
}

// Grid: blocks of 256 threads, a thread for each pack of keys or values.
KERNEL(keep)(const real *k, const real *v, const u32 *state, real *keys, real *values) {
    constexpr u32 KEY_UNITS = KEY_ROW / PACK, UNITS = KEY_UNITS + VALUE_ROW / PACK;
    const u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (thread >= (u64)SAMPLES * STEPS * UNITS) return;
    const u64 row = thread / UNITS, at = steps_before(state) + row % STEPS;
    if (at >= CACHE) return;
    const u64 to = row / STEPS * CACHE + at;
    const u32 unit = (u32)(thread % UNITS);
    if (unit < KEY_UNITS) {
        store(load(k, row * KEY_PITCH + KEY_START + unit * PACK), keys, to * KEY_ROW + unit * PACK);
    } else {
        const u32 place = (unit - KEY_UNITS) * PACK;
        store(load(v, row * VALUE_PITCH + VALUE_START + place), values, to * VALUE_ROW + place);
    }
}

// Packs of a row of values, threads across a row, packs of each thread, and rows that are processed at a time.
constexpr u32 VALUE_UNITS = VALUE_HEAD / PACK, ACROSS = VALUE_UNITS < THREADS ? VALUE_UNITS : THREADS;
constexpr u32 EACH = (VALUE_UNITS + ACROSS - 1) / ACROSS, LANES = THREADS / ACROSS;

// Grid: a block of 128 threads for each part of the keys, each group of heads, each time step and each sample.
KERNEL(attend_parts)(const real *q, const real *keys, const real *values, const u32 *state, float *parts) {
    __shared__ float scores[GROUP][TILE];
    __shared__ float sums[LANES * ACROSS * PACK];
    __shared__ float scratch[32];
    const u32 part = blockIdx.x % PARTS, group = blockIdx.x / PARTS % (HEADS / GROUP);
    const u32 row = blockIdx.x / (PARTS * (HEADS / GROUP)), sample = row / STEPS;
    const Seen seen = seen_by(state, row % STEPS);
    const u32 first = seen.first + part * seen.each;
    if (first >= seen.end) return;
    const u32 end = seen.end - first < seen.each ? seen.end : first + seen.each;
    const u32 shared = group * GROUP / (HEADS / KV_HEADS);
    q += (u64)row * QUERY_PITCH + group * GROUP * HEAD;
    keys += (u64)sample * CACHE * KEY_ROW + shared * HEAD;
    values += (u64)sample * CACHE * VALUE_ROW + shared * VALUE_HEAD;
    const u32 lane = threadIdx.x / ACROSS, across = threadIdx.x % ACROSS;
    float largest[GROUP], total[GROUP], sum[GROUP][EACH][PACK];
#pragma unroll
    for (u32 g = 0; g < GROUP; g++) {
        largest[g] = -__int_as_float(0x7f800000);
        total[g] = 0.0f;
#pragma unroll
        for (u32 i = 0; i < EACH * PACK; i++) sum[g][i / PACK][i % PACK] = 0.0f;
    }
    for (u32 tile = first; tile < end; tile += TILE) {
        const u32 count = end - tile < TILE ? end - tile : TILE;
        // The results of the previous tile are no longer read.
        __syncthreads();
        for (u32 key = threadIdx.x; key < count; key += THREADS) {
            float score[GROUP];
#pragma unroll
            for (u32 g = 0; g < GROUP; g++) score[g] = 0.0f;
#pragma unroll 1
            for (u32 at = 0; at < HEAD; at += PACK) {
                const Pack pack = load(keys, (u64)(tile + key) * KEY_ROW + at);
#pragma unroll
                for (u32 g = 0; g < GROUP; g++) {
                    const Pack query = load(q, g * HEAD + at);
#pragma unroll
                    for (int i = 0; i < PACK; i++) score[g] += element(query, i) * element(pack, i);
                }
            }
#pragma unroll
            for (u32 g = 0; g < GROUP; g++) scores[g][key] = score[g] * SCALE;
        }
        __syncthreads();
#pragma unroll
        for (u32 g = 0; g < GROUP; g++) {
            float most = largest[g];
            for (u32 key = threadIdx.x; key < count; key += THREADS) most = fmaxf(most, scores[g][key]);
            most = block_max(most, scratch);
            float own = 0.0f;
            for (u32 key = threadIdx.x; key < count; key += THREADS) {
                const float weight = expf(scores[g][key] - most);
                scores[g][key] = weight;
                own += weight;
            }
            const float shrunk = expf(largest[g] - most);
            total[g] = total[g] * shrunk + block_sum(own, scratch);
            largest[g] = most;
#pragma unroll
            for (u32 i = 0; i < EACH * PACK; i++) sum[g][i / PACK][i % PACK] *= shrunk;
        }
        // The barriers of the sum come after all weights are written.
        if (lane < LANES) {
            for (u32 key = lane; key < count; key += LANES) {
#pragma unroll
                for (u32 each = 0; each < EACH; each++) {
                    const u32 unit = across + each * ACROSS;
                    if (unit >= VALUE_UNITS) break;
                    const Pack pack = load(values, (u64)(tile + key) * VALUE_ROW + unit * PACK);
#pragma unroll
                    for (u32 g = 0; g < GROUP; g++) {
                        const float weight = scores[g][key];
#pragma unroll
                        for (int i = 0; i < PACK; i++) sum[g][each][i] += weight * element(pack, i);
                    }
                }
            }
        }
    }
    // Adds up the lanes, which took keys in turns.
#pragma unroll
    for (u32 g = 0; g < GROUP; g++) {
        float *to = parts + (((u64)row * HEADS + group * GROUP + g) * PARTS + part) * PART;
        if (threadIdx.x == 0) {
            to[0] = largest[g];
            to[1] = total[g];
        }
#pragma unroll
        for (u32 each = 0; each < EACH; each++) {
            __syncthreads();
            if (lane < LANES) {
#pragma unroll
                for (int i = 0; i < PACK; i++) sums[(lane * ACROSS + across) * PACK + i] = sum[g][each][i];
            }
            __syncthreads();
            for (u32 at = threadIdx.x; at < ACROSS * PACK; at += THREADS) {
                const u32 place = each * ACROSS * PACK + at;
                if (place >= VALUE_HEAD) break;
                float all = 0.0f;
                for (u32 other = 0; other < LANES; other++) all += sums[other * ACROSS * PACK + at];
                to[2 + place] = all;
            }
        }
    }
}

// Grid: a block of 128 threads for each head of each query.
KERNEL(join_parts)(const float *parts, const u32 *state, real *y) {
    const u64 query = blockIdx.x;
    const Seen seen = seen_by(state, (u32)(query / HEADS % STEPS));
    const u32 count = (seen.end - seen.first + seen.each - 1) / seen.each;
    parts += query * PARTS * PART;
    float largest = parts[0];
    for (u32 part = 1; part < count; part++) largest = fmaxf(largest, parts[part * PART]);
    float total = 0.0f;
    for (u32 part = 0; part < count; part++) total += parts[part * PART + 1] * expf(parts[part * PART] - largest);
    const float scale = 1.0f / total;
    for (u32 at = threadIdx.x; at < VALUE_HEAD; at += THREADS) {
        float sum = 0.0f;
        for (u32 part = 0; part < count; part++) sum += parts[part * PART + 2 + at] * expf(parts[part * PART] - largest);
        narrow(sum * scale, &y[query * VALUE_HEAD + at]);
    }
}

// Attention, and its gradient, in tiles of 64 queries and 64 keys: there is never a T x T tensor in device memory.
//
// HEADS     heads of the queries
// KV_HEADS  heads of the keys, and of the values: as many neighbouring heads of queries share each, HEADS / KV_HEADS
// STEPS     T, steps of a sequence
// CAUSAL    whether a step sees only itself and those before it; else all of them, and the conditions on i and j below are void
// HEAD      S, elements of a head; D = HEADS * S
// SCALE     1 / sqrt(S)
// SAVES     whether the log-sum-exp is kept
// THRESHOLD a weight is dropped when its random word is below it; 0 where nothing is dropped, which needs no state
// KEEP      what the weights that are not dropped are multiplied with
// ADD       whether the gradient is added to what is there; 0 for the forward pass
// TENSOR_CORES terms that an instruction of the tensor cores multiplies, see mma.cuh; 0 where S is not a multiple of 16 up to 128
//
// x is [B, T, (HEADS + 2 * KV_HEADS) * S]: queries q [HEADS, S], keys k and values v [KV_HEADS, S] side by side in a row. y is
// [B, T, D], lse and delta [B, HEADS, T].
//
// forward:  y[i] = sum over j <= i of f[i, j] * p[i, j] * v[j], with p[i, j] = exp(SCALE * q[i] . k[j] - lse[i]),
//           lse[i] = log(sum over j <= i of exp(SCALE * q[i] . k[j])) and f[i, j] = 0 for dropped weights, else KEEP. The random
//           word of a weight is that of element ((b * HEADS + h) * T + i) * T + j.
// backward: with delta[i] = dy[i] . y[i] and s[i, j] = p[i, j] * (f[i, j] * dy[i] . v[j] - delta[i]):
//           dq[i] = SCALE * sum over j <= i of s[i, j] * k[j],  dk[j] = SCALE * sum over i >= j of s[i, j] * q[i],
//           dv[j] = sum over i >= j of f[i, j] * p[i, j] * dy[i]. One kernel goes over the keys of a tile of queries, for dq, and
//           leaves delta behind; the other goes over the queries of a tile of keys, for dk and dv. Each element is summed by one
//           thread, in the same order in every run: where heads of queries share keys, one after the other. dx has the shape
//           of x.
//
// With tensor cores, see attention_mma.cuh. Without:
//
// A block has 256 threads, thought of as 16 x 16. Every product is one of three kinds, of tiles of 64 x 64 in shared memory, and
// gives each thread 4 x 4 numbers: see product_nt, product_nn and product_tn. Heads wider than 64 are worked on in chunks of 64
// elements; those wider than 128 are shared out to several blocks (slices), each of which computes the weights for itself.
#include "base.cuh"
#include "real.cuh"

// Rows and columns of a tile.
constexpr int SIDE = 64;
// Chunks of a head, chunks that one block puts out, and tiles of a sequence.
constexpr int CHUNKS = (HEAD + SIDE - 1) / SIDE;
constexpr int OWN_CHUNKS = CHUNKS < 2 ? CHUNKS : 2;
constexpr int SLICES = (CHUNKS + OWN_CHUNKS - 1) / OWN_CHUNKS;
constexpr int TILES = (STEPS + SIDE - 1) / SIDE;
// Elements from one step to the next.
constexpr u64 IN_PITCH = (HEADS + 2ull * KV_HEADS) * HEAD;
constexpr u64 OUT_PITCH = 1ull * HEADS * HEAD;
// The last tile of keys that the queries of a tile see, and the first of queries that see the keys of a tile, as their steps.
static __device__ __forceinline__ int last_keys(int queries) { return CAUSAL ? queries : (TILES - 1) * SIDE; }
static __device__ __forceinline__ int first_queries(int keys) { return CAUSAL ? keys : 0; }
// Whether a step sees another one.
static __device__ __forceinline__ bool sees(int step, int key) { return CAUSAL ? key <= step : key < STEPS; }
// Heads of queries that share keys.
constexpr int GROUP = HEADS / KV_HEADS;

// What a block works on.
struct Work {
    // Of the batch: b * HEADS + h, or b * KV_HEADS + h where a block works on keys.
    u64 head;
    int tile;
    int first_chunk;
};

// The blocks that have most to do come first: `late` says that those of late tiles do.
static __device__ __forceinline__ Work work(bool late) {
    const u32 heads = gridDim.x / (TILES * SLICES);
    const u32 order = blockIdx.x / (heads * SLICES), rest = blockIdx.x % (heads * SLICES);
    Work work;
    work.head = rest / SLICES;
    work.tile = late ? TILES - 1 - (int)order : (int)order;
    work.first_chunk = (int)(rest % SLICES) * OWN_CHUNKS;
    return work;
}

// Where the queries (part 0), keys (1) or values (2) of a head of queries are in x or dx, and where the head is in y or dy.
static __device__ __forceinline__ u64 place_in(u64 head, int part) {
    const u64 sample = head / HEADS * STEPS * IN_PITCH;
    if (part == 0) return sample + head % HEADS * HEAD;
    return sample + OUT_PITCH + (part - 1) * 1ull * KV_HEADS * HEAD + head % HEADS / GROUP * HEAD;
}

// The first head of queries that shares a head of keys.
static __device__ __forceinline__ u64 first_of_group(u64 keys) {
    return keys / KV_HEADS * HEADS + keys % KV_HEADS * GROUP;
}

static __device__ __forceinline__ u64 place_out(u64 head) {
    return head / HEADS * STEPS * OUT_PITCH + head % HEADS * HEAD;
}

#if TENSOR_CORES
#include "attention_mma.cuh"
#else

// In float4. An odd pitch lets 8 threads read 8 rows at once.
constexpr int PITCH = SIDE / 4 + 1;

typedef float4 Tile[SIDE][PITCH];

// Four elements in one access, where heads begin at multiples of four.
#if HEAD % 4 == 0
constexpr bool WHOLE_FOURS = true;
struct alignas(4 * sizeof(real)) Four {
    real at[4];
};
#else
constexpr bool WHOLE_FOURS = false;
struct Four {
    real at[4];
};
#endif

// Elements `column` to `column + 3` of a step of a head; zeros beyond the head and beyond the sequence.
static __device__ __forceinline__ float4 load_four(const real *head, u64 pitch, int step, int column) {
    if (step >= STEPS || column >= HEAD) return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    const real *from = head + step * pitch + column;
    if (WHOLE_FOURS) {
        const Four four = *(const Four *)from;
        return make_float4(widen(four.at[0]), widen(four.at[1]), widen(four.at[2]), widen(four.at[3]));
    }
    float4 four = make_float4(widen(from[0]), 0.0f, 0.0f, 0.0f);
    if (column + 1 < HEAD) four.y = widen(from[1]);
    if (column + 2 < HEAD) four.z = widen(from[2]);
    if (column + 3 < HEAD) four.w = widen(from[3]);
    return four;
}

static __device__ __forceinline__ void store_four(real *head, u64 pitch, int step, int column, const float values[4]) {
    if (step >= STEPS || column >= HEAD) return;
    real *to = head + step * pitch + column;
    Four four;
#if ADD
    if (WHOLE_FOURS) four = *(const Four *)to;
#endif
#pragma unroll
    for (int e = 0; e < 4; e++) {
        if (!WHOLE_FOURS && column + e >= HEAD) continue;
        float value = values[e];
#if ADD
        value += widen(WHOLE_FOURS ? four.at[e] : to[e]);
#endif
        narrow(value, WHOLE_FOURS ? &four.at[e] : &to[e]);
    }
    if (WHOLE_FOURS) *(Four *)to = four;
}

// Where row r of a tile is put that product_nt reads as `b`: a thread's four rows are 16 places apart there, which lets 16 threads
// read without waiting for each other, and follow each other in the sequence, so that one random draw serves all four.
static __device__ __forceinline__ int spread(int row) { return row % 4 * 16 + row / 4; }

// A tile from 64 steps and one chunk of a head. All threads take part; barriers are the caller's.
static __device__ __forceinline__ void load_tile(Tile &tile, const real *head, u64 pitch, int first, int chunk,
                                                 bool spreads) {
    const int row = threadIdx.x / 16, column = threadIdx.x % 16;
#pragma unroll
    for (int k = 0; k < SIDE; k += 16) {
        const int place = spreads ? spread(row + k) : row + k;
        tile[place][column] = load_four(head, pitch, first + row + k, chunk * SIDE + column * 4);
    }
}

static __device__ __forceinline__ void multiply_add(float sum[4], float x, float4 y) {
    sum[0] += x * y.x;
    sum[1] += x * y.y;
    sum[2] += x * y.z;
    sum[3] += x * y.w;
}

// sum[i][j] += a[ty + 16 i] . b[4 tx + j], over `width` elements; b is spread.
static __device__ __forceinline__ void product_nt(const Tile &a, const Tile &b, int width, float sum[4][4]) {
    const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
    for (int d = 0; d < (width + 3) / 4; d++) {
        float4 y[4];
#pragma unroll
        for (int j = 0; j < 4; j++) y[j] = b[tx + 16 * j][d];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float4 x = a[ty + 16 * i][d];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                sum[i][j] += x.x * y[j].x;
                sum[i][j] += x.y * y[j].y;
                sum[i][j] += x.z * y[j].z;
                sum[i][j] += x.w * y[j].w;
            }
        }
    }
}

// sum[i][j] += the sum over r of a[ty + 16 i][r] * b[r][4 tx + j]; b is spread.
static __device__ __forceinline__ void product_nn(const Tile &a, const Tile &b, float sum[4][4]) {
    const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
    for (int r = 0; r < SIDE / 4; r++) {
        const float4 y[4] = {b[r][tx], b[r + 16][tx], b[r + 32][tx], b[r + 48][tx]};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float4 x = a[ty + 16 * i][r];
            multiply_add(sum[i], x.x, y[0]);
            multiply_add(sum[i], x.y, y[1]);
            multiply_add(sum[i], x.z, y[2]);
            multiply_add(sum[i], x.w, y[3]);
        }
    }
}

// sum[i][j] += the sum over r of a[r][4 ty + i] * b[r][4 tx + j].
static __device__ __forceinline__ void product_tn(const Tile &a, const Tile &b, float sum[4][4]) {
    const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
#pragma unroll 4
    for (int r = 0; r < SIDE; r++) {
        const float4 x = a[r][ty], y = b[r][tx];
        multiply_add(sum[0], x.x, y);
        multiply_add(sum[1], x.y, y);
        multiply_add(sum[2], x.z, y);
        multiply_add(sum[3], x.w, y);
    }
}

// sum[i][j] = left[ty + 16 i] . right[4 tx + j] for 64 steps each of two matrices. Leaves the last chunks in `a` and `b`.
static __device__ __forceinline__ void scores(Tile &a, Tile &b, const real *left, u64 left_pitch, int left_first,
                                              const real *right, int right_first, float sum[4][4]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) sum[i][j] = 0.0f;
    // Loops over chunks stay loops: unrolled, they need more registers than there are.
#pragma unroll 1
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        __syncthreads();
        load_tile(a, left, left_pitch, left_first, chunk, false);
        load_tile(b, right, IN_PITCH, right_first, chunk, true);
        __syncthreads();
        product_nt(a, b, min(HEAD - chunk * SIDE, SIDE), sum);
    }
}

// Which of a thread's 4 x 4 weights are dropped: bit 4 i + j for the one of query ty + 16 i and key 4 tx + j. The loop is not
// unrolled, and its result is one word, so that a draw costs few registers.
static __device__ __forceinline__ u32 draw(const Draws &draws, u64 head, int queries, int keys) {
    u32 dropped = 0;
#if THRESHOLD > 0
    const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
#pragma unroll 1
    for (int i = 0; i < 4; i++) {
        // The number of weight [i, j] of a head is (head * T + i) * T + j.
        const u64 first = (head * STEPS + (queries + ty + 16 * i)) * STEPS + keys + tx * 4;
        u32 words[8];
        drop_words(draws, first / 4, words);
#if STEPS % 4 != 0
        // The four lie in two draws.
        drop_words(draws, first / 4 + 1, words + 4);
#pragma unroll
        for (int e = 0; e < 7; e++) words[e] = first & 1 ? words[e + 1] : words[e];
#pragma unroll
        for (int e = 0; e < 4; e++) words[e] = first & 2 ? words[e + 2] : words[e];
#endif
#pragma unroll
        for (int j = 0; j < 4; j++) dropped |= (words[j] < THRESHOLD ? 1u : 0u) << (4 * i + j);
    }
#endif
    return dropped;
}

// f of one of the weights that `draw` drew for.
static __device__ __forceinline__ float factor(u32 dropped, int i, int j) {
    return dropped >> (4 * i + j) & 1 ? 0.0f : (float)(KEEP);
}

// Over the 16 threads that share rows.
static __device__ __forceinline__ float row_sum(float x) {
#pragma unroll
    for (int offset = 8; offset > 0; offset /= 2) x += __shfl_xor_sync(FULL_WARP, x, offset);
    return x;
}

static __device__ __forceinline__ float row_max(float x) {
#pragma unroll
    for (int offset = 8; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(FULL_WARP, x, offset));
    return x;
}

// A thread's 4 x 4 weights as rows ty + 16 i, columns 4 tx + j of a tile.
static __device__ __forceinline__ void put(Tile &tile, const float values[4][4]) {
    const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
#pragma unroll
    for (int i = 0; i < 4; i++)
        tile[ty + 16 * i][tx] = make_float4(values[i][0], values[i][1], values[i][2], values[i][3]);
}

// Tiles of keys are gone through with the largest score so far of each row; when that grows, what was summed is scaled down.
KERNEL(__launch_bounds__(256, 1) attention_forward)(const real *x, const u32 *state, real *y, float *lse,
                                                        u32 row) {
    __shared__ Tile a, b;
    const Work block = work(true);
    const int ty = threadIdx.x / 16, tx = threadIdx.x % 16, first = block.tile * SIDE;
    const real *q = x + place_in(block.head, 0), *k = x + place_in(block.head, 1), *v = x + place_in(block.head, 2);
    float sum[OWN_CHUNKS][4][4] = {};
    // Of row ty + 16 i: the largest score, and this thread's share of the sum of exp(score - largest).
    float largest[4], total[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        largest[i] = -__int_as_float(0x7f800000);
        total[i] = 0.0f;
    }
    for (int keys = 0; keys <= last_keys(first); keys += SIDE) {
        const u32 dropped = draw(Draws{state, row}, block.head, first, keys);
        float p[4][4];
        scores(a, b, q, IN_PITCH, first, k, keys, p);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int step = first + ty + 16 * i, key = keys + tx * 4;
            float highest = largest[i];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                p[i][j] = sees(step, key + j) ? p[i][j] * (float)(SCALE) : -__int_as_float(0x7f800000);
                highest = fmaxf(highest, p[i][j]);
            }
            // Finite from the first tile on: every step sees key 0.
            highest = row_max(highest);
            const float shrink = expf(largest[i] - highest);
            largest[i] = highest;
            total[i] *= shrink;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                p[i][j] = expf(p[i][j] - highest);
                total[i] += p[i][j];
                p[i][j] *= factor(dropped, i, j);
            }
#pragma unroll
            for (int c = 0; c < OWN_CHUNKS; c++)
#pragma unroll
                for (int j = 0; j < 4; j++) sum[c][i][j] *= shrink;
        }
#pragma unroll
        for (int c = 0; c < OWN_CHUNKS; c++) {
            __syncthreads();
            if (c == 0) put(a, p);
            load_tile(b, v, IN_PITCH, keys, block.first_chunk + c, true);
            __syncthreads();
            product_nn(a, b, sum[c]);
        }
    }
    y += place_out(block.head);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int step = first + ty + 16 * i;
        const float all = row_sum(total[i]);
#if SAVES
        if (step < STEPS && tx == 0 && block.first_chunk == 0) lse[block.head * STEPS + step] = largest[i] + logf(all);
#endif
#pragma unroll
        for (int c = 0; c < OWN_CHUNKS; c++) {
#pragma unroll
            for (int j = 0; j < 4; j++) sum[c][i][j] /= all;
            store_four(y, OUT_PITCH, step, (block.first_chunk + c) * SIDE + tx * 4, sum[c][i]);
        }
    }
}

// The log-sum-exp of rows ty + 16 i of a tile of queries. Beyond the end it is infinite, and every weight exp(-infinity).
static __device__ __forceinline__ void logs_of(const float *lse, int first, float logs[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int step = first + threadIdx.x / 16 + 16 * i;
        logs[i] = step < STEPS ? lse[step] : __int_as_float(0x7f800000);
    }
}

// delta = dy . y of the same rows.
static __device__ __forceinline__ void dot_gradients(const real *dy, const real *y, int first, float deltas[4]) {
    const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int step = first + ty + 16 * i;
        float delta = 0.0f;
#pragma unroll 1
        for (int column = tx * 4; column < HEAD; column += SIDE) {
            const float4 l = load_four(dy, OUT_PITCH, step, column), r = load_four(y, OUT_PITCH, step, column);
            delta += (l.x * r.x + l.y * r.y) + (l.z * r.z + l.w * r.w);
        }
        deltas[i] = row_sum(delta);
    }
}

// From scores and dy . v of queries ty + 16 i and keys 4 tx + j: f * p into `p`, and s into `s`.
static __device__ __forceinline__ void slopes(u32 dropped, int queries, int keys, const float logs[4],
                                              const float deltas[4], float p[4][4], float s[4][4]) {
    const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int step = queries + ty + 16 * i, key = keys + tx * 4;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float weight = sees(step, key + j) ? expf(p[i][j] * (float)(SCALE) - logs[i]) : 0.0f;
            s[i][j] = weight * (factor(dropped, i, j) * s[i][j] - deltas[i]);
            p[i][j] = weight * factor(dropped, i, j);
        }
    }
}

KERNEL(__launch_bounds__(256, 1) attention_backward_queries)(const real *dy, const real *x, const real *y, const float *lse,
                                                          const u32 *state, float *delta, real *dx, u32 row) {
    __shared__ Tile a, b;
    const Work block = work(true);
    const int ty = threadIdx.x / 16, tx = threadIdx.x % 16, first = block.tile * SIDE;
    const real *q = x + place_in(block.head, 0), *k = x + place_in(block.head, 1), *v = x + place_in(block.head, 2);
    dy += place_out(block.head);
    float logs[4], deltas[4];
    logs_of(lse + block.head * STEPS, first, logs);
    dot_gradients(dy, y + place_out(block.head), first, deltas);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int step = first + ty + 16 * i;
        if (step < STEPS && tx == 0 && block.first_chunk == 0) delta[block.head * STEPS + step] = deltas[i];
    }
    float dq[OWN_CHUNKS][4][4] = {};
    for (int keys = 0; keys <= last_keys(first); keys += SIDE) {
        const u32 dropped = draw(Draws{state, row}, block.head, first, keys);
        float p[4][4], s[4][4];
        scores(a, b, dy, OUT_PITCH, first, v, keys, s);
        scores(a, b, q, IN_PITCH, first, k, keys, p);
        slopes(dropped, first, keys, logs, deltas, p, s);
#pragma unroll
        for (int c = 0; c < OWN_CHUNKS; c++) {
            __syncthreads();
            if (c == 0) put(a, s);
            // A single chunk of the keys is still there.
            if (CHUNKS > 1) load_tile(b, k, IN_PITCH, keys, block.first_chunk + c, true);
            __syncthreads();
            product_nn(a, b, dq[c]);
        }
    }
    dx += place_in(block.head, 0);
#pragma unroll
    for (int c = 0; c < OWN_CHUNKS; c++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++) dq[c][i][j] *= (float)(SCALE);
            store_four(dx, IN_PITCH, first + ty + 16 * i, (block.first_chunk + c) * SIDE + tx * 4, dq[c][i]);
        }
}

KERNEL(__launch_bounds__(256, 1) attention_backward_keys)(const real *dy, const real *x, const float *lse, const float *delta,
                                                       const u32 *state, real *dx, u32 row) {
    __shared__ Tile a, b;
    const Work block = work(false);
    const int ty = threadIdx.x / 16, tx = threadIdx.x % 16, first = block.tile * SIDE;
    const u64 owner = first_of_group(block.head);
    const real *k = x + place_in(owner, 1), *v = x + place_in(owner, 2);
    float dk[OWN_CHUNKS][4][4] = {}, dv[OWN_CHUNKS][4][4] = {};
#pragma unroll 1
    for (u64 head = owner; head < owner + GROUP; head++) {
        const real *q = x + place_in(head, 0), *gradient = dy + place_out(head);
#pragma unroll 1
        for (int queries = first_queries(first); queries < STEPS; queries += SIDE) {
            const u32 dropped = draw(Draws{state, row}, head, queries, first);
            float p[4][4], s[4][4];
            scores(a, b, q, IN_PITCH, queries, k, first, p);
            scores(a, b, gradient, OUT_PITCH, queries, v, first, s);
            float logs[4], deltas[4];
            logs_of(lse + head * STEPS, queries, logs);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int step = queries + ty + 16 * i;
                deltas[i] = step < STEPS ? delta[head * STEPS + step] : 0.0f;
            }
            slopes(dropped, queries, first, logs, deltas, p, s);
#pragma unroll
            for (int c = 0; c < OWN_CHUNKS; c++) {
                __syncthreads();
                if (c == 0) put(b, p);
                // A single chunk of dy is still there.
                if (CHUNKS > 1) load_tile(a, gradient, OUT_PITCH, queries, block.first_chunk + c, false);
                __syncthreads();
                product_tn(b, a, dv[c]);
            }
#pragma unroll
            for (int c = 0; c < OWN_CHUNKS; c++) {
                __syncthreads();
                if (c == 0) put(b, s);
                load_tile(a, q, IN_PITCH, queries, block.first_chunk + c, false);
                __syncthreads();
                product_tn(b, a, dk[c]);
            }
        }
    }
#pragma unroll
    for (int c = 0; c < OWN_CHUNKS; c++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int step = first + ty * 4 + i, column = (block.first_chunk + c) * SIDE + tx * 4;
#pragma unroll
            for (int j = 0; j < 4; j++) dk[c][i][j] *= (float)(SCALE);
            store_four(dx + place_in(owner, 1), IN_PITCH, step, column, dk[c][i]);
            store_four(dx + place_in(owner, 2), IN_PITCH, step, column, dv[c][i]);
        }
}

#endif

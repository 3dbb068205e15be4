// Scaled dot-product attention and its gradient, in tiles of 64 queries and 64 keys. No T x T tensor is ever stored in device memory.
//
// HEADS     heads of the queries
// KV_HEADS  heads of the keys, and of the values. HEADS / KV_HEADS consecutive heads of queries share each of them
// STEPS     T, time steps of a sequence of queries
// KEY_STEPS M, time steps of keys and values
// CAUSAL    1 if a query attends to keys up to its own time step only; 0 if to all, and then the conditions on i and j below are void
// WINDOW    a query attends to keys whose time step differs from its own by less than this; 0 for all keys
// HEAD      S, elements of a head of queries and keys
// VALUE_HEAD V, elements of a head of values
// SCALE     factor of products of queries and keys
// APART     1 if queries, keys and values are three inputs; 0 if they are adjacent in one input, in which case T = M and S = V
// SEQUENCES sequences of a sample
// MATRICES  bias matrices that are added to scaled products, in all or, with PER_SAMPLE, for each sample; 0 without a bias
// BIAS_ROWS rows of each matrix, of M numbers: T, or 1 that all queries share
// SHARING   consecutive heads that share a matrix; after the last matrix comes the first one again
// SEEN      1 if `seen` has the number of keys of each sample that count, from the first on; 2 if it has a segment number for each time step, which
//           never falls along a sequence: a query attends to keys of its own segment; 0 without `seen`
// SAMPLES   samples of the batch, for the kernel that sums over them
// SAVES     1 if the log-sum-exp is saved for the backward pass
// THRESHOLD a weight is dropped if its random word is below it; 0 without dropout, which needs no state
// KEEP      factor of the weights that are not dropped
// ADD       1 if the gradient is added to its tensor (+=), 0 if it overwrites it; 0 for the forward pass. ADD_KEYS and ADD_VALUES are the same for
//           keys and values that are inputs of their own, and ADD_BIAS for the bias
// WGMMA     1 for the forward pass on Hopper's warpgroup instructions, see attention_wgmma.cuh; else 0, or missing
// TENSOR_CORES terms that a tensor-core instruction sums, see mma.cuh; 0 if S is not a multiple of 16 up to 128, or V differs from S
//
// Queries are q [B, T, HEADS, S], keys k and values v [B, M, KV_HEADS, S] and [B, M, KV_HEADS, V]: each an input, or adjacent in the rows of one
// input x. B counts sequences. y is [B, T, HEADS, V], lse and delta [B, HEADS, T].
//
// forward:  y[i] = sum over j <= i of f[i, j] * p[i, j] * v[j], with p[i, j] = exp(score[i, j] - lse[i]),
//           score[i, j] = SCALE * q[i] . k[j] + bias[i, j], lse[i] = log(sum over j <= i of exp(score[i, j])) and f[i, j] = 0 for
//           dropped weights, else KEEP. The random word of a weight is that of element ((b * HEADS + h) * T + i) * M + j.
//           A bias[i, j] of -infinity makes p[i, j] 0. If it is -infinity for all j, or no key counts, y[i] is 0 and lse[i] is
//           +infinity. Keys that do not count are not read, and tiles without one that does are skipped.
// backward: with delta[i] = dy[i] . y[i] and s[i, j] = p[i, j] * (f[i, j] * dy[i] . v[j] - delta[i]):
//           dq[i] = SCALE * sum over j <= i of s[i, j] * k[j],  dk[j] = SCALE * sum over i >= j of s[i, j] * q[i],
//           dv[j] = sum over i >= j of f[i, j] * p[i, j] * dy[i]. One kernel goes over the keys of a tile of queries, for dq, and
//           also writes delta; the other goes over the queries of a tile of keys, for dk and dv. Each element is summed by one thread, in the
//           same order in every run: over query heads that share keys, one after the other. Gradients have the layouts of their inputs;
//           those that are not wanted are null. A third kernel sums s over the heads that share a matrix, and over all queries that share
//           a row.
//
// Grid: a block for each tile of queries or keys, head, sequence and slice of a wide head; 256 threads, or 128 with tensor cores.
//
// With tensor cores, see attention_mma.cuh. Without, see attention_fma.cuh.
#include "base.cuh"
#include "real.cuh"
#include "part.cuh"

#ifndef SEEN
#define SEEN 0
#endif
#ifndef WGMMA
#define WGMMA 0
#endif

// Rows and columns of a tile.
constexpr int SIDE = 64;
// Chunks of SIDE elements of a head of queries and of a head of values, and chunks that one block writes. SLICES is the number of blocks of a head;
// TILES and KEY_TILES are the tiles of a sequence of queries and of keys.
constexpr int CHUNKS = (HEAD + SIDE - 1) / SIDE;
constexpr int VALUE_CHUNKS = (VALUE_HEAD + SIDE - 1) / SIDE;
constexpr int MOST_CHUNKS = CHUNKS > VALUE_CHUNKS ? CHUNKS : VALUE_CHUNKS;
constexpr int OWN_CHUNKS = MOST_CHUNKS < 2 ? MOST_CHUNKS : 2;
constexpr int SLICES = (MOST_CHUNKS + OWN_CHUNKS - 1) / OWN_CHUNKS;
constexpr int TILES = (STEPS + SIDE - 1) / SIDE;
constexpr int KEY_TILES = (KEY_STEPS + SIDE - 1) / SIDE;
// Elements from one time step to the next, in queries, keys, values, and the output.
constexpr u64 JOINED_PITCH = (HEADS + 2ull * KV_HEADS) * HEAD;
constexpr u64 QUERY_PITCH = APART ? 1ull * HEADS * HEAD : JOINED_PITCH;
constexpr u64 KEY_PITCH = APART ? 1ull * KV_HEADS * HEAD : JOINED_PITCH;
constexpr u64 VALUE_PITCH = APART ? 1ull * KV_HEADS * VALUE_HEAD : JOINED_PITCH;
constexpr u64 OUT_PITCH = 1ull * HEADS * VALUE_HEAD;
// The largest distance in time steps between a query and a key that it attends to, with a window.
constexpr int REACH = WINDOW - 1;
// Returns the first time step of the tile that contains this one, or the first tile for a negative one.
static __device__ __forceinline__ int tile_of(int step) { return step > 0 ? step / SIDE * SIDE : 0; }
// Return the number of keys of a sample that count, and the part of `seen` that belongs to a head's sample.
static __device__ __forceinline__ int count_of(const u32 *seen) {
#if SEEN == 1
    return *seen < KEY_STEPS ? (int)*seen : KEY_STEPS;
#else
    return KEY_STEPS;
#endif
}
static __device__ __forceinline__ const u32 *seen_of(u64 head, const u32 *seen) {
    return SEEN ? seen + head / (1ull * SEQUENCES * HEADS) * (SEEN == 1 ? 1 : KEY_STEPS) : seen;
}
// Returns how many time steps have a segment number below this one, or with UPTO not above it: the first time step of a segment, and the one after
// its last.
template <bool UPTO>
static __device__ __forceinline__ int steps_below(const u32 *seen, u32 number) {
    int first = 0, end = KEY_STEPS;
    while (first < end) {
        const int middle = (first + end) / 2;
        const bool below = UPTO ? seen[middle] <= number : seen[middle] < number;
        first = below ? middle + 1 : first;
        end = below ? end : middle;
    }
    return first;
}
// Return the ranges of tiles that attend to each other, as time steps: the first and last tile of keys for a tile of queries; and for a tile of
// keys, the first tile of queries and the time step where those end. If there are none, the last one is before the first.
static __device__ __forceinline__ int first_keys(int queries, const u32 *seen) {
    const int first = WINDOW ? tile_of(queries - REACH) : 0;
    return SEEN == 2 ? max(first, tile_of(steps_below<false>(seen, seen[queries]))) : first;
}
static __device__ __forceinline__ int last_keys(int queries, const u32 *seen) {
    int last = (KEY_TILES - 1) * SIDE;
    const int near = CAUSAL ? queries : tile_of(queries + SIDE - 1 + REACH);
    if ((CAUSAL || WINDOW) && near < last) last = near;
    if (SEEN == 1) last = min(last, count_of(seen) > 0 ? tile_of(count_of(seen) - 1) : -SIDE);
    if (SEEN == 2) last = min(last, tile_of(steps_below<true>(seen, seen[min(queries + SIDE, STEPS) - 1]) - 1));
    return last;
}
static __device__ __forceinline__ int first_queries(int keys, const u32 *seen) {
    const int first = CAUSAL ? keys : WINDOW ? tile_of(keys - REACH) : 0;
    return SEEN == 2 ? max(first, tile_of(steps_below<false>(seen, seen[keys]))) : first;
}
static __device__ __forceinline__ int end_queries(int keys, const u32 *seen) {
    const int end = WINDOW ? min(keys + SIDE + REACH, STEPS) : STEPS;
    if (SEEN == 1 && keys >= count_of(seen)) return 0;
    return SEEN == 2 ? min(end, steps_below<true>(seen, seen[min(keys + SIDE, KEY_STEPS) - 1])) : end;
}
// True if a query and a key at this distance are within the window.
static __device__ __forceinline__ bool is_near(int apart) { return !WINDOW || (apart < WINDOW && -apart < WINDOW); }
// True if a query may attend to a key, by the numbers of their sample.
static __device__ __forceinline__ bool counts(int step, int key, const u32 *seen) {
    if (SEEN == 1) return key < count_of(seen);
    return SEEN != 2 || (step < STEPS && key < KEY_STEPS && seen[step] == seen[key]);
}
// True if COUNT queries from `step` on may all attend to as many keys from `key` on. `seen` has the numbers of their sample.
template <int COUNT>
static __device__ __forceinline__ bool all_count(int step, int key, const u32 *seen) {
    if (SEEN == 1) return key + COUNT <= count_of(seen);
    // Tiles may begin beyond the end: what those compute is not stored.
    return SEEN != 2 || seen[min(min(step, key), STEPS - 1)] == seen[min(max(step, key) + COUNT, STEPS) - 1];
}
// True if a query attends to a key.
static __device__ __forceinline__ bool sees(int step, int key, const u32 *seen) {
    return (!CAUSAL || key <= step) && key < KEY_STEPS && is_near(step - key) && counts(step, key, seen);
}
// True if all keys of a tile may be hidden from a query. Otherwise every query sees key 0.
constexpr bool HIDES_TILES = WINDOW > 0 || MATRICES > 0 || SEEN > 0;
// The score of a hidden key.
static __device__ __forceinline__ float hidden() { return -__int_as_float(0x7f800000); }
// Returns the score that exponentials are relative to, from the largest so far. It is 0 if all are hidden, as -infinity less -infinity is NaN.
static __device__ __forceinline__ float base_of(float largest) {
    return HIDES_TILES && largest == hidden() ? 0.0f : largest;
}
// True if a query attends to no key, so that the sum of its weights is 0. Masks and lengths may cause that; a window alone leaves every query a
// key.
static __device__ __forceinline__ bool sees_none(float total) { return (MATRICES > 0 || SEEN > 0) && total == 0.0f; }
// Heads of queries that share a head of keys.
constexpr int GROUP = HEADS / KV_HEADS;

// A block's share of the work.
struct Work {
    // Head in the batch: b * HEADS + h, or b * KV_HEADS + h if a block works on keys.
    u64 head;
    int tile;
    int first_chunk;
};

// Returns the work of this block. Blocks with the most work come first: those of the late tiles if `late`.
static __device__ __forceinline__ Work work(int tiles, bool late) {
    const u32 heads = gridDim.x / (tiles * SLICES);
    const u32 order = blockIdx.x / (heads * SLICES), rest = blockIdx.x % (heads * SLICES);
    Work work;
    work.head = rest / SLICES;
    work.tile = late ? tiles - 1 - (int)order : (int)order;
    work.first_chunk = (int)(rest % SLICES) * OWN_CHUNKS;
    return work;
}

// Return the offsets of a query head's queries, keys and values in their input or gradient, and of the head in y or dy.
static __device__ __forceinline__ u64 place_queries(u64 head) {
    return head / HEADS * STEPS * QUERY_PITCH + head % HEADS * HEAD;
}

static __device__ __forceinline__ u64 place_keys(u64 head) {
    const u64 before = APART ? 0 : 1ull * HEADS * HEAD;
    return head / HEADS * KEY_STEPS * KEY_PITCH + before + head % HEADS / GROUP * HEAD;
}

static __device__ __forceinline__ u64 place_values(u64 head) {
    const u64 before = APART ? 0 : (1ull * HEADS + KV_HEADS) * HEAD;
    return head / HEADS * KEY_STEPS * VALUE_PITCH + before + head % HEADS / GROUP * VALUE_HEAD;
}

// Returns the first query head that shares a head of keys.
static __device__ __forceinline__ u64 first_of_group(u64 keys) {
    return keys / KV_HEADS * HEADS + keys % KV_HEADS * GROUP;
}

static __device__ __forceinline__ u64 place_out(u64 head) {
    return head / HEADS * STEPS * OUT_PITCH + head % HEADS * VALUE_HEAD;
}

#if MATRICES
// Elements from the bias of one query to that of the next.
constexpr u64 BIAS_PITCH = BIAS_ROWS == 1 ? 0 : KEY_STEPS;
#endif
// Returns the index of the bias matrix of a query head, in the whole batch.
static __device__ __forceinline__ u64 matrix_of(u64 head) {
#if MATRICES
    const u64 own = head % (1ull * SEQUENCES * HEADS) / SHARING % MATRICES;
    return PER_SAMPLE ? head / (1ull * SEQUENCES * HEADS) * MATRICES + own : own;
#else
    return 0;
#endif
}

// Returns the bias matrix, or row, of a query head.
static __device__ __forceinline__ const real *bias_of(u64 head, const real *bias) {
#if MATRICES
    return bias + matrix_of(head) * BIAS_ROWS * KEY_STEPS;
#else
    return bias;
#endif
}

// The inputs of a query head, and the number of its keys that count.
struct Parts {
    const real *q, *k, *v, *bias;
    const u32 *seen;
    int count;
};

static __device__ __forceinline__ Parts parts_of(u64 head, const real *q, const real *k, const real *v, const real *bias,
                                                 const u32 *seen) {
    Parts parts = {q + place_queries(head), k + place_keys(head), v + place_values(head), bias, seen_of(head, seen), 0};
    parts.bias = bias_of(head, bias);
    parts.count = count_of(parts.seen);
    return parts;
}

// Returns the score of a query and a key from their product. The product is scaled before the bias is added, so that a bias of the lowest number
// stays finite.
static __device__ __forceinline__ float biased(float product, const real *bias, int step, int key) {
#if MATRICES
    const bool is_added = step < STEPS && key < KEY_STEPS;
    return product * (float)(SCALE) + (is_added ? widen(bias[BIAS_PITCH * step + key]) : 0.0f);
#else
    return product;
#endif
}
// The factor that scores still need: without a bias, products are not scaled yet.
constexpr float SCORE_SCALE = MATRICES ? 1.0f : (float)(SCALE);

#if WGMMA
#include "attention_wgmma.cuh"
#elif TENSOR_CORES
#include "attention_mma.cuh"
#else
#include "attention_fma.cuh"
#endif

// Attention, and its gradient, in tiles of 64 queries and 64 keys: there is never a T x T tensor in device memory.
//
// HEADS     heads of the queries
// KV_HEADS  heads of the keys, and of the values: as many neighbouring heads of queries share each, HEADS / KV_HEADS
// STEPS     T, steps of a sequence of queries
// KEY_STEPS M, steps of keys and values
// CAUSAL    whether a step sees only those up to its own number; else all of them, and the conditions on i and j below are void
// WINDOW    a step sees keys whose number differs from its own by less; 0 where it sees all
// HEAD      S, elements of a head of queries and keys
// VALUE_HEAD V, elements of a head of values
// SCALE     what products of queries and keys are multiplied with
// APART     whether queries, keys and values are three inputs; else they lie side by side, T = M and S = V
// SEQUENCES sequences of a sample
// MATRICES  matrices that are added to scaled products, in all or, with PER_SAMPLE, for each sample; 0 if there are none
// BIAS_ROWS rows of each, of M numbers: T, or 1 that all queries share
// SHARING   heads that follow each other and share a matrix; after the last one comes the first one again
// SEEN      1 where `seen` has how many keys of each sample count, from the first on; 2 where it has a number for each step, which never
//           falls along a sequence: a query sees keys of its own number; 0 where it has nothing
// SAMPLES   samples of the batch, for the kernel that sums over them
// SAVES     whether the log-sum-exp is kept
// THRESHOLD a weight is dropped when its random word is below it; 0 where nothing is dropped, which needs no state
// KEEP      what the weights that are not dropped are multiplied with
// ADD       whether the gradient is added to what is there; 0 for the forward pass. ADD_KEYS and ADD_VALUES say it for those, where
//           they are inputs of their own, and ADD_BIAS for what is added
// TENSOR_CORES terms that an instruction of the tensor cores multiplies, see mma.cuh; 0 where S is not a multiple of 16 up to 128, or V
//           is another number
//
// Queries are q [B, T, HEADS, S], keys k and values v [B, M, KV_HEADS, S] and [B, M, KV_HEADS, V]: each an input, or x with all
// three side by side in a row. B counts sequences. y is [B, T, HEADS, V], lse and delta [B, HEADS, T].
//
// forward:  y[i] = sum over j <= i of f[i, j] * p[i, j] * v[j], with p[i, j] = exp(score[i, j] - lse[i]),
//           score[i, j] = SCALE * q[i] . k[j] + bias[i, j], lse[i] = log(sum over j <= i of exp(score[i, j])) and f[i, j] = 0 for
//           dropped weights, else KEEP. The random word of a weight is that of element ((b * HEADS + h) * T + i) * M + j.
//           A bias[i, j] of -infinity makes p[i, j] 0. If it is -infinity for all j, or no key counts, y[i] is 0 and lse[i] is
//           +infinity. Keys that do not count are not read, and tiles without one that does are skipped.
// backward: with delta[i] = dy[i] . y[i] and s[i, j] = p[i, j] * (f[i, j] * dy[i] . v[j] - delta[i]):
//           dq[i] = SCALE * sum over j <= i of s[i, j] * k[j],  dk[j] = SCALE * sum over i >= j of s[i, j] * q[i],
//           dv[j] = sum over i >= j of f[i, j] * p[i, j] * dy[i]. One kernel goes over the keys of a tile of queries, for dq, and
//           leaves delta behind; the other goes over the queries of a tile of keys, for dk and dv. Each element is summed by one
//           thread, in the same order in every run: where heads of queries share keys, one after the other. Gradients lie as what
//           they are of does; those that are not wanted are null. A third kernel sums s over the heads that share a matrix, and over all
//           queries that share a row.
//
// With tensor cores, see attention_mma.cuh. Without, see attention_fma.cuh.
#include "base.cuh"
#include "real.cuh"
#include "part.cuh"

#ifndef SEEN
#define SEEN 0
#endif

// Rows and columns of a tile.
constexpr int SIDE = 64;
// Chunks of a head of queries and of values, chunks that one block puts out, and tiles of sequences of queries and of keys.
constexpr int CHUNKS = (HEAD + SIDE - 1) / SIDE;
constexpr int VALUE_CHUNKS = (VALUE_HEAD + SIDE - 1) / SIDE;
constexpr int MOST_CHUNKS = CHUNKS > VALUE_CHUNKS ? CHUNKS : VALUE_CHUNKS;
constexpr int OWN_CHUNKS = MOST_CHUNKS < 2 ? MOST_CHUNKS : 2;
constexpr int SLICES = (MOST_CHUNKS + OWN_CHUNKS - 1) / OWN_CHUNKS;
constexpr int TILES = (STEPS + SIDE - 1) / SIDE;
constexpr int KEY_TILES = (KEY_STEPS + SIDE - 1) / SIDE;
// Elements from one step to the next, of queries, keys and values, and of the output.
constexpr u64 JOINED_PITCH = (HEADS + 2ull * KV_HEADS) * HEAD;
constexpr u64 QUERY_PITCH = APART ? 1ull * HEADS * HEAD : JOINED_PITCH;
constexpr u64 KEY_PITCH = APART ? 1ull * KV_HEADS * HEAD : JOINED_PITCH;
constexpr u64 VALUE_PITCH = APART ? 1ull * KV_HEADS * VALUE_HEAD : JOINED_PITCH;
constexpr u64 OUT_PITCH = 1ull * HEADS * VALUE_HEAD;
// How far beyond a tile of queries or keys what it sees or is seen by can begin or end.
constexpr int REACH = WINDOW - 1;
// The tile that begins with this step or has it, at least the first.
static __device__ __forceinline__ int tile_of(int step) { return step > 0 ? step / SIDE * SIDE : 0; }
// The number of keys of a sample that count, and the sample that the numbers at `seen` belong to.
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
// Steps whose number is below this one, or with UPTO not above it: the first step of a segment, and the one after its last.
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
// The first and the last tile of keys that the queries of a tile see, and the first of queries that see the keys of a tile and the step
// at which those end, as their steps. Where there are none, the last one is before the first.
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
// Whether a step is near enough to another one to see it.
static __device__ __forceinline__ bool is_near(int apart) { return !WINDOW || (apart < WINDOW && -apart < WINDOW); }
// True if a step may see another one, by the numbers of their sample.
static __device__ __forceinline__ bool counts(int step, int key, const u32 *seen) {
    if (SEEN == 1) return key < count_of(seen);
    return SEEN != 2 || (step < STEPS && key < KEY_STEPS && seen[step] == seen[key]);
}
// True if COUNT steps from `step` on and as many keys from `key` on may all see each other.
template <int COUNT>
static __device__ __forceinline__ bool all_count(int step, int key, const u32 *seen) {
    if (SEEN == 1) return key + COUNT <= count_of(seen);
    return SEEN != 2 || seen[min(step, key)] == seen[min(max(step, key) + COUNT, STEPS) - 1];
}
// Whether a step sees another one.
static __device__ __forceinline__ bool sees(int step, int key, const u32 *seen) {
    return (!CAUSAL || key <= step) && key < KEY_STEPS && is_near(step - key) && counts(step, key, seen);
}
// True if all keys of a tile may be hidden from a query. Otherwise every query sees key 0.
constexpr bool HIDES_TILES = WINDOW > 0 || MATRICES > 0 || SEEN > 0;
// The score of a hidden key.
static __device__ __forceinline__ float hidden() { return -__int_as_float(0x7f800000); }
// The score that exponentials are relative to, from the largest so far: 0 if all are hidden, as -infinity less -infinity is NaN.
static __device__ __forceinline__ float base_of(float largest) {
    return HIDES_TILES && largest == hidden() ? 0.0f : largest;
}
// True if a query sees no key, so that the sum of its weights is 0. Masks and lengths do that: a window alone leaves every query a key.
static __device__ __forceinline__ bool sees_none(float total) { return (MATRICES > 0 || SEEN > 0) && total == 0.0f; }
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
static __device__ __forceinline__ Work work(int tiles, bool late) {
    const u32 heads = gridDim.x / (tiles * SLICES);
    const u32 order = blockIdx.x / (heads * SLICES), rest = blockIdx.x % (heads * SLICES);
    Work work;
    work.head = rest / SLICES;
    work.tile = late ? tiles - 1 - (int)order : (int)order;
    work.first_chunk = (int)(rest % SLICES) * OWN_CHUNKS;
    return work;
}

// Where the queries, keys and values of a head of queries are in their input or gradient, and where the head is in y or dy.
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

// The first head of queries that shares a head of keys.
static __device__ __forceinline__ u64 first_of_group(u64 keys) {
    return keys / KV_HEADS * HEADS + keys % KV_HEADS * GROUP;
}

static __device__ __forceinline__ u64 place_out(u64 head) {
    return head / HEADS * STEPS * OUT_PITCH + head % HEADS * VALUE_HEAD;
}

#if MATRICES
// Elements from what is added for one query to what is added for the next.
constexpr u64 BIAS_PITCH = BIAS_ROWS == 1 ? 0 : KEY_STEPS;
#endif
// Which matrix is added to the scores of a head of queries, of the batch's.
static __device__ __forceinline__ u64 matrix_of(u64 head) {
#if MATRICES
    const u64 own = head % (1ull * SEQUENCES * HEADS) / SHARING % MATRICES;
    return PER_SAMPLE ? head / (1ull * SEQUENCES * HEADS) * MATRICES + own : own;
#else
    return 0;
#endif
}

// The matrix, or the row, that is added to the scores of a head of queries.
static __device__ __forceinline__ const real *bias_of(u64 head, const real *bias) {
#if MATRICES
    return bias + matrix_of(head) * BIAS_ROWS * KEY_STEPS;
#else
    return bias;
#endif
}

// The inputs of a head of queries, and how many of its keys count.
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

// The score of a query and a key from their product. The product is scaled before the bias is added: the lowest number stays finite.
static __device__ __forceinline__ float biased(float product, const real *bias, int step, int key) {
#if MATRICES
    const bool is_added = step < STEPS && key < KEY_STEPS;
    return product * (float)(SCALE) + (is_added ? widen(bias[BIAS_PITCH * step + key]) : 0.0f);
#else
    return product;
#endif
}
// The factor that scores still lack: without matrices that are added, products are not scaled yet.
constexpr float SCORE_SCALE = MATRICES ? 1.0f : (float)(SCALE);

#if TENSOR_CORES
#include "attention_mma.cuh"
#else
#include "attention_fma.cuh"
#endif

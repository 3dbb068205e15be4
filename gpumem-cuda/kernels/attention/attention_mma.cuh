// Attention on tensor cores, for attention.cu: heads of 16, 32, ... 128 elements.
//
// A block has four warps. Each has 16 of the block's 64 rows: queries, or keys if the gradients of keys and values are computed. Those rows stay in
// registers as left operands of products. The right operands, tiles of the other rows, are loaded one after the other into shared memory. Weights
// are the accumulators of the first products and the left operands of the next ones, without leaving the registers. Exponentials are to the base of
// 2.
//
// No include guard: the tests include it once for each kernel they compile.
#include "attention_rows.cuh"

// Pitch in shared memory, in elements: an odd multiple of 16 bytes, so that eight rows are read at once.
constexpr int WIDTH = HEAD + 8;
constexpr int THREADS = 128;
// Blocks for which a multiprocessor must have registers: without this bound, ptxas tries to fit more and spills. Partial tiles and shared keys need
// additional registers. The shared memory of compute capability 7.5 is enough for one block of the backward pass.
constexpr bool PLAIN = STEPS % SIDE == 0 && KEY_STEPS % SIDE == 0 && GROUP == 1 && !MATRICES && !SEEN;
// True if a query could attend to keys beyond the end, judged by its time step alone.
constexpr bool ENDS = KEY_STEPS % SIDE != 0 && !(CAUSAL && KEY_STEPS >= STEPS);
constexpr int RESIDENT_FORWARD = HEAD > 64 ? 1 : SEEN && MATRICES ? 2 : TENSOR_CORES == 16 && THRESHOLD == 0 && PLAIN ? 4 : 3;
constexpr int RESIDENT_BACKWARD = HEAD > 64 || TENSOR_CORES != 16 ? 1 : PLAIN ? 3 : 2;
// Rows of the tiles that are loaded one after the other in the backward pass: as many as let two pairs of them fit.
constexpr int STREAM = HEAD <= 64 ? 64 : 32;

struct __align__(16) Rows {
    u16 at[SIDE * WIDTH];
};

// Two pairs of streamed tiles, or one pair of tiles of the block's own rows.
struct __align__(16) Pairs {
    u16 at[4 * STREAM * WIDTH];
};

// Loads COUNT rows of a head from time step `first` on, a multiple of COUNT. Stores zeros beyond the sequence of LENGTH, or with CUT beyond
// `length` time steps. Complete after `copies_done` and a barrier.
template <int COUNT, int LENGTH, bool CUT = false>
static __device__ __forceinline__ void load_rows(u16 *tile, const real *head, u64 pitch, int first, int length = LENGTH) {
    constexpr bool WHOLE = !CUT && LENGTH % COUNT == 0;
    if constexpr (THREADS % EIGHTS == 0) {
        // The distance of a thread's rows is a constant, so that all of its copies have one address and different offsets.
        constexpr int STRIDE = THREADS / EIGHTS, ROUNDS = TENSOR_CORES == 16 && WHOLE ? COUNT / STRIDE : 1;
        const int row = threadIdx.x / EIGHTS, column = threadIdx.x % EIGHTS * 8;
        u16 *to = tile + row * WIDTH + column;
        const real *from = head + (first + row) * pitch + column;
#pragma unroll ROUNDS
        for (int i = 0; i < COUNT; i += STRIDE) {
            const bool inside = WHOLE || first + row + i < length;
            copy_16(to + i * WIDTH, inside ? from + i * pitch : head, inside);
        }
    } else {
        // The copies are in flight together anyhow, and an unrolled loop needs more registers.
#pragma unroll 1
        for (int i = threadIdx.x; i < COUNT * EIGHTS; i += THREADS) {
            const int row = i / EIGHTS, column = i % EIGHTS * 8, step = first + row;
            copy_16(tile + row * WIDTH + column, head + (step < length ? step : 0) * pitch + column, step < length);
        }
    }
}

// Loads COUNT rows of the keys or values of a head, with zeros for those that do not count.
template <int COUNT>
static __device__ __forceinline__ void load_keys(u16 *tile, const real *head, u64 pitch, int first, int count) {
    load_rows<COUNT, KEY_STEPS, SEEN == 1>(tile, head, pitch, first, count);
}

// Loads the warp's rows of one of the block's own tiles.
static __device__ __forceinline__ void load_own(const u16 *tile, Left to[PARTS]) {
#pragma unroll
    for (int d = 0; d < PARTS; d++) load_left<false>(tile + warp_row() * WIDTH + 16 * d, WIDTH, to[d]);
}

// sums[16, 16] = the warp's own rows times the 16 rows from `tile` on, over the elements of a head.
static __device__ __forceinline__ void dot_rows(const Left own[PARTS], const u16 *tile, Accumulator sums[2]) {
#pragma unroll
    for (int d = 0; d < PARTS; d++) {
        Right first, second;
        load_rights<false>(tile + 16 * d, WIDTH, first, second);
        if (d == 0) {
            multiply(own[d], first, sums[0]);
            multiply(own[d], second, sums[1]);
        } else {
            multiply_add(own[d], first, sums[0]);
            multiply_add(own[d], second, sums[1]);
        }
    }
}

// sums[16, HEAD] += weights[16, 16] times the 16 rows from `tile` on.
static __device__ __forceinline__ void add_rows(const Left &weights, const u16 *tile, Accumulator sums[2 * PARTS]) {
#pragma unroll
    for (int d = 0; d < PARTS; d++) {
        Right first, second;
        load_rights<true>(tile + 16 * d, WIDTH, first, second);
        multiply_add(weights, first, sums[2 * d]);
        multiply_add(weights, second, sums[2 * d + 1]);
    }
}

// Returns which of four weights are dropped, a bit each. Their numbers are 4 * block and the three after it.
static __device__ __forceinline__ u32 draw_four(const Draws &draws, u64 block) {
    u32 words[4], dropped = 0;
    drop_words(draws, block, words);
#pragma unroll
    for (int i = 0; i < 4; i++) dropped |= (words[i] < THRESHOLD ? 1u : 0u) << i;
    return dropped;
}

static __device__ __forceinline__ u64 weight_number(u64 head, int query, int key) {
    return (head * STEPS + query) * KEY_STEPS + key;
}

// Returns which of a lane's weights are dropped, in 8 * COUNT columns: bit 4 j + e for element e of eight j.
//
// Rows are queries from `rows` on and columns keys from `columns` on, or with KEYS_DOWN the other way round. Four neighbouring keys share one draw,
// and the lanes that share it draw for each other. The loop is not unrolled, so that a draw costs few registers.
template <bool KEYS_DOWN, int COUNT>
static __device__ __forceinline__ u32 draw_tile(const Draws &draws, u64 head, int rows, int columns) {
    u32 dropped = 0;
#if THRESHOLD > 0
    const int lane = threadIdx.x % 32, row = rows + lane_row();
#pragma unroll 1
    for (int j = 0; j < COUNT; j++) {
        u32 bits = 0;
#if KEY_STEPS % 4 != 0
        // Weights may begin anywhere in a draw, so each is looked up.
#pragma unroll 1
        for (int e = 0; e < 4; e++) {
            const int down = row + e / 2 * 8, across = columns + 8 * j + lane_pair() + e % 2;
            const u64 number = KEYS_DOWN ? weight_number(head, across, down) : weight_number(head, down, across);
            bits |= (draw_four(draws, number / 4) >> (int)(number % 4) & 1) << e;
        }
#else
        if (KEYS_DOWN) {
            // Each of four lanes with neighbouring keys draws for one of two queries, and for these keys or those 8 further down.
            const int share = lane / 4 % 4, base = lane & ~12;
            const int query = columns + 8 * j + lane_pair() + share % 2, key = row / 4 * 4 + share / 2 * 8;
            const u32 own = draw_four(draws, weight_number(head, query, key) / 4);
#pragma unroll
            for (int e = 0; e < 4; e++) bits |= (__shfl_sync(FULL_WARP, own, base + 4 * e) >> share & 1) << e;
        } else {
            // Of two lanes with neighbouring keys, one draws for row g, the other for row g + 8.
            const int odd = lane % 2, query = row + 8 * odd, key = columns + 8 * j + lane % 4 / 2 * 4;
            const u32 own = draw_four(draws, weight_number(head, query, key) / 4);
            const u32 other = __shfl_xor_sync(FULL_WARP, own, 1);
            bits = ((odd ? other : own) >> 2 * odd & 3) | ((odd ? own : other) >> 2 * odd & 3) << 2;
        }
#endif
        dropped |= bits << 4 * j;
    }
#endif
    return dropped;
}

static __device__ __forceinline__ float keeps(u32 dropped, int bit) {
    return dropped >> bit & 1 ? 0.0f : (float)(KEEP);
}

// Hides the keys after a query, in a tile on the diagonal, which has the same time steps for keys and queries.
static __device__ __forceinline__ void hide_later(Accumulator scores[SIDE / 8]) {
    const int row = warp_row() + lane_row() - lane_pair();
#pragma unroll
    for (int j = 0; j < SIDE / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (8 * j + e % 2 > row + e / 2 * 8) scores[j].at[e] = hidden();
}

// Hides the keys that are too far from a query. The first key is `apart` time steps after the first query.
static __device__ __forceinline__ void hide_far(Accumulator scores[SIDE / 8], int apart) {
    const int row = warp_row() + lane_row() - lane_pair() - apart;
#pragma unroll
    for (int j = 0; j < SIDE / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (!is_near(row + e / 2 * 8 - 8 * j - e % 2)) scores[j].at[e] = hidden();
}

// Hides the keys beyond the end of the sequence, in the last tile.
static __device__ __forceinline__ void hide_beyond(Accumulator scores[SIDE / 8], int from) {
#pragma unroll
    for (int j = 0; j < SIDE / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (from + 8 * j + lane_pair() + e % 2 >= KEY_STEPS) scores[j].at[e] = hidden();
}

// Hides the keys from `from` on that do not count for queries from `step` on.
static __device__ __forceinline__ void hide_others(Accumulator scores[SIDE / 8], const Parts &parts, int step, int from) {
#pragma unroll
    for (int j = 0; j < SIDE / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (!counts(step + lane_row() + e / 2 * 8, from + 8 * j + lane_pair() + e % 2, parts.seen)) scores[j].at[e] = hidden();
}

// Adds the bias, if any, to the products of 16 queries from `step` on and 8 * COUNT keys from `from` on. With KEYS_DOWN rows are keys and columns are
// queries.
template <int COUNT, bool KEYS_DOWN>
static __device__ __forceinline__ void add_bias(Accumulator scores[COUNT], const real *bias, int step, int from) {
#if MATRICES
#pragma unroll
    for (int j = 0; j < COUNT; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int down = lane_row() + e / 2 * 8, across = 8 * j + lane_pair() + e % 2;
            scores[j].at[e] = biased(scores[j].at[e], bias, step + (KEYS_DOWN ? across : down), from + (KEYS_DOWN ? down : across));
        }
#endif
}

// Moves the bases up to the scores of another tile if one exceeds them by more than the margin.
static __device__ __forceinline__ void move_base(const Accumulator scores[SIDE / 8], Softmax &rows, Accumulator sums[2 * PARTS]) {
    float highest[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        highest[half] = scores[0].at[2 * half];
#pragma unroll
        for (int j = 0; j < SIDE / 8; j++)
#pragma unroll
            for (int e = 2 * half; e < 2 * half + 2; e++) highest[half] = fmaxf(highest[half], scores[j].at[e]);
        highest[half] = quad_max(highest[half]) * SCORE_UNIT;
    }
    // The base also stays if all keys so far are hidden: the difference is then NaN or -infinity.
    if (!(highest[0] - rows.base[0] > MARGIN || highest[1] - rows.base[1] > MARGIN)) return;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float base = fmaxf(rows.base[half], highest[half]), shrink = power_of(rows.base[half] - base_of(base));
        rows.base[half] = base;
        rows.total[half] *= shrink;
#pragma unroll
        for (int n = 0; n < 2 * PARTS; n++)
#pragma unroll
            for (int e = 2 * half; e < 2 * half + 2; e++) sums[n].at[e] *= shrink;
    }
}

// Turns the scores of a tile of keys into weights, in place.
static __device__ __forceinline__ void weigh(Accumulator scores[SIDE / 8], u32 dropped, Softmax &rows) {
    const float bases[2] = {base_of(rows.base[0]), base_of(rows.base[1])};
#pragma unroll
    for (int j = 0; j < SIDE / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float weight = power_of(scores[j].at[e] * SCORE_UNIT - bases[e / 2]);
            rows.total[e / 2] += weight;
            scores[j].at[e] = weight * keeps(dropped, 4 * j + e);
        }
}

// Keys are loaded while the values of the previous tile are processed, and values while the keys are.
KERNEL(__launch_bounds__(THREADS, RESIDENT_FORWARD) attention_forward)
(const real *q_all, const real *k_all, const real *v_all, const real *bias, const u32 *seen, const u32 *state, real *y,
 float *lse, u32 row) {
    __shared__ Rows keys, values;
    const Work block = work(TILES, true);
    const int first = block.tile * SIDE, step = first + warp_row();
    const Parts parts = parts_of(block.head, q_all, k_all, v_all, bias, seen);
    Left queries[PARTS];
    load_rows<SIDE, STEPS>(keys.at, parts.q, QUERY_PITCH, first);
    copies_done();
    __syncthreads();
    load_own(keys.at, queries);
    __syncthreads();
    load_keys<SIDE>(keys.at, parts.k, KEY_PITCH, first_keys(first, parts.seen), parts.count);
    Accumulator sums[2 * PARTS];
#pragma unroll
    for (int n = 0; n < 2 * PARTS; n++) clear(sums[n]);
    Softmax rows = {{hidden(), hidden()}, {0.0f, 0.0f}};
    const int last = last_keys(first, parts.seen);
#pragma unroll 1
    for (int from = first_keys(first, parts.seen); from <= last; from += SIDE) {
        copies_done();
        __syncthreads();
        load_keys<SIDE>(values.at, parts.v, VALUE_PITCH, from, parts.count);
        const u32 dropped = draw_tile<false, SIDE / 8>(draws_of(state, row), block.head, step, from);
        Accumulator scores[SIDE / 8];
#pragma unroll
        for (int j = 0; j < SIDE / 8; j += 2) dot_rows(queries, keys.at + 8 * j * WIDTH, scores + j);
        add_bias<SIDE / 8, false>(scores, parts.bias, step, from);
        if (CAUSAL && from == first) hide_later(scores);
        if (ENDS && from == (KEY_TILES - 1) * SIDE) hide_beyond(scores, from);
        if (WINDOW && !(is_near(first + SIDE - 1 - from) && is_near(from + SIDE - 1 - first))) hide_far(scores, from - first);
        if (SEEN && !all_count<SIDE>(first, from, parts.seen)) hide_others(scores, parts, step, from);
        move_base(scores, rows, sums);
        weigh(scores, dropped, rows);
        copies_done();
        __syncthreads();
        if (from + SIDE <= last) load_keys<SIDE>(keys.at, parts.k, KEY_PITCH, from + SIDE, parts.count);
#pragma unroll
        for (int j = 0; j < SIDE / 8; j += 2) add_rows(as_left(scores + j), values.at + 8 * j * WIDTH, sums);
    }
    float factors[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float all = quad_sum(rows.total[half]);
        // The sums of a row without weights are 0.
        factors[half] = sees_none(all) ? 1.0f : 1.0f / all;
#if SAVES
        const int row = step + lane_row() + 8 * half;
        const float log = MATRICES ? rows.base[half] + log2f(all) * LN_2 : (rows.base[half] + log2f(all)) * LN_2;
        if (row < STEPS && lane_pair() == 0) lse[block.head * STEPS + row] = sees_none(all) ? -hidden() : log;
#endif
    }
    store_rows<STEPS, false>(y + place_out(block.head), OUT_PITCH, step, sums, factors);
}

#include "attention_mma_backward.cuh"

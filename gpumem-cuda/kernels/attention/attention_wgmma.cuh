// The forward pass of attention on Hopper's warpgroup instructions, for attention.cu: heads of 64 or 128 elements in 16 bits, causal or not, with
// shared keys and any number of time steps. There is no bias, window, dropout or `seen`.
//
// A block has 128 queries of a head, and three warpgroups. Two consume: each has 64 of the queries. The third produces: it copies tiles of 128 keys
// and values to shared memory, from the last tile that a query attends to down to the first, and has few registers, which the others get. Keys and
// values have two places each, with a barrier that says that a tile is there and one that says that both consumers are done with it.
//
// Tensor cores stay busy in two ways. A consumer begins the products of the next tile's scores and of this one's values together, and computes
// exponentials of the former while the latter run. And the two take turns: one begins products while the other computes exponentials.
//
// Tiles are copied by cp.async with permuted chunks, as the products want them, and not by tensor maps (TMA): those need descriptors that the
// driver makes for an address, and a launch has pointers and words alone. 128 threads copy a tile with 8 or 16 instructions each.
//
// The first tile that is processed is the only one with hidden keys: it has the diagonal of a causal mask and the end of the sequence. Every query
// sees a key of it, so that no base is -infinity later.
//
// SHARED_BYTES bytes of shared memory that the launch asks for
//
// Grid: a block for each 128 queries, head and sequence; 384 threads.
#include "attention_rows.cuh"
#include "wgmma.cuh"

static_assert(TENSOR_CORES == 16 && (HEAD == 64 || HEAD == 128) && HEAD == VALUE_HEAD, "heads that the kernel has no products for");
static_assert(!MATRICES && !WINDOW && !SEEN && THRESHOLD == 0, "attention that the kernel does not compute");

// Queries and keys of a tile; queries of a consumer; tiles of keys that shared memory has places for, and as many of values.
constexpr int SPAN = 128, SHARE = 64, STAGES = 2;
constexpr int CONSUMERS = SPAN / SHARE, WARPGROUP = 128;
constexpr int WGMMA_THREADS = (CONSUMERS + 1) * WARPGROUP;
// Registers of a thread, which come in eights. A block is launched with as many for each of its threads as the 65,536 of a multiprocessor allow. What
// consumers take, the producer has to give: for more than that they would wait for ever.
constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232, LAUNCH_REGISTERS = 65536 / WGMMA_THREADS / 8 * 8;
static_assert(PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS <= (CONSUMERS + 1) * LAUNCH_REGISTERS, "more registers than the block has");
// Elements of a panel and of a tile, which is one panel or two, and the bytes of a panel.
constexpr int PANEL = SPAN * PANEL_WIDTH, TILE = SPAN * HEAD;
constexpr int PANEL_BYTES = 2 * PANEL;
// The keys of a tile as parts of eight, and as parts of 16: terms of a product.
constexpr int KEY_EIGHTS = SPAN / 8, KEY_PARTS = SPAN / 16;
constexpr int QUERY_TILES = (STEPS + SPAN - 1) / SPAN;

// Tiles in one of the places, and the barriers of that place.
struct __align__(1024) Stage {
    u16 at[TILE];
};
struct __align__(1024) Tiles {
    Stage queries, keys[STAGES], values[STAGES];
    Barrier queries_loaded, keys_loaded[STAGES], keys_free[STAGES], values_loaded[STAGES], values_free[STAGES];
    // A consumer's turn to begin products.
    Barrier turns[CONSUMERS];
};
// The driver may place shared memory at any multiple of 16 bytes.
static_assert(SHARED_BYTES >= sizeof(Tiles) + 1024, "the launch asks for too little shared memory");

// The parity of the phase in which a place has tile number `tile`, counted from the first that is processed.
static __device__ __forceinline__ u32 parity_of(int tile) { return tile / STAGES % 2; }

static __device__ __forceinline__ void prepare_all(Tiles &tiles) {
    constexpr u32 CONSUMER_WARPS = CONSUMERS * WARPGROUP / 32;
    prepare(tiles.queries_loaded, WARPGROUP);
    for (int stage = 0; stage < STAGES; stage++) {
        prepare(tiles.keys_loaded[stage], WARPGROUP);
        prepare(tiles.values_loaded[stage], WARPGROUP);
        prepare(tiles.keys_free[stage], CONSUMER_WARPS);
        prepare(tiles.values_free[stage], CONSUMER_WARPS);
    }
    for (Barrier &turn : tiles.turns) prepare(turn, WARPGROUP / 32);
}

// Copies the rows of a head from time step `first` on to a tile, with zeros beyond the sequence of LENGTH.
template <int LENGTH>
static __device__ __forceinline__ void copy_tile(Stage &tile, const real *head, u64 pitch, int first) {
    // A thread's rows are multiples of eight apart, so that its chunks all have the same place in their rows.
    constexpr int ROWS_APART = WARPGROUP / EIGHTS;
    static_assert(ROWS_APART % 8 == 0);
    const int row = threadIdx.x % WARPGROUP / EIGHTS, chunk = threadIdx.x % EIGHTS;
    u16 *to = tile.at + chunk / 8 * PANEL + swizzled(row, chunk % 8);
    const real *from = head + (first + row) * pitch + 8 * chunk;
#pragma unroll
    for (int i = 0; i < SPAN; i += ROWS_APART) {
        const bool inside = LENGTH % SPAN == 0 || first + row + i < LENGTH;
        copy_16(to + i * PANEL_WIDTH, inside ? from + i * pitch : head, inside);
    }
}

// A producer's copies: those of one tile are under way while the next ones begin.
struct Copies {
    // The barrier of the tile that is under way; null if there is none.
    Barrier *pending = nullptr;

    // Announces the tile that is under way, once all copies but the last LATER groups have arrived.
    template <int LATER> __device__ __forceinline__ void announce() {
        if (pending == nullptr) return;
        await_copies<LATER>();
        fence_async();
        arrive(*pending);
        pending = nullptr;
    }
    // Waits for a place. What is under way is announced before: consumers may need it to free the place.
    __device__ __forceinline__ void claim(Barrier &free, u32 parity) {
        if (has_ended(free, parity)) return;
        announce<0>();
        await(free, parity);
    }
    // Ends the copies of a tile.
    __device__ __forceinline__ void end(Barrier &loaded) {
        commit_copies();
        announce<1>();
        pending = &loaded;
    }
};

// Copies the queries, and `count` tiles of keys and values in the order in which consumers need them.
static __device__ __forceinline__ void produce(Tiles &tiles, const Parts &parts, int first, int count) {
    Copies copies;
    copy_tile<STEPS>(tiles.queries, parts.q, QUERY_PITCH, first);
    copies.end(tiles.queries_loaded);
#pragma unroll 1
    for (int tile = 0; tile <= count; tile++) {
        const int keys = tile % STAGES, values = (tile + STAGES - 1) % STAGES;
        if (tile < count) {
            copies.claim(tiles.keys_free[keys], parity_of(tile) ^ 1);
            copy_tile<KEY_STEPS>(tiles.keys[keys], parts.k, KEY_PITCH, (count - 1 - tile) * SPAN);
            copies.end(tiles.keys_loaded[keys]);
        }
        if (tile > 0) {
            copies.claim(tiles.values_free[values], parity_of(tile - 1) ^ 1);
            copy_tile<KEY_STEPS>(tiles.values[values], parts.v, VALUE_PITCH, (count - tile) * SPAN);
            copies.end(tiles.values_loaded[values]);
        }
    }
    copies.announce<0>();
}

// Arrives once for each warp.
static __device__ __forceinline__ void arrive_warp(Barrier &barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(barrier);
}

// Begins the products scores = queries keys^T.
static __device__ __forceinline__ void begin_scores(u64 queries, u64 keys, Accumulator (&scores)[KEY_EIGHTS]) {
    fence_products();
#pragma unroll
    for (int d = 0; d < PARTS; d++) {
        // 16 elements are 32 bytes of a row, and four times as many a panel.
        const int at = d / 4 * PANEL_BYTES + d % 4 * 32;
        multiply_rows(further(queries, at), further(keys, at), d > 0, scores);
    }
    commit_products();
}

// Begins the products sums += weights values.
static __device__ __forceinline__ void begin_sums(const Left (&weights)[KEY_PARTS], u64 values, Accumulator (&sums)[EIGHTS]) {
    fence_products();
#pragma unroll
    for (int j = 0; j < KEY_PARTS; j++) multiply_columns(weights[j], further(values, 2 * EIGHT_ROWS * j), true, sums);
    commit_products();
}

// Hides keys from `from` on that are beyond the end, or with a causal mask after the query. The warp's first query is time step `step`.
static __device__ __forceinline__ void hide(Accumulator (&scores)[KEY_EIGHTS], int step, int from) {
#pragma unroll
    for (int j = 0; j < KEY_EIGHTS; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int key = from + 8 * j + lane_pair() + e % 2;
            if (key >= KEY_STEPS || (CAUSAL && key > step + lane_row() + e / 2 * 8)) scores[j].at[e] = hidden();
        }
}

// Moves bases up to the scores of a tile if one exceeds them by more than the margin. Computes the factor by which earlier sums shrink then, and
// returns true if it is not 1.
static __device__ __forceinline__ bool move_bases(const Accumulator (&scores)[KEY_EIGHTS], Softmax &rows, float shrink[2]) {
    float highest[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        highest[half] = scores[0].at[2 * half];
#pragma unroll
        for (int j = 0; j < KEY_EIGHTS; j++)
#pragma unroll
            for (int e = 2 * half; e < 2 * half + 2; e++) highest[half] = fmaxf(highest[half], scores[j].at[e]);
        highest[half] = quad_max(highest[half]) * SCORE_UNIT;
        shrink[half] = 1.0f;
    }
    if (!(highest[0] - rows.base[0] > MARGIN || highest[1] - rows.base[1] > MARGIN)) return false;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float base = fmaxf(rows.base[half], highest[half]);
        shrink[half] = power_of(rows.base[half] - base);
        rows.base[half] = base;
        rows.total[half] *= shrink[half];
    }
    return true;
}

// Turns scores into powers relative to the base, in place, and adds them to the totals.
static __device__ __forceinline__ void exponentiate(Accumulator (&scores)[KEY_EIGHTS], Softmax &rows) {
#pragma unroll
    for (int j = 0; j < KEY_EIGHTS; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            scores[j].at[e] = power_of(scores[j].at[e] * SCORE_UNIT - rows.base[e / 2]);
            rows.total[e / 2] += scores[j].at[e];
        }
}

static __device__ __forceinline__ void shrink_sums(Accumulator (&sums)[EIGHTS], const float shrink[2]) {
#pragma unroll
    for (int n = 0; n < EIGHTS; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) sums[n].at[e] *= shrink[e / 2];
}

static __device__ __forceinline__ void pack_weights(const Accumulator (&scores)[KEY_EIGHTS], Left (&weights)[KEY_PARTS]) {
#pragma unroll
    for (int j = 0; j < KEY_PARTS; j++) weights[j] = as_left(scores + 2 * j);
}

// Computes a consumer's rows over `count` tiles of keys. `step` is the time step of the warp's first query.
static __device__ __forceinline__ void consume(Tiles &tiles, int consumer, int step, int count, Accumulator (&sums)[EIGHTS],
                                               Softmax &rows) {
    Accumulator scores[KEY_EIGHTS];
    Left weights[KEY_PARTS];
    float shrink[2];
    const u64 queries = describe(tiles.queries.at + consumer * SHARE * PANEL_WIDTH, PANEL_BYTES);
    const u64 keys = describe(tiles.keys[0].at, PANEL_BYTES), values = describe(tiles.values[0].at, PANEL_BYTES);
    await(tiles.queries_loaded, 0);
    await(tiles.keys_loaded[0], 0);
    begin_scores(queries, keys, scores);
    await_products<0>();
    settle(scores);
    arrive_warp(tiles.keys_free[0]);
    if (CAUSAL || KEY_STEPS % SPAN != 0) hide(scores, step, (count - 1) * SPAN);
    move_bases(scores, rows, shrink);
    exponentiate(scores, rows);
    pack_weights(scores, weights);
#pragma unroll 1
    for (int tile = 1; tile < count; tile++) {
        const int now = tile % STAGES, before = (tile - 1) % STAGES;
        // The first consumer begins, so that its turn is one phase ahead.
        await(tiles.turns[consumer], (u32)(tile - 1 + (consumer == 0)) % 2);
        await(tiles.keys_loaded[now], parity_of(tile));
        begin_scores(queries, further(keys, now * (int)sizeof(Stage)), scores);
        await(tiles.values_loaded[before], parity_of(tile - 1));
        begin_sums(weights, further(values, before * (int)sizeof(Stage)), sums);
        arrive_warp(tiles.turns[CONSUMERS - 1 - consumer]);
        await_products<1>();
        settle(scores);
        arrive_warp(tiles.keys_free[now]);
        const bool moved = move_bases(scores, rows, shrink);
        exponentiate(scores, rows);
        await_products<0>();
        settle(sums);
        arrive_warp(tiles.values_free[before]);
        if (moved) shrink_sums(sums, shrink);
        pack_weights(scores, weights);
    }
    const int last = (count - 1) % STAGES;
    await(tiles.values_loaded[last], parity_of(count - 1));
    begin_sums(weights, further(values, last * (int)sizeof(Stage)), sums);
    await_products<0>();
    settle(sums);
}

// Parameters as those of `attention_forward` in attention_mma.cuh, which computes the same.
KERNEL(__launch_bounds__(WGMMA_THREADS, 1) attention_forward_wgmma)
(const real *q_all, const real *k_all, const real *v_all, const real *bias, const u32 *seen, const u32 *state, real *y, float *lse,
 u32 row) {
    SHARED_OBJECT(Tiles, tiles);
    const Work block = work(QUERY_TILES, true);
    // From lane 0, so that the compiler knows that all lanes of a warp have one number: descriptors are made once for a warp.
    const int warpgroup = __shfl_sync(FULL_WARP, (int)threadIdx.x / WARPGROUP, 0);
    const int first = block.tile * SPAN, step = first + warp_row();
    const Parts parts = parts_of(block.head, q_all, k_all, v_all, bias, seen);
    const int end = CAUSAL ? min(KEY_STEPS, first + SPAN) : KEY_STEPS, count = (end + SPAN - 1) / SPAN;
    if (threadIdx.x == 0) prepare_all(tiles);
    __syncthreads();
    if (warpgroup == CONSUMERS) {
        give_registers<PRODUCER_REGISTERS>();
        produce(tiles, parts, first, count);
        return;
    }
    take_registers<CONSUMER_REGISTERS>();
    Accumulator sums[EIGHTS];
#pragma unroll
    for (int n = 0; n < EIGHTS; n++) clear(sums[n]);
    Softmax rows = {{hidden(), hidden()}, {0.0f, 0.0f}};
    consume(tiles, warpgroup, step, count, sums, rows);
    float factors[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float all = quad_sum(rows.total[half]);
        factors[half] = 1.0f / all;
#if SAVES
        const int row = step + lane_row() + 8 * half;
        if (row < STEPS && lane_pair() == 0) lse[block.head * STEPS + row] = (rows.base[half] + log2f(all)) * LN_2;
#endif
    }
    store_rows<STEPS, false>(y + place_out(block.head), OUT_PITCH, step, sums, factors);
}

// The backward pass of attention on tensor cores, included after attention_mma.cuh, which has the code that both passes share.
//
// No include guard: the tests include it once for each kernel they compile.

// Computes the log-sum-exp of rows g and g + 8 in the unit of scores, and their delta = dy . y, which is also stored in memory.
static __device__ __forceinline__ void own_statistics(const Left gradients[PARTS], const real *y, const float *lse,
                                                      int step, float logs[2], float deltas[2], float *delta_rows) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = step + lane_row() + 8 * half;
        float delta = 0.0f;
        // Beyond the end every weight is 2^-infinity.
        logs[half] = __int_as_float(0x7f800000);
        if (row < STEPS) {
            logs[half] = lse[row] * LOG_UNIT;
            const u32 *words = (const u32 *)(y + row * OUT_PITCH + lane_pair());
#pragma unroll
            for (int d = 0; d < PARTS; d++)
                delta += dot_pair(gradients[d].at[half], words[8 * d]) + dot_pair(gradients[d].at[2 + half], words[8 * d + 4]);
        }
        deltas[half] = quad_sum(delta);
        if (row < STEPS && lane_pair() == 0) delta_rows[row] = deltas[half];
    }
}

// Returns the weight of a score, given its row's log-sum-exp in the unit of scores.
static __device__ __forceinline__ float weight_of(float score, float log) { return power_of(score * SCORE_UNIT - log); }

// Computes s, as defined in attention.cu, from scores p and products s of dy and v, for 16 queries and 16 keys.
//
// With HIDES some keys are hidden: with a causal mask those after the query; those too far from it; those from number `end` on; and those that do
// not count. The first key is time step `from`, and the first query time step `from + own`.
template <bool HIDES>
static __device__ __forceinline__ void slopes(const Accumulator p[2], Accumulator s[2], u32 dropped, const float logs[2],
                                              const float deltas[2], const Parts &parts, int own, int end, int from) {
#pragma unroll
    for (int j = 0; j < 2; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int key = 8 * j + lane_pair() + e % 2;
            const int query = own + lane_row() + e / 2 * 8;
            const bool near = (!CAUSAL || key <= query) && is_near(query - key) && (!ENDS || key < end);
            const bool seen = !HIDES || (near && counts(from + query, from + key, parts.seen));
            const float weight = seen ? weight_of(p[j].at[e], logs[e / 2]) : 0.0f;
            s[j].at[e] = weight * (keeps(dropped, 4 * j + e) * s[j].at[e] - deltas[e / 2]);
        }
}

KERNEL(__launch_bounds__(THREADS, RESIDENT_BACKWARD) attention_backward_queries)
(const real *dy, const real *q_all, const real *k_all, const real *v_all, const real *bias, const u32 *seen, const real *y,
 const float *lse, const u32 *state, float *delta, real *dq_all, u32 row) {
    __shared__ Pairs tiles;
    const Work block = work(TILES, true);
    const int first = block.tile * SIDE, step = first + warp_row();
    const Parts parts = parts_of(block.head, q_all, k_all, v_all, bias, seen);
    Left queries[PARTS], gradients[PARTS];
    load_rows<SIDE, STEPS>(tiles.at, parts.q, QUERY_PITCH, first);
    load_rows<SIDE, STEPS>(tiles.at + SIDE * WIDTH, dy + place_out(block.head), OUT_PITCH, first);
    copies_done();
    __syncthreads();
    load_own(tiles.at, queries);
    load_own(tiles.at + SIDE * WIDTH, gradients);
    float logs[2], deltas[2];
    const u64 rows = block.head * STEPS;
    own_statistics(gradients, y + place_out(block.head), lse + rows, step, logs, deltas, delta + rows);
    if (dq_all == nullptr) return;
    __syncthreads();
    Accumulator dq[2 * PARTS];
#pragma unroll
    for (int n = 0; n < 2 * PARTS; n++) clear(dq[n]);
    const int begin = first_keys(first, parts.seen), reach = CAUSAL ? 0 : REACH;
    int end = CAUSAL || WINDOW ? min(first + SIDE + reach, KEY_STEPS) : KEY_STEPS;
    if (SEEN) end = min(end, last_keys(first, parts.seen) + SIDE);
    load_keys<STREAM>(tiles.at, parts.k, KEY_PITCH, begin, parts.count);
    load_keys<STREAM>(tiles.at + STREAM * WIDTH, parts.v, VALUE_PITCH, begin, parts.count);
    u16 *now = tiles.at, *next = tiles.at + 2 * STREAM * WIDTH;
#pragma unroll 1
    for (int from = begin; from < end; from += STREAM) {
        copies_done();
        __syncthreads();
        if (from + STREAM < end) {
            load_keys<STREAM>(next, parts.k, KEY_PITCH, from + STREAM, parts.count);
            load_keys<STREAM>(next + STREAM * WIDTH, parts.v, VALUE_PITCH, from + STREAM, parts.count);
        }
        // Stop at the last key that the warp's last query attends to.
        int beyond = !CAUSAL ? KEY_STEPS : ENDS ? min(step + 16, KEY_STEPS) : step + 16;
        if (SEEN == 1) beyond = min(beyond, parts.count);
#pragma unroll 1
        for (int part = 0; part < STREAM && from + part < beyond; part += 16) {
            const u16 *keys = now + part * WIDTH, *values = keys + STREAM * WIDTH;
            Accumulator p[2], s[2];
            dot_rows(queries, keys, p);
            dot_rows(gradients, values, s);
            add_bias<2, false>(p, parts.bias, step, from + part);
            const u32 dropped = draw_tile<false, 2>(draws_of(state, row), block.head, step, from + part);
            const int apart = step - from - part;
            const bool are_near = is_near(apart + 15) && is_near(apart - 15);
            const bool all = are_near && (!SEEN || all_count<16>(step, from + part, parts.seen));
            if ((CAUSAL && apart == 0) || (ENDS && from + part + 16 > KEY_STEPS) || !all) {
                const int own = ENDS || WINDOW || SEEN ? apart : 0;
                slopes<true>(p, s, dropped, logs, deltas, parts, own, KEY_STEPS - from - part, from + part);
            } else {
                slopes<false>(p, s, dropped, logs, deltas, parts, 0, 0, 0);
            }
            add_rows(as_left(s), keys, dq);
        }
        u16 *const done = now;
        now = next;
        next = done;
    }
    const float factors[2] = {(float)(SCALE), (float)(SCALE)};
    store_rows<STEPS, ADD>(dq_all + place_queries(block.head), QUERY_PITCH, step, dq, factors);
}

// Statistics of the queries of a streamed tile: the log-sum-exp in the unit of scores in [0], delta in [1].
struct __align__(16) Statistics {
    float at[STREAM][2];
};

// Moves one of these numbers from memory to shared memory. Each of the first 2 * STREAM threads moves one.
struct Statistic {
    float held;

    __device__ __forceinline__ void fetch(const float *lse, const float *delta, int first) {
        const int step = first + threadIdx.x % STREAM;
        // Beyond the end every weight is 2^-infinity.
        held = threadIdx.x < STREAM ? __int_as_float(0x7f800000) : 0.0f;
        if (step < STEPS && threadIdx.x < 2 * STREAM) held = (threadIdx.x < STREAM ? lse : delta)[step];
    }
    __device__ __forceinline__ void put(Statistics &to) const {
        if (threadIdx.x >= 2 * STREAM) return;
        to.at[threadIdx.x % STREAM][threadIdx.x / STREAM] = threadIdx.x < STREAM ? held * LOG_UNIT : held;
    }
};

// Computes slopes with keys as rows and queries as columns: s if SLOPES, and f p in place of p. The first query is `apart` time steps after the
// first key, which is time step `own`.
template <bool HIDES, bool SLOPES>
static __device__ __forceinline__ void slopes_across(Accumulator p[2], Accumulator s[2], u32 dropped, const Statistics &columns,
                                                     int part, int apart, const Parts &inputs, int own) {
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const int column = 8 * j + lane_pair();
        // Log and delta of columns t and t + 1.
        const float4 two = *(const float4 *)columns.at[part + column];
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int after = apart + column + e % 2 - lane_row() - e / 2 * 8;
            const int key = own + lane_row() + e / 2 * 8;
            const bool seen = !HIDES || ((!CAUSAL || after >= 0) && is_near(after) && counts(key + after, key, inputs.seen));
            const float weight = seen ? weight_of(p[j].at[e], e % 2 ? two.z : two.x) : 0.0f;
            const float keep = keeps(dropped, 4 * j + e);
            if (SLOPES) s[j].at[e] = weight * (keep * s[j].at[e] - (e % 2 ? two.w : two.y));
            p[j].at[e] = weight * keep;
        }
    }
}

// Computes the gradients of the block's keys (KEYS), of its values (VALUES) or of both.
template <bool KEYS, bool VALUES>
static __device__ __forceinline__ void backward_keys(Pairs &tiles, Statistics statistics[2], const Work &block,
                                                     const real *dy, const Parts &inputs, const float *lse, const float *delta,
                                                     const Draws &draws, real *dk_all, real *dv_all) {
    const int first = block.tile * SIDE, own = first + warp_row();
    const u64 owner = first_of_group(block.head);
    Left keys[PARTS], values[KEYS ? PARTS : 1];
    load_keys<SIDE>(tiles.at, inputs.k + place_keys(owner), KEY_PITCH, first, inputs.count);
    if (KEYS) load_keys<SIDE>(tiles.at + SIDE * WIDTH, inputs.v + place_values(owner), VALUE_PITCH, first, inputs.count);
    copies_done();
    __syncthreads();
    load_own(tiles.at, keys);
    if constexpr (KEYS) load_own(tiles.at + SIDE * WIDTH, values);
    __syncthreads();
    Accumulator dk[KEYS ? 2 * PARTS : 1], dv[VALUES ? 2 * PARTS : 1];
#pragma unroll
    for (int n = 0; n < (KEYS ? 2 * PARTS : 1); n++) clear(dk[n]);
#pragma unroll
    for (int n = 0; n < (VALUES ? 2 * PARTS : 1); n++) clear(dv[n]);
#pragma unroll 1
    for (u64 head = owner; head < owner + GROUP; head++) {
        const real *q = inputs.q + place_queries(head), *slopes = dy + place_out(head);
        const real *bias = bias_of(head, inputs.bias);
        const float *logs = lse + head * STEPS, *deltas = delta + head * STEPS;
        // The tiles of the previous head may still be read.
        if (GROUP > 1) __syncthreads();
        const int begin = first_queries(first, inputs.seen), end = end_queries(first, inputs.seen);
        // Skip keys that do not count, or that come after all queries that could attend to them.
        if ((SEEN || KEY_STEPS > STEPS) && begin >= end) continue;
        load_rows<STREAM, STEPS>(tiles.at, q, QUERY_PITCH, begin);
        load_rows<STREAM, STEPS>(tiles.at + STREAM * WIDTH, slopes, OUT_PITCH, begin);
        Statistic statistic;
        statistic.fetch(logs, deltas, begin);
        statistic.put(statistics[0]);
        int buffer = 0;
#pragma unroll 1
        for (int from = begin; from < end; from += STREAM) {
            copies_done();
            __syncthreads();
            const u16 *now = tiles.at + buffer * (2 * STREAM * WIDTH);
            const Statistics &columns = statistics[buffer];
            buffer ^= 1;
            if (from + STREAM < end) {
                u16 *next = tiles.at + buffer * (2 * STREAM * WIDTH);
                load_rows<STREAM, STEPS>(next, q, QUERY_PITCH, from + STREAM);
                load_rows<STREAM, STEPS>(next + STREAM * WIDTH, slopes, OUT_PITCH, from + STREAM);
                statistic.fetch(logs, deltas, from + STREAM);
            }
            // Start at the first query that attends to one of the warp's keys.
#pragma unroll 1
            for (int part = CAUSAL ? max(own - from, 0) : 0; part < STREAM && from + part < STEPS; part += 16) {
                const u16 *queries = now + part * WIDTH, *gradients = queries + STREAM * WIDTH;
                Accumulator p[2], s[2];
                dot_rows(keys, queries, p);
                if constexpr (KEYS) dot_rows(values, gradients, s);
                add_bias<2, true>(p, bias, from + part, own);
                const u32 dropped = draw_tile<true, 2>(draws, head, own, from + part);
                const int apart = from + part - own;
                const bool are_near = is_near(apart + 15) && is_near(apart - 15);
                const bool all = are_near && (!SEEN || all_count<16>(from + part, own, inputs.seen));
                if ((CAUSAL && apart == 0) || !all) {
                    slopes_across<true, KEYS>(p, s, dropped, columns, part, WINDOW || SEEN ? apart : 0, inputs, own);
                } else {
                    slopes_across<false, KEYS>(p, s, dropped, columns, part, 0, inputs, own);
                }
                if constexpr (VALUES) add_rows(as_left(p), gradients, dv);
                if constexpr (KEYS) add_rows(as_left(s), queries, dk);
            }
            if (from + STREAM < end) statistic.put(statistics[buffer]);
        }
    }
    const float scales[2] = {(float)(SCALE), (float)(SCALE)}, ones[2] = {1.0f, 1.0f};
    if constexpr (KEYS) {
        if (!APART || dk_all != nullptr) store_rows<KEY_STEPS, ADD_KEYS>(dk_all + place_keys(owner), KEY_PITCH, own, dk, scales);
    }
    if constexpr (VALUES) {
        if (!APART || dv_all != nullptr) store_rows<KEY_STEPS, ADD_VALUES>(dv_all + place_values(owner), VALUE_PITCH, own, dv, ones);
    }
}

KERNEL(__launch_bounds__(THREADS, RESIDENT_BACKWARD) attention_backward_keys)
(const real *dy, const real *q_all, const real *k_all, const real *v_all, const real *bias, const u32 *seen, const float *lse,
 const float *delta, const u32 *state, real *dk_all, real *dv_all, u32 row) {
    __shared__ Pairs tiles;
    __shared__ Statistics statistics[2];
    const Work block = work(KEY_TILES, false);
    const u32 *numbers = seen_of(first_of_group(block.head), seen);
    const Parts inputs = {q_all, k_all, v_all, bias, numbers, count_of(numbers)};
    if constexpr (HEAD <= 96) {
        backward_keys<true, true>(tiles, statistics, block, dy, inputs, lse, delta, draws_of(state, row), dk_all, dv_all);
    } else {
        // The registers do not suffice for both gradients, so the weights are computed twice.
        backward_keys<false, true>(tiles, statistics, block, dy, inputs, lse, delta, draws_of(state, row), dk_all, dv_all);
        __syncthreads();
        backward_keys<true, false>(tiles, statistics, block, dy, inputs, lse, delta, draws_of(state, row), dk_all, dv_all);
    }
}

// Attention without tensor cores, for attention.cu.
//
// A block has 256 threads in a grid of 16 x 16. Every product multiplies tiles of 64 x 64 in shared memory, and gives each thread 4 x 4 numbers:
// see product_nt, product_nn and product_tn. Heads wider than 64 are processed in chunks of 64 elements. Those wider than 128 are divided among
// several blocks (slices), each of which computes the weights for itself.
//
// No include guard: the tests include it once for each kernel they compile. The pitch counts float4. It is odd, so that 8 threads can read 8 rows
// at once.
constexpr int PITCH = SIDE / 4 + 1;

typedef float4 Tile[SIDE][PITCH];

// Four elements in one access, if heads begin at multiples of four.
#if HEAD % 4 == 0 && VALUE_HEAD % 4 == 0
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

// The rows of a head: start, pitch, number and length.
template <class T>
struct Rows {
    T *at;
    u64 pitch;
    int steps, width;
};

static __device__ __forceinline__ Rows<const real> queries_of(const Parts &parts) { return {parts.q, QUERY_PITCH, STEPS, HEAD}; }
static __device__ __forceinline__ Rows<const real> keys_of(const Parts &parts) { return {parts.k, KEY_PITCH, parts.count, HEAD}; }
static __device__ __forceinline__ Rows<const real> values_of(const Parts &parts) { return {parts.v, VALUE_PITCH, parts.count, VALUE_HEAD}; }
static __device__ __forceinline__ Rows<const real> outputs_of(const real *y, u64 head) {
    return {y + place_out(head), OUT_PITCH, STEPS, VALUE_HEAD};
}

// Returns elements `column` to `column + 3` of a time step of a head; zeros beyond the head and beyond the sequence.
static __device__ __forceinline__ float4 load_four(const Rows<const real> &head, int step, int column) {
    if (step >= head.steps || column >= head.width) return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    const real *from = head.at + step * head.pitch + column;
    if (WHOLE_FOURS) {
        const Four four = *(const Four *)from;
        return make_float4(widen(four.at[0]), widen(four.at[1]), widen(four.at[2]), widen(four.at[3]));
    }
    float4 four = make_float4(widen(from[0]), 0.0f, 0.0f, 0.0f);
    if (column + 1 < head.width) four.y = widen(from[1]);
    if (column + 2 < head.width) four.z = widen(from[2]);
    if (column + 3 < head.width) four.w = widen(from[3]);
    return four;
}

// Stores four elements; with ADDS adds them to those in memory.
template <bool ADDS>
static __device__ __forceinline__ void store_four(const Rows<real> &head, int step, int column, const float values[4]) {
    if (step >= head.steps || column >= head.width) return;
    real *to = head.at + step * head.pitch + column;
    Four four;
    if (ADDS && WHOLE_FOURS) four = *(const Four *)to;
#pragma unroll
    for (int e = 0; e < 4; e++) {
        if (!WHOLE_FOURS && column + e >= head.width) continue;
        float value = values[e];
        if (ADDS) value += widen(WHOLE_FOURS ? four.at[e] : to[e]);
        narrow(value, WHOLE_FOURS ? &four.at[e] : &to[e]);
    }
    if (WHOLE_FOURS) *(Four *)to = four;
}

// Returns the place of row r in a tile that product_nt reads as `b`. A thread's four rows are 16 places apart there, so that 16 threads read
// without bank conflicts. In the sequence they are consecutive, so that one random draw serves all four.
static __device__ __forceinline__ int spread(int row) { return row % 4 * 16 + row / 4; }

// Loads a tile from 64 time steps and one chunk of a head. All threads take part; barriers are the caller's.
static __device__ __forceinline__ void load_tile(Tile &tile, const Rows<const real> &head, int first, int chunk,
                                                 bool spreads) {
    const int row = threadIdx.x / 16, column = threadIdx.x % 16;
#pragma unroll
    for (int k = 0; k < SIDE; k += 16) {
        const int place = spreads ? spread(row + k) : row + k;
        tile[place][column] = load_four(head, first + row + k, chunk * SIDE + column * 4);
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
    // If it were unrolled, as the compiler does for heads of 16 elements, it would need twice the registers.
#pragma unroll 1
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

// sum[i][j] += left[ty + 16 i] . right[4 tx + j] for 64 time steps each of two matrices. Leaves the last chunks in `a` and `b`.
static __device__ __forceinline__ void scores(Tile &a, Tile &b, const Rows<const real> &left, int left_first,
                                              const Rows<const real> &right, int right_first, float sum[4][4]) {
    // Loops over chunks must not be unrolled: that would need more registers than there are.
#pragma unroll 1
    for (int chunk = 0; chunk * SIDE < left.width; chunk++) {
        __syncthreads();
        load_tile(a, left, left_first, chunk, false);
        load_tile(b, right, right_first, chunk, true);
        __syncthreads();
        product_nt(a, b, min(left.width - chunk * SIDE, SIDE), sum);
    }
}

// Computes the scores of queries and keys, with the bias.
static __device__ __forceinline__ void biased_scores(Tile &a, Tile &b, const Parts &parts, int queries, int keys, float sum[4][4]) {
    const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) sum[i][j] = 0.0f;
    scores(a, b, queries_of(parts), queries, keys_of(parts), keys, sum);
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) sum[i][j] = biased(sum[i][j], parts.bias, queries + ty + 16 * i, keys + tx * 4 + j);
}

// Returns which of a thread's 4 x 4 weights are dropped: bit 4 i + j for query ty + 16 i and key 4 tx + j. The loop is not unrolled, and its result
// is one word, so that a draw costs few registers.
static __device__ __forceinline__ u32 draw(const Draws &draws, u64 head, int queries, int keys) {
    u32 dropped = 0;
#if THRESHOLD > 0
    const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
#pragma unroll 1
    for (int i = 0; i < 4; i++) {
        // Weight [i, j] of a head has number (head * T + i) * M + j.
        const u64 first = (head * STEPS + (queries + ty + 16 * i)) * KEY_STEPS + keys + tx * 4;
        u32 words[8];
        drop_words(draws, first / 4, words);
#if KEY_STEPS % 4 != 0
        // The four weights span two draws.
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

// Returns f of one of the weights for which `draw` drew.
static __device__ __forceinline__ float factor(u32 dropped, int i, int j) {
    return dropped >> (4 * i + j) & 1 ? 0.0f : (float)(KEEP);
}

// Reductions over the 16 threads that share rows.
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

// Stores a thread's 4 x 4 weights as rows ty + 16 i, columns 4 tx + j of a tile.
static __device__ __forceinline__ void put(Tile &tile, const float values[4][4]) {
    const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
#pragma unroll
    for (int i = 0; i < 4; i++)
        tile[ty + 16 * i][tx] = make_float4(values[i][0], values[i][1], values[i][2], values[i][3]);
}

// Goes through tiles of keys with the largest score so far of each row. When that grows, the sums are scaled down (online softmax).
KERNEL(__launch_bounds__(256, 1) attention_forward)(const real *q_all, const real *k_all, const real *v_all, const real *bias,
                                                        const u32 *seen, const u32 *state, real *y, float *lse, u32 row) {
    __shared__ Tile a, b;
    const Work block = work(TILES, true);
    const int ty = threadIdx.x / 16, tx = threadIdx.x % 16, first = block.tile * SIDE;
    const Parts parts = parts_of(block.head, q_all, k_all, v_all, bias, seen);
    float sum[OWN_CHUNKS][4][4] = {};
    // For row ty + 16 i: the largest score, and this thread's share of the sum of exp(score - largest).
    float largest[4], total[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        largest[i] = hidden();
        total[i] = 0.0f;
    }
    for (int keys = first_keys(first, parts.seen); keys <= last_keys(first, parts.seen); keys += SIDE) {
        const u32 dropped = draw(draws_of(state, row), block.head, first, keys);
        float p[4][4];
        biased_scores(a, b, parts, first, keys, p);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int step = first + ty + 16 * i, key = keys + tx * 4;
            float highest = largest[i];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                p[i][j] = sees(step, key + j, parts.seen) ? p[i][j] * SCORE_SCALE : hidden();
                highest = fmaxf(highest, p[i][j]);
            }
            highest = row_max(highest);
            const float base = base_of(highest), shrink = expf(largest[i] - base);
            largest[i] = highest;
            total[i] *= shrink;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                p[i][j] = expf(p[i][j] - base);
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
            load_tile(b, values_of(parts), keys, block.first_chunk + c, true);
            __syncthreads();
            product_nn(a, b, sum[c]);
        }
    }
    const Rows<real> out = {y + place_out(block.head), OUT_PITCH, STEPS, VALUE_HEAD};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int step = first + ty + 16 * i;
        float all = row_sum(total[i]), log = largest[i] + logf(all);
        // The sums of such a row are 0.
        if (sees_none(all)) all = 1.0f, log = -hidden();
#if SAVES
        if (step < STEPS && tx == 0 && block.first_chunk == 0) lse[block.head * STEPS + step] = log;
#endif
#pragma unroll
        for (int c = 0; c < OWN_CHUNKS; c++) {
#pragma unroll
            for (int j = 0; j < 4; j++) sum[c][i][j] /= all;
            store_four<false>(out, step, (block.first_chunk + c) * SIDE + tx * 4, sum[c][i]);
        }
    }
}

// Loads the log-sum-exp of rows ty + 16 i of a tile of queries. Beyond the end it is infinite, so that every weight is exp(-infinity).
static __device__ __forceinline__ void logs_of(const float *lse, int first, float logs[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int step = first + threadIdx.x / 16 + 16 * i;
        logs[i] = step < STEPS ? lse[step] : __int_as_float(0x7f800000);
    }
}

// Computes delta = dy . y of those rows.
static __device__ __forceinline__ void dot_gradients(const Rows<const real> &dy, const Rows<const real> &y, int first, float deltas[4]) {
    const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int step = first + ty + 16 * i;
        float delta = 0.0f;
#pragma unroll 1
        for (int column = tx * 4; column < VALUE_HEAD; column += SIDE) {
            const float4 l = load_four(dy, step, column), r = load_four(y, step, column);
            delta += (l.x * r.x + l.y * r.y) + (l.z * r.z + l.w * r.w);
        }
        deltas[i] = row_sum(delta);
    }
}

// Loads the deltas of those rows that dot_gradients stored.
static __device__ __forceinline__ void deltas_of(const float *delta, int first, float deltas[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int step = first + threadIdx.x / 16 + 16 * i;
        deltas[i] = step < STEPS ? delta[step] : 0.0f;
    }
}

// Computes f * p into `p` and s into `s`, from scores and dy . v of queries ty + 16 i and keys 4 tx + j.
static __device__ __forceinline__ void slopes(u32 dropped, const Parts &parts, int queries, int keys, const float logs[4],
                                              const float deltas[4], float p[4][4], float s[4][4]) {
    const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int step = queries + ty + 16 * i, key = keys + tx * 4;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float weight = sees(step, key + j, parts.seen) ? expf(p[i][j] * SCORE_SCALE - logs[i]) : 0.0f;
            s[i][j] = weight * (factor(dropped, i, j) * s[i][j] - deltas[i]);
            p[i][j] = weight * factor(dropped, i, j);
        }
    }
}

KERNEL(__launch_bounds__(256, 1) attention_backward_queries)(const real *dy, const real *q_all, const real *k_all, const real *v_all,
                                                          const real *bias, const u32 *seen, const real *y, const float *lse, const u32 *state,
                                                          float *delta, real *dq_all, u32 row) {
    __shared__ Tile a, b;
    const Work block = work(TILES, true);
    const int ty = threadIdx.x / 16, tx = threadIdx.x % 16, first = block.tile * SIDE;
    const Parts parts = parts_of(block.head, q_all, k_all, v_all, bias, seen);
    const Rows<const real> slope = outputs_of(dy, block.head);
    float logs[4], deltas[4];
    logs_of(lse + block.head * STEPS, first, logs);
    dot_gradients(slope, outputs_of(y, block.head), first, deltas);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int step = first + ty + 16 * i;
        if (step < STEPS && tx == 0 && block.first_chunk == 0) delta[block.head * STEPS + step] = deltas[i];
    }
    if (dq_all == nullptr) return;
    float dq[OWN_CHUNKS][4][4] = {};
    for (int keys = first_keys(first, parts.seen); keys <= last_keys(first, parts.seen); keys += SIDE) {
        const u32 dropped = draw(draws_of(state, row), block.head, first, keys);
        float p[4][4], s[4][4] = {};
        scores(a, b, slope, first, values_of(parts), keys, s);
        biased_scores(a, b, parts, first, keys, p);
        slopes(dropped, parts, first, keys, logs, deltas, p, s);
#pragma unroll
        for (int c = 0; c < OWN_CHUNKS; c++) {
            __syncthreads();
            if (c == 0) put(a, s);
            // If the keys have a single chunk, it is still loaded.
            if (CHUNKS > 1) load_tile(b, keys_of(parts), keys, block.first_chunk + c, true);
            __syncthreads();
            product_nn(a, b, dq[c]);
        }
    }
    const Rows<real> out = {dq_all + place_queries(block.head), QUERY_PITCH, STEPS, HEAD};
#pragma unroll
    for (int c = 0; c < OWN_CHUNKS; c++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++) dq[c][i][j] *= (float)(SCALE);
            store_four<ADD>(out, first + ty + 16 * i, (block.first_chunk + c) * SIDE + tx * 4, dq[c][i]);
        }
}

KERNEL(__launch_bounds__(256, 1) attention_backward_keys)(const real *dy, const real *q_all, const real *k_all, const real *v_all,
                                                       const real *bias, const u32 *seen, const float *lse, const float *delta, const u32 *state,
                                                       real *dk_all, real *dv_all, u32 row) {
    __shared__ Tile a, b;
    const Work block = work(KEY_TILES, false);
    const int ty = threadIdx.x / 16, tx = threadIdx.x % 16, first = block.tile * SIDE;
    const u64 owner = first_of_group(block.head);
    float dk[OWN_CHUNKS][4][4] = {}, dv[OWN_CHUNKS][4][4] = {};
#pragma unroll 1
    for (u64 head = owner; head < owner + GROUP; head++) {
        const Parts parts = parts_of(head, q_all, k_all, v_all, bias, seen);
        const Rows<const real> slope = outputs_of(dy, head);
#pragma unroll 1
        for (int queries = first_queries(first, parts.seen); queries < end_queries(first, parts.seen); queries += SIDE) {
            const u32 dropped = draw(draws_of(state, row), head, queries, first);
            float p[4][4], s[4][4] = {};
            biased_scores(a, b, parts, queries, first, p);
            scores(a, b, slope, queries, values_of(parts), first, s);
            float logs[4], deltas[4];
            logs_of(lse + head * STEPS, queries, logs);
            deltas_of(delta + head * STEPS, queries, deltas);
            slopes(dropped, parts, queries, first, logs, deltas, p, s);
#pragma unroll
            for (int c = 0; c < OWN_CHUNKS; c++) {
                __syncthreads();
                if (c == 0) put(b, p);
                // If dy has a single chunk, it is still loaded.
                if (VALUE_CHUNKS > 1) load_tile(a, slope, queries, block.first_chunk + c, false);
                __syncthreads();
                product_tn(b, a, dv[c]);
            }
#pragma unroll
            for (int c = 0; c < OWN_CHUNKS; c++) {
                __syncthreads();
                if (c == 0) put(b, s);
                load_tile(a, queries_of(parts), queries, block.first_chunk + c, false);
                __syncthreads();
                product_tn(b, a, dk[c]);
            }
        }
    }
    const Rows<real> keys = {dk_all + place_keys(owner), KEY_PITCH, KEY_STEPS, HEAD};
    const Rows<real> values = {dv_all + place_values(owner), VALUE_PITCH, KEY_STEPS, VALUE_HEAD};
#pragma unroll
    for (int c = 0; c < OWN_CHUNKS; c++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int step = first + ty * 4 + i, column = (block.first_chunk + c) * SIDE + tx * 4;
#pragma unroll
            for (int j = 0; j < 4; j++) dk[c][i][j] *= (float)(SCALE);
            if (!APART || dk_all != nullptr) store_four<ADD_KEYS>(keys, step, column, dk[c][i]);
            if (!APART || dv_all != nullptr) store_four<ADD_VALUES>(values, step, column, dv[c][i]);
        }
}

#if MATRICES && defined(SAMPLES)
// Sums the columns of `values` into row 0 of a tile. All threads take part, and have read the tile's previous contents.
static __device__ __forceinline__ void sum_rows(Tile &tile, float values[4][4]) {
    const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
    __syncthreads();
    put(tile, values);
    __syncthreads();
    if (ty > 0) return;
    float4 sum = tile[0][tx];
#pragma unroll 1
    for (int r = 1; r < SIDE; r++) {
        const float4 next = tile[r][tx];
        sum = make_float4(sum.x + next.x, sum.y + next.y, sum.z + next.z, sum.w + next.w);
    }
    values[0][0] = sum.x;
    values[0][1] = sum.y;
    values[0][2] = sum.z;
    values[0][3] = sum.w;
}

// Tiles of queries with separate tiles of a bias matrix.
constexpr int BIAS_TILES = BIAS_ROWS == 1 ? 1 : TILES;

// Computes a tile of a bias matrix's gradient: the sum of s over all heads of the batch that share the matrix, and over all queries if it is a row.
KERNEL(__launch_bounds__(256, 1) attention_backward_bias)(const real *dy, const real *q_all, const real *k_all, const real *v_all,
                                                       const real *bias, const u32 *seen, const float *lse, const float *delta, const u32 *state,
                                                       real *dbias, u32 row) {
    __shared__ Tile a, b;
    const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
    const int keys = (int)(blockIdx.x % KEY_TILES) * SIDE, own = (int)(blockIdx.x / KEY_TILES % BIAS_TILES) * SIDE;
    const u64 matrix = blockIdx.x / (1ull * KEY_TILES * BIAS_TILES), all = 1ull * SEQUENCES * HEADS;
    float sum[4][4] = {};
    const u64 begin = PER_SAMPLE ? matrix / MATRICES : 0, end = begin + (PER_SAMPLE ? 1 : SAMPLES);
    for (u64 sample = begin; sample < end; sample++) {
        for (u64 first = matrix % MATRICES * SHARING; first < all; first += 1ull * MATRICES * SHARING) {
#pragma unroll 1
            for (u64 head = sample * all + first; head < sample * all + first + SHARING; head++) {
                const Parts parts = parts_of(head, q_all, k_all, v_all, bias, seen);
#pragma unroll 1
                for (int queries = own; queries < STEPS; queries += BIAS_TILES * SIDE) {
                    const u32 dropped = draw(draws_of(state, row), head, queries, keys);
                    float p[4][4], s[4][4] = {}, logs[4], deltas[4];
                    scores(a, b, outputs_of(dy, head), queries, values_of(parts), keys, s);
                    biased_scores(a, b, parts, queries, keys, p);
                    logs_of(lse + head * STEPS, queries, logs);
                    deltas_of(delta + head * STEPS, queries, deltas);
                    slopes(dropped, parts, queries, keys, logs, deltas, p, s);
#pragma unroll
                    for (int i = 0; i < 4; i++)
#pragma unroll
                        for (int j = 0; j < 4; j++) sum[i][j] += s[i][j];
                }
            }
        }
    }
    if (BIAS_ROWS == 1) sum_rows(a, sum);
    dbias += matrix * BIAS_ROWS * KEY_STEPS;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int step = own + ty + 16 * i, key = keys + tx * 4 + j;
            if (step >= BIAS_ROWS || key >= KEY_STEPS) continue;
            real *to = dbias + (u64)step * KEY_STEPS + key;
            narrow(ADD_BIAS ? sum[i][j] + widen(*to) : sum[i][j], to);
        }
}
#endif

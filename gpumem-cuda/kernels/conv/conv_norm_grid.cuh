// Sums over all pixels, and the matrices computed from them, in one launch with a grid barrier.
//
// FORWARD      1 for the forward pass, 0 for the gradients
// TENSOR_CORES, TILE_M, TILE_N  see tile.cuh: M are channels of the map that is multiplied with x, and N those of x. C and O are multiples of 8
// PARTS, PORTION  parts of the pixels, none of them empty, and pixels of each; the last may have fewer
// PACK         8
// RECTIFIER, MASKED  with 1, dy passes through the rectifier with output y, and is written to `masked`: see batch_norm.cu
// AGAIN        given if x is recomputed from the input of the normalisation before, and written to `again`: the function after that
// AGAIN_AFFINE 1 if that normalisation has scale and shift
//
// x [N, C], dy, y, masked [N, O]; partial [PARTS, M (C + 1)] in f32: products of a part, then sums of the multiplied map; state [words];
// all others as in normalized_convolution.cu.
//
// Blocks take tiles of parts in turns, and after the grid barrier rows of the matrices.
//
// No include guard: the tests include it once for each kernel they compile.
#include "tile.cuh"
#include "pack.cuh"
#include "grid_barrier.cuh"

// Channels that are multiplied with those of x; tiles of their products; and floats of a part.
constexpr u32 HEIGHT = FORWARD ? INS : OUTS;
constexpr u32 TILES_M = (HEIGHT + TILE_M - 1) / TILE_M, TILES_N = (INS + TILE_N - 1) / TILE_N, ITEMS = TILES_M * TILES_N * PARTS;
constexpr u64 PART = (u64)HEIGHT * INS + HEIGHT;

typedef Matrix<false> Channels;
typedef Vectors<TILE_N, false, Channels> Columns;

// Returns the channels of pixels up to `last`.
static __device__ __forceinline__ Channels channels(const real *map, u32 count, u32 last) { return {map, count, count, last}; }

// Shared memory for tiles of products, or for rows of sums.
union Shared {
    Tiles tiles;
    Rows rows;
};

// Returns the gradients of eight channels after the rectifier.
static __device__ __forceinline__ uint4 through(const uint4 &gradients, const uint4 &outputs) {
    const Pack dy = {{gradients.x, gradients.y, gradients.z, gradients.w}}, y = {{outputs.x, outputs.y, outputs.z, outputs.w}};
    Pack to;
#pragma unroll
    for (int k = 0; k < PACK; k++) put(element(dy, k) * rectifier_slope(element(y, k)), to, k);
    return {to.words[0], to.words[1], to.words[2], to.words[3]};
}

// Loads dy through the rectifier. One of the blocks that have the same dy writes the result, perhaps in its place. Others that then read the result
// pass it through the rectifier once more, which changes nothing.
struct Through {
    typedef Vectors<TILE_M, false, Channels> Plain;
    static constexpr bool K_FIRST = true;
    Plain gradients, outputs;
    real *masked;
    u32 channel, last, pixel;

    __device__ __forceinline__ Through(const real *dy, const real *y, real *to, u32 first, u32 end)
        : gradients(channels(dy, OUTS, end), first), outputs(channels(y, OUTS, end), first), masked(to), channel(first + Plain::e(0)),
          last(end), pixel(0) {}
    __device__ __forceinline__ void fetch(u32 first) {
        gradients.fetch(first);
        outputs.fetch(first);
        pixel = first;
    }
    __device__ __forceinline__ void put(u16 *tile) {
        if (!Plain::busy()) return;
#pragma unroll
        for (int i = 0; i < Plain::COUNT; i++) {
            gradients.held[i] = through(gradients.held[i], outputs.held[i]);
            const u32 own = pixel + Plain::k(i);
            if (masked != nullptr && own < last && channel < OUTS) *(uint4 *)(masked + own * (u64)(OUTS) + channel) = gradients.held[i];
        }
        gradients.put(tile);
    }
};

#ifdef AGAIN

// The tensors from which x is recomputed: input, saved statistics, scale and shift of the normalisation before.
struct Before {
    const real *input;
    const float *saved;
    const Norm *factor, *summand;
    real *x;
};

// The normalisation of the channels of a tile.
struct Rules {
    float means[TILE_N], scales[TILE_N], shifts[TILE_N];

    __device__ __forceinline__ void load(const Before &it, u32 first) {
        const u32 own = threadIdx.x, c = first + own;
        // It has its own barriers, so that it does not depend on those of products.
        __syncthreads();
        if (own < TILE_N && c < INS) {
            const float rstd = it.saved[INS + c];
            means[own] = it.saved[c];
#if AGAIN_AFFINE
            scales[own] = rstd * widen(it.factor[c]), shifts[own] = widen(it.summand[c]);
#else
            scales[own] = rstd, shifts[own] = 0.0f;
#endif
        }
        __syncthreads();
    }
    // Applies it to two channels from `at` on, in a word.
    __device__ __forceinline__ u32 apply(u32 word, u32 at) const {
        real halves[2];
        u32 made = 0;
#pragma unroll
        for (u32 k = 0; k < 2; k++) {
            halves[k].bits = (u16)(word >> 16 * k);
            const Rule how = {means[at + k], scales[at + k], shifts[at + k]};
            narrow(AGAIN::value(normalise(widen(halves[k]), how), Arguments()), &halves[k]);
            made |= (u32)halves[k].bits << 16 * k;
        }
        return made;
    }
};

// Loads x, which is recomputed on the way. One of the blocks that have the same part of it writes it.
struct Again {
    static constexpr bool K_FIRST = true;
    Columns inputs;
    const Rules &rules;
    real *to;
    u32 channel, last, pixel;

    __device__ __forceinline__ Again(const Before &it, const Rules &how, bool writes, u32 first, u32 end)
        : inputs(channels(it.input, INS, end), first), rules(how), to(writes ? it.x : nullptr), channel(first + Columns::e(0)),
          last(end), pixel(0) {}
    __device__ __forceinline__ void fetch(u32 first) {
        inputs.fetch(first);
        pixel = first;
    }
    __device__ __forceinline__ void put(u16 *tile) {
        if (!Columns::busy()) return;
        const u32 at = Columns::e(0);
#pragma unroll
        for (int i = 0; i < Columns::COUNT; i++) {
            const u32 own = pixel + Columns::k(i);
            // Missing elements stay 0.
            if (own >= last || channel >= INS) continue;
            const uint4 from = inputs.held[i];
            inputs.held[i] = {rules.apply(from.x, at), rules.apply(from.y, at + 2), rules.apply(from.z, at + 4),
                              rules.apply(from.w, at + 6)};
            if (to != nullptr) *(uint4 *)(to + own * (u64)(INS) + channel) = inputs.held[i];
        }
        inputs.put(tile);
    }
};

#endif

// Sums of rows of A, as products with ones. Each of the four warps that have the same rows sums 16 of them.
struct RowSums {
    Accumulator at;

    static __device__ __forceinline__ int fragment() { return threadIdx.x / 32 % 4; }
    static __device__ __forceinline__ int row() { return warp_row() + 16 * fragment(); }
    __device__ __forceinline__ void add(const u16 *a) {
        if (fragment() >= FRAGMENTS_M) return;
        constexpr u32 ONES = SAME<real, Bf16> ? 0x3f803f80u : 0x3c003c00u;
        const Right ones = {{ONES, ONES}};
#pragma unroll
        for (int k = 0; k < TILE_K; k += 16) {
            Left left;
            load_left<true>(spot<true, TILE_M>(a, row(), k), TILE_M + 8, left);
            multiply_add(left, ones, at);
        }
    }
};

// Stores the products of a tile from (m, n) on in a part, and the sums of its rows.
static __device__ __forceinline__ void store_part(const Sums &sums, const RowSums &of_rows, u32 m, u32 n, float *part) {
    const u32 line = threadIdx.x % 32 / 4, column = n + warp_column() + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < FRAGMENTS_M; i++)
#pragma unroll
        for (int j = 0; j < FRAGMENTS_N; j++) {
            const u32 row = m + warp_row() + 16 * i + line, at = column + 8 * j;
            if (at >= INS) continue;
            const Accumulator &sum = sums.at[i][j];
            if (row < HEIGHT) *(float2 *)(part + row * (u64)(INS) + at) = make_float2(sum.at[0], sum.at[1]);
            if (row + 8 < HEIGHT) *(float2 *)(part + (row + 8) * (u64)(INS) + at) = make_float2(sum.at[2], sum.at[3]);
        }
    const u32 row = m + RowSums::row() + line;
    if (n > 0 || RowSums::fragment() >= FRAGMENTS_M || threadIdx.x % 4 > 0) return;
    if (row < HEIGHT) part[HEIGHT * (u64)(INS) + row] = of_rows.at.at[0];
    if (row + 8 < HEIGHT) part[HEIGHT * (u64)(INS) + row + 8] = of_rows.at.at[2];
}

// Computes products of the rows and columns that are loaded, and sums of the rows, over the pixels of each part.
template <class OfRows, class OfColumns>
static __device__ __forceinline__ void sum_parts(const OfRows &carry_rows, const OfColumns &carry_columns, float *partial, Tiles &tiles) {
    for (u32 item = blockIdx.x; item < ITEMS; item += gridDim.x) {
        const u32 part = item / (TILES_M * TILES_N), tile = item % (TILES_M * TILES_N);
        const u32 m = tile / TILES_N * TILE_M, n = tile % TILES_N * TILE_N;
        const u32 first = part * PORTION, last = part + 1 < PARTS ? first + PORTION : (u32)COUNT;
        auto rows = carry_rows(m, n, last);
        auto columns = carry_columns(m, n, last);
        Sums sums;
        clear(sums);
        RowSums of_rows = {};
        multiply_each(rows, columns, first, last, tiles, sums, [&](const u16 *a) {
            if (n == 0) of_rows.add(a);
        });
        store_part(sums, of_rows, m, n, partial + part * PART);
    }
}

// Adds up all parts of some fours from number `first` on, always in the same order. Calls `what` with the index of each among them and its total.
template <class What> static __device__ __forceinline__ void join_parts(const float *partial, u32 first, u32 count, Rows &rows, What what) {
    constexpr u32 WARPS = THREADS / 32;
    static_assert(sizeof(rows.joined) >= THREADS * sizeof(float4), "each thread has a place");
    float4 *scratch = (float4 *)rows.joined;
    const u32 lane = threadIdx.x % 32, slice = threadIdx.x / 32;
    const auto add = [](float4 &total, const float4 &more) {
        total = make_float4(total.x + more.x, total.y + more.y, total.z + more.z, total.w + more.w);
    };
    for (u32 at = lane; at < (count + 31) / 32 * 32; at += 32) {
        float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (at < count) {
#pragma unroll 4
            for (u32 part = slice; part < PARTS; part += WARPS) add(total, *(const float4 *)(partial + part * PART + (first + at) * 4ull));
        }
        scratch[threadIdx.x] = total;
        __syncthreads();
        if (slice == 0 && at < count) {
#pragma unroll
            for (u32 other = 1; other < WARPS; other++) add(total, scratch[other * 32 + lane]);
            what(at, total);
        }
        __syncthreads();
    }
}

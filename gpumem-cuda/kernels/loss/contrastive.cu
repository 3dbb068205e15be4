// Contrastive losses over all vectors of a batch, and their gradients: each vector of one of two sides is compared with those of all samples.
// Products exist one tile at a time, in shared memory.
//
// SAMPLES  vectors x[SAMPLES, LENGTH] and y[SAMPLES, LENGTH]: two sides
// LENGTH   elements of a vector
// LOSS     the loss as a function of products: one of the structs below
// TILE_M, TILE_N  rows and columns of a tile of products, and of a gradient: both 32 or both 64
// TENSOR_CORES    terms that a tensor-core instruction sums, or 0: see mma.cuh
// CHUNKS   tiles of a row of the gradient that a block computes
// SCALE, BIAS            factor of products, and the number added to them, unless they are learned
// SCALE_REAL, BIAS_REAL  given if they are learned: their formats; the scale is the exponential of the learned number
// FIRST_SIDE             the first side with wanted gradients
// GRADIENT_X, GRADIENT_Y, ADD_X, ADD_Y  1 if a gradient is wanted, and 1 if it is added to its tensor (+=), 0 if it overwrites it
// ADD_SCALE, ADD_BIAS    given if the gradient of a learned number is wanted: 1 if it is added (+=), 0 if it overwrites
// DIVISOR, WEIGHT        divisor of the sum of terms; factor of loss and gradients
//
// s[i, j] = scale * r[i] c[j] + bias, with rows r of one side and columns c that they are compared with.
// Contrastive: c is the other side. l[i] = log(sum over j of exp(s[i, j])); a row's term is (l[i] - s[i, i]) / 2, and
//              g[i, j] = (exp(s[i, j] - l[i]) + exp(s[i, j] - l[j])) / 2 - [i = j]
// NtXent:      c is both sides without the row itself; otherwise as Contrastive; the right column is the row's sample on the other side
// Siglip:      c is the other side. A row's term is the sum over j of log(1 + exp(-z s[i, j])) / 2, z = 1 if i = j, else -1;
//              g[i, j] = -z / (1 + exp(z s[i, j]))
// dr[i] = scale * sum over j of g[i, j] c[j]; dscale, that of its logarithm, is the sum of g (s - bias) / 2, and dbias that of g / 2.
//
// `terms` has 2 * SAMPLES terms, and after them as many sums of rows for each learned number; `logarithms` has 2 * SAMPLES. Every sum
// is in the same order in every run.
#include "base.cuh"
#include "real.cuh"
#include "tile.cuh"
#include "loss.cuh"

static_assert(TILE_M == TILE_N, "rows and columns of a tile are of one kind");

// Threads of a row of a tile, and its pitch in elements, which keeps the rows of a warp in different banks.
constexpr u32 LANES = TILE_THREADS / TILE_M, ROW_PITCH = TILE_N + LANES;
// Tiles of the rows of a side.
constexpr u32 ROW_TILES = (SAMPLES + TILE_M - 1) / TILE_M;
constexpr bool IN_VECTORS = LENGTH % VECTOR == 0;

struct Numbers {
    float scale, bias;
};

#ifdef SCALE_REAL
typedef SCALE_REAL scale_real;
#else
typedef float scale_real;
#endif
#ifdef BIAS_REAL
typedef BIAS_REAL bias_real;
#else
typedef float bias_real;
#endif

static __device__ __forceinline__ Numbers numbers_of(const scale_real *scale, const bias_real *bias) {
    Numbers numbers = {(float)(SCALE), (float)(BIAS)};
#ifdef SCALE_REAL
    numbers.scale = expf(widen(scale[0]));
#endif
#ifdef BIAS_REAL
    numbers.bias = widen(bias[0]);
#endif
    return numbers;
}

// Returns log(1 + exp(x)).
static __device__ __forceinline__ float softplus(float x) { return log1pf(expf(-fabsf(x))) + (x > 0.0f ? x : x == x ? 0.0f : x); }

// Results of the part of a row that a thread has processed.
struct OfSoftmax {
    float largest, sum, picked;

    __device__ __forceinline__ OfSoftmax() : largest(-__int_as_float(0x7f800000)), sum(0.0f), picked(0.0f) {}

    __device__ __forceinline__ void take(float s, bool is_right, float) {
        if (s > largest) {
            sum *= expf(largest - s);
            largest = s;
        }
        // A number equal to the largest counts 1, even if that is infinite.
        sum += s == largest ? 1.0f : expf(s - largest);
        if (is_right) picked = s;
    }
    __device__ __forceinline__ void merge(u32 offset) {
        const float other = __shfl_xor_sync(FULL_WARP, largest, offset), more = __shfl_xor_sync(FULL_WARP, sum, offset);
        const float most = fmaxf(largest, other);
        sum = (largest == most ? sum : sum * expf(largest - most)) + (other == most ? more : more * expf(other - most));
        largest = most;
        picked += __shfl_xor_sync(FULL_WARP, picked, offset);
    }
    __device__ __forceinline__ float logarithm() const { return logf(sum) + largest; }
    __device__ __forceinline__ float term() const { return 0.5f * (logarithm() - picked); }
};

struct OfSigmoids {
    float sum;

    __device__ __forceinline__ OfSigmoids() : sum(0.0f) {}

    __device__ __forceinline__ void take(float s, bool is_right, float bias) { sum += softplus(is_right ? -s - bias : s + bias); }
    __device__ __forceinline__ void merge(u32 offset) { sum += __shfl_xor_sync(FULL_WARP, sum, offset); }
    __device__ __forceinline__ float logarithm() const { return 0.0f; }
    __device__ __forceinline__ float term() const { return 0.5f * sum; }
};

struct Contrastive {
    typedef OfSoftmax Row;
    // WITHIN: vectors of one side are also compared with each other. LOGARITHMS: gradients read logarithms.
    static constexpr bool WITHIN = false, LOGARITHMS = true;

    static __device__ __forceinline__ float slope(float s, bool is_right, float own, float other, float) {
        return 0.5f * (expf(s - own) + expf(s - other)) - (is_right ? 1.0f : 0.0f);
    }
};

struct NtXent : Contrastive {
    static constexpr bool WITHIN = true;
};

struct Siglip {
    typedef OfSigmoids Row;
    static constexpr bool WITHIN = false, LOGARITHMS = false;

    static __device__ __forceinline__ float slope(float s, bool is_right, float, float, float bias) {
        return is_right ? -1.0f / (1.0f + expf(s + bias)) : 1.0f / (1.0f + expf(-s - bias));
    }
};

// A tile in shared memory, as the result of a product.
struct InShared {
    float *tile;
    u32 height, width;

    struct Column {
        float *at;
    };
    __device__ __forceinline__ u32 rows() const { return height; }
    __device__ __forceinline__ u32 columns() const { return width; }
    __device__ __forceinline__ Column column(u32 n) const { return {tile + n}; }
    static __device__ __forceinline__ float *at(const Column &column, u32 m) { return column.at + m * ROW_PITCH; }
    static __device__ __forceinline__ float bias(u32, u32) { return 0.0f; }
    static __device__ __forceinline__ float through(float sum) { return sum; }
};

// A tile in shared memory, as a factor of a product.
struct Slopes {
    const float *tile;

    struct Place {
        const float *row;
    };
    struct Depth {
        u32 k;
    };
    __device__ __forceinline__ Place place(u32 e) const { return {tile + e * ROW_PITCH}; }
    static __device__ __forceinline__ Depth depth(u32 k) { return {k}; }
    static __device__ __forceinline__ real at(const Place &place, const Depth &depth) {
        real element;
        narrow(place.row[depth.k], &element);
        return element;
    }
};

// Returns the number of rows of a tile from `first` on that exist.
static __device__ __forceinline__ u32 rest(u32 first, u32 all) { return all - first < TILE_M ? all - first : TILE_M; }

// Computes the products of the rows of a tile with its columns.
static __device__ __forceinline__ void products(const real *rows, u32 row, const real *columns, u32 column, Tiles &tiles, float *tile) {
    typedef Matrix<true> Side;
    constexpr u32 SIDE = (u32)SAMPLES, DEPTH_OF = (u32)LENGTH;
    typename Carrier<IN_VECTORS, TILE_M, true, Side>::Type left({rows, DEPTH_OF, SIDE, DEPTH_OF}, row);
    typename Carrier<IN_VECTORS, TILE_N, true, Side>::Type right({columns, DEPTH_OF, SIDE, DEPTH_OF}, column);
    Sums sums;
    clear(sums);
    multiply(left, right, 0, DEPTH_OF, tiles, sums);
    store<false>(InShared{tile, rest(row, SIDE), rest(column, SIDE)}, 0, 0, tiles, sums);
    __syncthreads();
}

// Computes the terms of all rows, and the logarithms that gradients read. Grid: a block for each tile of rows of either side.
KERNEL(__launch_bounds__(TILE_THREADS, TILE_RESIDENT) contrastive_terms)
(const real *__restrict__ x, const real *__restrict__ y, const scale_real *scale, const bias_real *bias, float *terms, float *logarithms) {
    __shared__ Tiles tiles;
    __shared__ float tile[TILE_M * ROW_PITCH];
    const u32 side = blockIdx.x / ROW_TILES, first = blockIdx.x % ROW_TILES * TILE_M;
    const u32 row = threadIdx.x / LANES, lane = threadIdx.x % LANES, own = first + row;
    const Numbers numbers = numbers_of(scale, bias);
    LOSS::Row seen;
    for (u32 other = 0; other < 2; other++) {
        if (other == side && !LOSS::WITHIN) continue;
        for (u32 column = 0; column < SAMPLES; column += TILE_N) {
            products(side ? y : x, first, other ? y : x, column, tiles, tile);
            for (u32 j = lane; j < TILE_N && own < SAMPLES && column + j < SAMPLES; j += LANES) {
                const bool is_own = column + j == own;
                if (is_own && other == side) continue;
                seen.take(numbers.scale * tile[row * ROW_PITCH + j], is_own, numbers.bias);
            }
        }
    }
#pragma unroll
    for (u32 offset = 1; offset < LANES; offset *= 2) seen.merge(offset);
    if (lane != 0 || own >= SAMPLES) return;
    terms[side * SAMPLES + own] = seen.term();
    if (LOSS::LOGARITHMS) logarithms[side * SAMPLES + own] = seen.logarithm();
}

// Computes the gradients of the rows of a tile, and these rows' share of the gradients of the learned numbers. A block takes CHUNKS tiles of a row at
// a time.
KERNEL(__launch_bounds__(TILE_THREADS, TILE_RESIDENT) contrastive_gradients)
(const real *__restrict__ x, const real *__restrict__ y, const scale_real *scale, const bias_real *bias, const float *logarithms,
 const u32 *state, real *dx, real *dy, float *terms) {
    __shared__ Tiles tiles;
    __shared__ float tile[TILE_M * ROW_PITCH];
    const u32 side = FIRST_SIDE + blockIdx.x / ROW_TILES, first = blockIdx.x % ROW_TILES * TILE_M;
    const u32 chunk = blockIdx.y * (CHUNKS * TILE_N);
    const u32 row = threadIdx.x / LANES, lane = threadIdx.x % LANES, own = first + row;
    const Numbers numbers = numbers_of(scale, bias);
    const bool is_wanted = side == 0 ? GRADIENT_X : GRADIENT_Y;
    const float own_logarithm = LOSS::LOGARITHMS && own < SAMPLES ? logarithms[side * SAMPLES + own] : 0.0f;
    float of_scale = 0.0f, of_bias = 0.0f;
    Sums totals[CHUNKS];
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) clear(totals[i]);
    for (u32 other = 0; other < 2; other++) {
        if (other == side && !LOSS::WITHIN) continue;
        const real *columns = other ? y : x;
        for (u32 column = 0; column < SAMPLES; column += TILE_N) {
            products(side ? y : x, first, columns, column, tiles, tile);
            for (u32 j = lane; j < TILE_N; j += LANES) {
                const u32 sample = column + j;
                float *at = &tile[row * ROW_PITCH + j], slope = 0.0f;
                if (own < SAMPLES && sample < SAMPLES && !(sample == own && other == side)) {
                    const float logarithm = LOSS::LOGARITHMS ? logarithms[other * SAMPLES + sample] : 0.0f;
                    const float s = numbers.scale * *at;
                    slope = LOSS::slope(s, sample == own, own_logarithm, logarithm, numbers.bias);
                    of_scale += slope * s;
                    of_bias += slope;
                }
                *at = slope;
            }
            __syncthreads();
            if (!is_wanted) continue;
#pragma unroll
            for (int i = 0; i < CHUNKS; i++) {
                const u32 from = chunk + i * TILE_N;
                if (from >= LENGTH) break;
                Single<TILE_M, true, Slopes> left({tile}, 0);
                typename Carrier<IN_VECTORS, TILE_N, false, Matrix<false>>::Type right(
                    {columns + (u64)column * LENGTH, LENGTH, (u32)LENGTH, rest(column, (u32)SAMPLES)}, from);
                multiply(left, right, 0, TILE_N, tiles, totals[i]);
            }
        }
    }
    if (is_wanted) {
        const float share = numbers.scale * (factor(state) / (float)(DIVISOR));
        real *gradient = side ? dy : dx;
#pragma unroll
        for (int i = 0; i < CHUNKS; i++) {
            const u32 from = chunk + i * TILE_N;
            if (from >= LENGTH) break;
            const u32 height = rest(first, (u32)SAMPLES), width = rest(from, (u32)LENGTH);
            __syncthreads();
            store<false>(InShared{tile, height, width}, 0, 0, tiles, totals[i]);
            __syncthreads();
            for (u32 e = threadIdx.x; e < TILE_M * TILE_N; e += TILE_THREADS) {
                const u32 m = e / TILE_N, n = e % TILE_N;
                if (m >= height || n >= width) continue;
                real *to = &gradient[(u64)(first + m) * LENGTH + from + n];
                const float slope = tile[m * ROW_PITCH + n] * share;
                if (side) {
                    give<ADD_Y>(slope, to);
                } else {
                    give<ADD_X>(slope, to);
                }
            }
        }
    }
#if defined(SCALE_REAL) || defined(BIAS_REAL)
    if (blockIdx.y != 0) return;
    float *sums = terms + 2 * (u64)SAMPLES + side * SAMPLES + own;
#ifdef SCALE_REAL
#pragma unroll
    for (u32 offset = 1; offset < LANES; offset *= 2) of_scale += __shfl_xor_sync(FULL_WARP, of_scale, offset);
    if (lane == 0 && own < SAMPLES) *sums = of_scale;
    sums += 2 * (u64)SAMPLES;
#endif
#ifdef BIAS_REAL
#pragma unroll
    for (u32 offset = 1; offset < LANES; offset *= 2) of_bias += __shfl_xor_sync(FULL_WARP, of_bias, offset);
    if (lane == 0 && own < SAMPLES) *sums = of_bias;
#endif
#endif
}

#if defined(ADD_SCALE) || defined(ADD_BIAS)
// Returns the sum of the rows of both sides, in one block.
static __device__ __forceinline__ float sum_of_rows(const float *rows, float *scratch) {
    float sum = 0.0f;
    for (u32 i = threadIdx.x; i < 2 * SAMPLES; i += blockDim.x) sum += rows[i];
    return block_sum(sum, scratch);
}

// Computes the gradients of learned numbers, in one block.
KERNEL(contrastive_numbers)(const float *terms, const u32 *state, scale_real *dscale, bias_real *dbias) {
    __shared__ float scratch[32];
    const float *sums = terms + 2 * (u64)SAMPLES;
    const float share = 0.5f * factor(state) / (float)(DIVISOR);
#ifdef SCALE_REAL
#ifdef ADD_SCALE
    const float of_scale = sum_of_rows(sums, scratch);
    if (threadIdx.x == 0) give<ADD_SCALE>(share * of_scale, dscale);
#endif
    sums += 2 * (u64)SAMPLES;
#endif
#ifdef ADD_BIAS
    const float of_bias = sum_of_rows(sums, scratch);
    if (threadIdx.x == 0) give<ADD_BIAS>(share * of_bias, dbias);
#endif
}
#endif

// Updates with factored second moments, the means of rows and columns: Adafactor. Each launch works on one parameter or on many, and continues from
// the results that earlier launches have stored in their scratch memory:
//
// factored_rows      the means of rows
// factored_columns   the means of columns; with more rows than a strip has, the sum of each strip
// factored_means     the means of columns if there are several strips, and the mean of each matrix's means of rows
// factored_squares   sums of squares of weights and of changes, in pieces
// factored_totals    the totals, and the factor of changes
// factored_update    updates the weights
//
// All sums are made in an order that depends on shapes alone.
//
// MIXED        see optimizer.cu
// MOMENT_REAL  number format of the means: a type, as REAL is
// VALUES       the hyperparameters of the rule, in the order of gpumem_core::train::optim
// GROUPS       see optimizer.cu
// SCHEDULED, CLIP_NORM, CLIP_VALUE, WIDE  see descent.cuh
// STRIP        rows that are summed at once for the means of columns
// FIELDS, MOST see multi_tensor.cuh. A launch has for each parameter the words of `Field`; its number for all is 1 if it ends the step
//
// A parameter is [outer, height, width, inner]: matrices of height times width. `inner` of them are interleaved, as in a weight with channels
// last. The means of rows are [outer, inner, height], those of columns [outer, inner, width]. If there are as many means as elements, they have the
// order of the elements. A vector has its length as height, and no columns.
#include "base.cuh"
#include "real.cuh"
#include "advance.cuh"
#include "descent.cuh"
#include "multi_tensor.cuh"

typedef MOMENT_REAL Moment;

constexpr u32 NONE = 0xffffffffu, THREADS = 256;

constexpr double values[8] = VALUES;

// The words of a parameter. Tensors are given by their distances from the pointers of their names, in units of 256 bytes; NONE for missing columns.
// SCRATCH counts numbers. LANES are logarithms of the numbers of threads for a row, for a column in a strip, and for a matrix's mean.
enum Field { FIRST, WEIGHTS, GRADIENTS, ROWS_AT, COLUMNS_AT, SCRATCH, OUTER, HEIGHT, WIDTH, INNER, LANES, MASTERS };

#if MIXED
constexpr u32 OF_GROUPS = MASTERS + 1;
#else
constexpr u32 OF_GROUPS = MASTERS;
#endif

// The arguments of a launch.
template <u32 LIMIT> struct Given {
    char *weights, *masters;
    const char *gradients;
    char *rows, *columns;
    float *scratch;
    u32 *state;
    const Tensors<LIMIT> &tensors;
};

// A parameter, and the index of this block among those that work on it.
struct Parameter {
    u32 height, width, inner, lanes;
    u64 outer, block, elements;
    bool is_vector;
    Moment *rows, *columns;
    // The parts of the scratch memory.
    float *strips, *means, *squares, *factor;
    float lr, weight_decay;

    __device__ __forceinline__ u32 strip_count() const { return (height + STRIP - 1) / STRIP; }
    __device__ __forceinline__ u64 column_count() const { return outer * width * inner; }
    __device__ __forceinline__ u32 lanes_of(u32 what) const { return 1u << (lanes >> 8 * what & 0xff); }

    __device__ __forceinline__ Moment &row(u64 o, u32 h, u32 k) const {
        return rows[width == 1 ? (o * height + h) * inner + k : (o * inner + k) * height + h];
    }
    __device__ __forceinline__ Moment &column(u64 o, u32 w, u32 k) const {
        return columns[height == 1 ? (o * width + w) * inner + k : (o * inner + k) * width + w];
    }
};

template <u32 LIMIT> static __device__ __forceinline__ Parameter parameter(const Given<LIMIT> &given, u32 p) {
    const auto &words = given.tensors.words;
    Parameter it;
    it.height = words[HEIGHT][p], it.width = words[WIDTH][p], it.inner = words[INNER][p], it.lanes = words[LANES][p];
    it.outer = words[OUTER][p];
    it.block = blockIdx.x - words[FIRST][p];
    it.elements = it.outer * it.height * it.width * it.inner;
    it.is_vector = words[COLUMNS_AT][p] == NONE;
    it.rows = (Moment *)(given.rows + words[ROWS_AT][p] * 256ull);
    it.columns = it.is_vector ? nullptr : (Moment *)(given.columns + words[COLUMNS_AT][p] * 256ull);
    it.strips = given.scratch + words[SCRATCH][p];
    it.means = it.strips + (!it.is_vector && it.strip_count() > 1 ? it.strip_count() * it.column_count() : 0);
    it.squares = it.means + (it.is_vector ? 0 : it.outer * it.inner);
    it.factor = it.squares + 2 * ((it.elements + BLOCK - 1) / BLOCK);
    it.lr = rate_of(given.state);
    it.weight_decay = (float)values[4];
#ifdef GROUPS
    it.lr *= from_bits(words[OF_GROUPS][p]);
    it.weight_decay = from_bits(words[OF_GROUPS + 1][p]);
#endif
    return it;
}

// Calls `with` with the parameter's weights, its master copy or null, and its gradient.
template <u32 LIMIT, class With>
static __device__ __forceinline__ void with_elements(const Given<LIMIT> &given, u32 p, const With &with) {
    char *w = given.weights + given.tensors.words[WEIGHTS][p] * 256ull;
    const char *dw = given.gradients + given.tensors.words[GRADIENTS][p] * 256ull;
    float *master = nullptr;
#if MIXED
    const u32 at = given.tensors.words[MASTERS][p];
    if (at == NONE) {
        with((float *)w, master, (const float *)dw);
        return;
    }
    master = (float *)(given.masters + at * 256ull);
#endif
    with((real *)w, master, (const Slope *)dw);
}

// Returns the share of the gradient that enters the means, or the upper limit of the learning rate: the corrections of Adafactor.
static __device__ __forceinline__ float correction(const u32 *state, u32 which) { return from_bits(state[STATE_CORRECTIONS + which]); }

static __device__ __forceinline__ bool is_skipped(const u32 *state) { return state[STATE_OVERFLOW] != 0; }

// Moves a mean towards another value by the step's share.
static __device__ __forceinline__ void approach(Moment &mean, float towards, const u32 *state) {
    const float old = widen(mean);
    narrow(old + correction(state, 0) * (towards - old), &mean);
}

// Returns the sum over `count` threads of the block that are `apart` from each other, in the first of them.
static __device__ __forceinline__ float sum_of(float x, u32 lane, u32 count, u32 apart, float *shared) {
    __syncthreads();
    shared[threadIdx.x] = x;
    for (u32 step = count / 2; step > 0; step /= 2) {
        __syncthreads();
        if (lane < step) shared[threadIdx.x] += shared[threadIdx.x + step * apart];
    }
    return shared[threadIdx.x];
}

// Adds the squares of the gradients from `first` to `end`, every `step`-th of a row or column, for `with_elements`. Like those below it is a type
// with a call operator, because NVRTC 12 takes a generic lambda for host code.
struct Line {
    u64 from, apart;
    u32 first, end, step;
    Gradients gradient;
    float &sum;

    template <class Number, class Gradient> __device__ __forceinline__ void operator()(Number *, float *, const Gradient *dw) const {
        for (u32 i = first; i < end; i += step) {
            const float g = gradient(widen(dw[from + i * apart]));
            sum += g * g;
        }
    }
};

template <u32 LIMIT> static __device__ __forceinline__ void rows(const Given<LIMIT> &given, float *shared) {
    const u32 p = tensor_of_block(given.tensors);
    const Parameter it = parameter(given, p);
    const u32 lanes = it.lanes_of(0), lane = threadIdx.x % lanes;
    const u64 row = it.block * (THREADS / lanes) + threadIdx.x / lanes;
    const bool is_there = row < it.outer * it.height * it.inner;
    // Interleaved rows are consecutive in this count.
    const u32 k = row % it.inner, h = row / it.inner % it.height;
    const u64 o = row / it.inner / it.height;
    const Gradients gradient = gradients_of(given.state);
    float sum = 0.0f;
    const u64 from = (o * it.height + h) * it.width * it.inner + k;
    with_elements(given, p, Line{from, it.inner, lane, is_there ? it.width : 0, lanes, gradient, sum});
    sum = sum_of(sum, lane, lanes, 1, shared);
    if (is_there && lane == 0) approach(it.row(o, h, k), sum / it.width, given.state);
}

// Updates the mean of column `at` of a parameter, counted over all matrices in the order of the elements of a row.
static __device__ __forceinline__ void save_column(const Parameter &it, u64 at, float sum, const u32 *state) {
    const u64 turns = (u64)it.width * it.inner;
    const u32 beside = at % turns;
    approach(it.column(at / turns, beside / it.inner, beside % it.inner), sum / it.height, state);
}

template <u32 LIMIT> static __device__ __forceinline__ void columns(const Given<LIMIT> &given, float *shared) {
    const u32 p = tensor_of_block(given.tensors);
    const Parameter it = parameter(given, p);
    // Neighbouring threads read neighbouring columns.
    const u32 lanes = it.lanes_of(1), many = THREADS / lanes, lane = threadIdx.x / many;
    const u64 all = it.column_count(), blocks = (all + many - 1) / many, turns = (u64)it.width * it.inner;
    const u64 at = it.block % blocks * many + threadIdx.x % many;
    const u32 strip = it.block / blocks, first = strip * STRIP;
    const u32 end = it.height - first < STRIP ? it.height : first + STRIP;
    const Gradients gradient = gradients_of(given.state);
    float sum = 0.0f;
    const u64 from = at / turns * it.height * turns + at % turns;
    with_elements(given, p, Line{from, turns, first + lane, at < all ? end : 0, lanes, gradient, sum});
    sum = sum_of(sum, lane, lanes, many, shared);
    if (at >= all || lane != 0) return;
    if (it.strip_count() > 1) {
        it.strips[strip * all + at] = sum;
    } else {
        save_column(it, at, sum, given.state);
    }
}

template <u32 LIMIT> static __device__ __forceinline__ void means(const Given<LIMIT> &given, float *shared) {
    const u32 p = tensor_of_block(given.tensors);
    const Parameter it = parameter(given, p);
    const u64 all = it.column_count(), of_columns = it.strip_count() > 1 ? (all + THREADS - 1) / THREADS : 0;
    if (it.block < of_columns) {
        const u64 at = it.block * THREADS + threadIdx.x;
        if (at >= all) return;
        float sum = 0.0f;
        for (u32 strip = 0; strip < it.strip_count(); strip++) sum += it.strips[strip * all + at];
        save_column(it, at, sum, given.state);
        return;
    }
    const u32 lanes = it.lanes_of(2), lane = threadIdx.x % lanes;
    const u64 matrix = (it.block - of_columns) * (THREADS / lanes) + threadIdx.x / lanes;
    const bool is_there = matrix < it.outer * it.inner;
    float sum = 0.0f;
    for (u32 h = lane; is_there && h < it.height; h += lanes) sum += widen(it.row(matrix / it.inner, h, matrix % it.inner));
    sum = sum_of(sum, lane, lanes, 1, shared);
    if (is_there && lane == 0) it.means[matrix] = at_least((float)values[1], sum / it.height);
}

// Returns the change of element i, before any factor.
static __device__ __forceinline__ float change(const Parameter &it, u64 i, float gradient) {
    float variance;
    if (it.is_vector) {
        variance = widen(it.rows[i]);
    } else {
        const u64 line = i / it.inner, row = line / it.width, o = row / it.height;
        const u32 k = i % it.inner, w = line % it.width, h = row % it.height;
        variance = widen(it.row(o, h, k)) / it.means[o * it.inner + k] * widen(it.column(o, w, k));
    }
    return gradient / at_least((float)values[1], sqrtf(variance));
}

// Adds the squares of the weights and of their changes.
struct Sizes {
    const Part &part;
    const Parameter &it;
    Gradients gradient;
    float &weights, &changes;

    template <class Number, class Gradient>
    __device__ __forceinline__ void operator()(const Number *w, float *master, const Gradient *dw) const {
        float old[FOUR], g[FOUR];
        if (master != nullptr) {
            load(master + part.first, part.many, old);
        } else {
            load(w + part.first, part.many, old);
        }
        load(dw + part.first, part.many, g);
#pragma unroll
        for (u32 e = 0; e < FOUR; e++) {
            if (e >= part.many) break;
            const float by = change(it, part.first + e, gradient(g[e]));
            weights += old[e] * old[e];
            changes += by * by;
        }
    }
};

template <u32 LIMIT> static __device__ __forceinline__ void squares(const Given<LIMIT> &given, float *shared) {
    const Part part = part_of_thread(given.tensors);
    const Parameter it = parameter(given, part.tensor);
    const Gradients gradient = gradients_of(given.state);
    float weights = 0.0f, changes = 0.0f;
    with_elements(given, part.tensor, Sizes{part, it, gradient, weights, changes});
    weights = sum_of(weights, threadIdx.x, THREADS, 1, shared);
    changes = sum_of(changes, threadIdx.x, THREADS, 1, shared);
    if (threadIdx.x != 0) return;
    it.squares[2 * it.block] = weights;
    it.squares[2 * it.block + 1] = changes;
}

// Grid: a block for each parameter.
template <u32 LIMIT> static __device__ __forceinline__ void totals(const Given<LIMIT> &given, float *shared) {
    const Parameter it = parameter(given, tensor_of_block(given.tensors));
    float weights = 0.0f, changes = 0.0f;
    for (u64 piece = threadIdx.x; piece < (it.elements + BLOCK - 1) / BLOCK; piece += THREADS) {
        weights += it.squares[2 * piece];
        changes += it.squares[2 * piece + 1];
    }
    weights = sum_of(weights, threadIdx.x, THREADS, 1, shared);
    changes = sum_of(changes, threadIdx.x, THREADS, 1, shared);
    if (threadIdx.x != 0) return;
    const float size = at_least((float)values[2], sqrtf(weights / it.elements));
    const float rate = size * fminf(it.lr, correction(given.state, 1));
    *it.factor = rate / at_least(1.0f, sqrtf(changes / it.elements) / (float)values[3]);
}

// Changes the weights.
struct Step {
    const Part &part;
    const Parameter &it;
    Gradients gradient;
    float shrink, factor;

    template <class Number, class Gradient>
    __device__ __forceinline__ void operator()(Number *w, float *master, const Gradient *dw) const {
        float old[FOUR], g[FOUR];
        if (master != nullptr) {
            load(master + part.first, part.many, old);
        } else {
            load(w + part.first, part.many, old);
        }
        load(dw + part.first, part.many, g);
#pragma unroll
        for (u32 e = 0; e < FOUR; e++) {
            if (e >= part.many) break;
            old[e] = old[e] * shrink - factor * change(it, part.first + e, gradient(g[e]));
        }
        if (master != nullptr) save(old, part.many, master + part.first);
        save(old, part.many, w + part.first);
    }
};

template <u32 LIMIT> static __device__ __forceinline__ void update(const Given<LIMIT> &given) {
    const bool skips = is_skipped(given.state);
    const Part part = part_of_thread(given.tensors);
    const Parameter it = parameter(given, part.tensor);
    const Gradients gradient = gradients_of(given.state);
    const float shrink = 1.0f - it.lr * it.weight_decay;
    if (given.tensors.option != 0) leave_step(given.state);
    if (skips || part.many == 0) return;
    const float factor = *it.factor;
    with_elements(given, part.tensor, Step{part, it, gradient, shrink, factor});
}

// Grid: blocks of 256 threads.
#define FACTORED(name, work)                                                                                                       \
    KERNEL(name)(char *weights, char *masters, const char *gradients, char *of_rows, char *of_columns, float *scratch, u32 *state, \
                 IN_PLACE Tensors<MOST> tensors) {                                                                                 \
        __shared__ float shared[THREADS];                                                                                          \
        if (is_skipped(state)) return;                                                                                             \
        work(Given<MOST>{weights, masters, gradients, of_rows, of_columns, scratch, state, tensors}, shared);                      \
    }

FACTORED(factored_rows, rows)
FACTORED(factored_columns, columns)
FACTORED(factored_means, means)
FACTORED(factored_squares, squares)
FACTORED(factored_totals, totals)

KERNEL(factored_update)(char *weights, char *masters, const char *gradients, char *of_rows, char *of_columns, float *scratch,
                        u32 *state, IN_PLACE Tensors<MOST> tensors) {
    update(Given<MOST>{weights, masters, gradients, of_rows, of_columns, scratch, state, tensors});
}

// Losses, and the gradient that the backward pass starts with, which may overwrite the logits.
//
// ROWS     positions: samples times positions of a sample
// CLASSES  classes, or 1
// INNER    positions after the class axis; logits are [ROWS / INNER, CLASSES, INNER]
// PART, TARGETS, FIRST  given if the target has more positions than are measured: positions of a sample here, those of its target, and the first
// PITCH, GRADIENT_PITCH  elements from one row of logits, and of their gradient, to the next; CLASSES if there are no gaps
// COUNT    elements of the output
// GRADIENT 1 if the gradient is wanted
// ADD      1 if the gradient is added to its tensor (+=), which is not that of the logits; 0 if it overwrites it
// DIVISOR  divisor of the sum of terms
// WEIGHT   factor of loss and gradient
// SUM      1 if the loss is added to the losses before it (+=), 0 if it overwrites
// BETAS    given for a step of Adam: its two decay rates, from which the bias corrections of the updates are computed here, once
// CORRECTIONS, VARIABLES  given if the optimizer has others: statements that compute them for step `steps` as both[0] and both[1], and the number
//          of variables t[0], t[1], .. of these statements. They come from gpumem_core::train::optim
// SCHEDULE  given if the learning rate changes from step to step: see schedule.cuh
//
// For some losses:
//
// NUMBER   the number of a loss of elements, the label smoothing e of rows
// CLASS_WEIGHTS, WEIGHT_SUM  a weight for each class, or one for all, and the sum of the weights
// COUNTED  the sum of terms is divided by the weights of the positions that count, not by DIVISOR
// IGNORED  the target of positions that do not count
// LIKELIHOOD     rows have logarithms of probabilities, not logits
// PROBABILITIES  targets of rows are a probability for each class, not class indices
// LOG_TARGET     the targets are logarithms
// COUNTED_STEPS, STEP  only the first lengths[b] of COUNTED_STEPS time steps of each sample count, of STEP elements each: the others have neither
//                term nor gradient. A mean is divided by the number of elements that count, which is in `divisor`; for a sum that is null
// LOSS     the loss of elements: Dot, or a name of losses.cuh
// WEIGHTED terms are weighted one by one: see loss.cuh
// SUMMED   numbers whose sum is the divisor of the terms
//
// The loss scale of the state multiplies the gradient, not the loss.
//
// cross_entropy: loss = sum over rows of log(sum(exp(x))) - x[target] / DIVISOR; dx = (softmax(x) - onehot(target)) / DIVISOR
//                with a share q and a weight w of each class: sum of q w (log(sum(exp(x))) - x); softmax(x) * sum of q w - q w
//                where q is the target's share, smoothed: (1 - e) q + e / CLASSES; with LIKELIHOOD sum of -q w x, and -q w
// elements:      loss = sum of LOSS::value(x, t) / DIVISOR;                      dx = LOSS::slope(x, t) / DIVISOR
//
// Terms are written to the workspace and added up by one block, in the same order in every run. For few elements, that block does everything.
//
// ring: eight words in host memory, or null. The last term of a training step sends the loss to one of them.
#include "base.cuh"
#include "real.cuh"
#include "loss.cuh"
#ifdef SCHEDULE
#include "schedule.cuh"
#endif

static __device__ __forceinline__ void put(float gradient, real *dx) { give<ADD>(gradient, dx); }

// Returns the weight of a class.
#ifdef CLASS_WEIGHTS
static __device__ const float class_weights[] = CLASS_WEIGHTS;
constexpr double ALL_WEIGHTS = WEIGHT_SUM;
static __device__ __forceinline__ float weight_of(u64 c) { return class_weights[sizeof(class_weights) == sizeof(float) ? 0 : c]; }
#else
constexpr double ALL_WEIGHTS = (double)CLASSES;
static __device__ __forceinline__ float weight_of(u64) { return 1.0f; }
#endif

// True if a position with this target counts.
static __device__ __forceinline__ bool counts(u32 label) {
#ifdef IGNORED
    return label != IGNORED;
#else
    return true;
#endif
}

// Returns the place of a row's target among those of all samples; PLACES is their number.
#ifdef PART
static __device__ __forceinline__ u64 place(u64 row) { return row / PART * TARGETS + FIRST + row % PART; }
constexpr u64 PLACES = ROWS / PART * TARGETS;
#else
static __device__ __forceinline__ u64 place(u64 row) { return row; }
constexpr u64 PLACES = ROWS;
#endif

// Type of the targets of rows.
#ifdef PROBABILITIES
typedef float row_target;
constexpr bool HAS_SHARES = true;
#else
typedef u32 row_target;
constexpr bool HAS_SHARES = false;
#endif

#ifdef LIKELIHOOD
constexpr bool IS_LIKELIHOOD = true;
#else
constexpr bool IS_LIKELIHOOD = false;
#endif

#ifdef LOG_TARGET
constexpr bool HAS_LOGARITHMS = true;
#else
constexpr bool HAS_LOGARITHMS = false;
#endif

#ifdef NUMBER
constexpr double NUMBER_OF_LOSS = NUMBER;
#else
constexpr double NUMBER_OF_LOSS = 0.0;
#endif

// True for cross-entropy of logits and one right class, without class weights.
#if defined(CLASS_WEIGHTS) || defined(IGNORED)
constexpr bool PLAIN = false;
#else
constexpr bool PLAIN = NUMBER_OF_LOSS == 0.0 && !IS_LIKELIHOOD && !HAS_SHARES;
#endif
constexpr float SMOOTHING = (float)NUMBER_OF_LOSS, SHARE = (float)(NUMBER_OF_LOSS / (double)CLASSES);

// Elements in 16 bytes, if all rows begin at a multiple of that and are contiguous.
constexpr int WIDE = 16 / sizeof(real), PACK = INNER == 1 && PITCH % WIDE == 0 && GRADIENT_PITCH % WIDE == 0 ? WIDE : 1;
// Classes in whole packs.
constexpr u64 WHOLE = CLASSES / PACK * PACK;

struct alignas(sizeof(real) * PACK) Pack {
    real at[PACK];
};

// Returns e to the power of x. The time of a row is that of its instructions: this has few, and none that is slower for small results.
static __device__ __forceinline__ float exponential(float x) { return exp2f(x * 1.4426950408889634f); }

// The largest number that a thread has read, and the sum of exp(x - largest) over all of them: for -INFINITY alone it is 0, and NaN stays.
struct Sum {
    float largest, sum;

    // Returns the number that is subtracted from all others.
    __device__ __forceinline__ static float base(float largest) { return largest == -__int_as_float(0x7f800000) ? 0.0f : largest; }

    // Adds MANY numbers. The sum then refers to the largest so far.
    template <int MANY> __device__ __forceinline__ void add(const real *from) {
        float most = largest;
#pragma unroll
        for (int k = 0; k < MANY; k++) most = fmaxf(most, widen(from[k]));
        const float less = base(most);
        sum *= exponential(largest - less);
#pragma unroll
        for (int k = 0; k < MANY; k++) sum += exponential(widen(from[k]) - less);
        largest = most;
    }
};

// The threads that work on a row: a block, or a warp of one.
struct OfBlock {
    u32 thread, threads;
    float *scratch;

    __device__ __forceinline__ float max(float x) const { return block_max(x, scratch); }
    __device__ __forceinline__ float sum(float x) const { return block_sum(x, scratch); }
    __device__ __forceinline__ void wait() const { __syncthreads(); }
};

struct OfWarp {
    u32 thread, threads;

    __device__ __forceinline__ float max(float x) const { return warp_max(x); }
    __device__ __forceinline__ float sum(float x) const { return warp_sum(x); }
    __device__ __forceinline__ void wait() const { __syncwarp(); }
};

// Returns the term of a row, in each thread, and computes its gradient. All threads read rows of thousands of classes together, twice.
template <class All>
static __device__ __forceinline__ float row_term(const All &all, u64 row, const real *x, const row_target *target, const u32 *state,
                                                 float divisor, real *dx, float of_term = 1.0f) {
    const u64 thread = all.thread, threads = all.threads;
    const real *logits = x + row / INNER * (u64)(INNER == 1 ? PITCH : CLASSES * INNER) + row % INNER;
#ifdef PROBABILITIES
    // Targets have no gaps.
    const float *shares = target + place(row) / INNER * (u64)(CLASSES * INNER) + row % INNER;
    constexpr bool is_counted = true;
    // Returns the share of class c in the target.
    const auto hit = [&](u64 c) { return shares[c * INNER]; };
#else
    const u64 label = target[place(row)];
    const bool is_counted = counts((u32)label);
    // Classes are counted in 32 bits, as labels are.
    const auto hit = [&](u64 c) { return (u32)c == (u32)label ? 1.0f : 0.0f; };
#endif
    const auto share = [&](u64 c) { return ((1.0f - SMOOTHING) * hit(c) + SHARE) * weight_of(c); };
    // Sums of all shares, and of all shares times logits, without those of the one right class.
    float mass = 0.0f, spread = 0.0f;
    const auto look = [&](u64 c, real x) {
        const float each = HAS_SHARES ? share(c) : SHARE * weight_of(c);
        mass += each;
        spread += each == 0.0f ? 0.0f : each * widen(x);
    };
    Sum own = {-__int_as_float(0x7f800000), 0.0f};
    for (u64 c = thread * PACK; c < WHOLE && !IS_LIKELIHOOD; c += threads * PACK) {
        const Pack pack = *(const Pack *)(logits + c * INNER);
        own.add<PACK>(pack.at);
        if (HAS_SHARES || SMOOTHING != 0.0f) {
#pragma unroll
            for (int k = 0; k < PACK; k++) look(c + k, pack.at[k]);
        }
    }
    if (PACK > 1 && WHOLE + thread < CLASSES && !IS_LIKELIHOOD) {
        const u64 c = WHOLE + thread;
        own.add<1>(logits + c);
        if (HAS_SHARES || SMOOTHING != 0.0f) look(c, logits[c]);
    }
    const float largest = IS_LIKELIHOOD ? 0.0f : all.max(own.largest);
    const float sum = IS_LIKELIHOOD ? 1.0f : all.sum(own.sum * exponential(own.largest - Sum::base(largest)));
    if (HAS_SHARES) mass = all.sum(mass);
    if (HAS_SHARES || SMOOTHING != 0.0f) spread = all.sum(spread);
#ifndef PROBABILITIES
    // Read before the gradient overwrites it.
    const float right = is_counted ? widen(logits[label * INNER]) : 0.0f;
    const float own_share = PLAIN ? 1.0f : is_counted ? (1.0f - SMOOTHING) * weight_of(label) : 0.0f;
    mass = own_share + SMOOTHING * (float)(ALL_WEIGHTS / (double)CLASSES);
    const float picked = PLAIN ? right : own_share == 0.0f ? spread : spread + own_share * right;
#else
    const float picked = spread;
#endif
    all.wait();
#if GRADIENT
    const float scale = of_term * factor(state) / divisor, inverse = 1.0f / sum;
    real *gradient = dx + row / INNER * (u64)(INNER == 1 ? GRADIENT_PITCH : CLASSES * INNER) + row % INNER;
    // Computes the gradient of class c, whose logit is x, at `to`.
    const auto give = [&](u64 c, real x, real *to) {
        const float p = IS_LIKELIHOOD ? 0.0f : exponential(widen(x) - largest) * inverse;
        const float slope = PLAIN ? p - hit(c) : p * mass - share(c);
        put(is_counted ? slope * scale : 0.0f, to);
    };
    for (u64 c = thread * PACK; c < WHOLE; c += threads * PACK) {
        const Pack pack = *(const Pack *)(logits + c * INNER);
        Pack out = pack;
#if ADD
        out = *(const Pack *)(gradient + c * INNER);
#endif
#pragma unroll
        for (int k = 0; k < PACK; k++) give(c + k, pack.at[k], &out.at[k]);
        *(Pack *)(gradient + c * INNER) = out;
    }
    if (PACK > 1 && WHOLE + thread < CLASSES) {
        const u64 c = WHOLE + thread;
        give(c, logits[c], &gradient[c]);
    }
#endif
    if (!is_counted) return 0.0f;
    if (IS_LIKELIHOOD) return -picked;
    return PLAIN ? logf(sum) + largest - picked : mass * (logf(sum) + largest) - picked;
}

#ifdef COUNTED_STEPS
// Counts the elements that count, in whole batches of COUNT elements.
KERNEL(__launch_bounds__(1024) loss_divisor_of_steps)(const u32 *lengths, float *divisor) {
    __shared__ float scratch[32];
    float sum = 0.0f;
    for (u64 b = threadIdx.x; b < COUNT / (STEP * COUNTED_STEPS); b += blockDim.x) sum += (float)lengths[b];
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) divisor[0] = sum * (float)STEP;
}
#endif

// COUNTS_TARGETS: the divisor comes from the targets, not from a mask or lengths.
#undef COUNTS_TARGETS
#if defined(COUNTED) && !defined(WEIGHTED) && !defined(COUNTED_STEPS)
#define COUNTS_TARGETS
#endif

#ifdef COUNTS_TARGETS
// Returns the weights of all positions that count, in every thread of one block.
static __device__ __forceinline__ float sum_of_weights(const u32 *target, float *scratch) {
    float sum = 0.0f;
    for (u64 row = threadIdx.x; row < PLACES; row += blockDim.x) sum += counts(target[row]) ? weight_of(target[row]) : 0.0f;
    return block_sum(sum, scratch);
}

// Computes the divisor of all rows, before them.
KERNEL(__launch_bounds__(1024) loss_divisor)(const u32 *target, float *divisor) {
    __shared__ float scratch[32];
    const float sum = sum_of_weights(target, scratch);
    if (threadIdx.x == 0) divisor[0] = sum;
}

// Grid: a block for each row, with that divisor.
KERNEL(__launch_bounds__(1024) cross_entropy_rows_counted)(const real *x, const u32 *target, const u32 *state, real *dx, float *row_loss, const float *divisor) {
    __shared__ float scratch[32];
    const float term = row_term(OfBlock{threadIdx.x, blockDim.x, scratch}, blockIdx.x, x, target, state, divisor[0], dx);
    if (threadIdx.x == 0) row_loss[blockIdx.x] = term;
}
#else
// Grid: a block for each row.
KERNEL(__launch_bounds__(1024) cross_entropy_rows)(const real *x, const row_target *target, const u32 *state, real *dx, float *row_loss) {
    __shared__ float scratch[32];
    const float term = row_term(OfBlock{threadIdx.x, blockDim.x, scratch}, blockIdx.x, x, target, state, (float)(DIVISOR), dx);
    if (threadIdx.x == 0) row_loss[blockIdx.x] = term;
}
#endif

// Losses of elements: the term of x and target t, and its slope. `weight` is that of the class. Those of the language are in losses.cuh, with their
// formulas of gpumem_core::program::losses.
struct Dot {
    static __device__ __forceinline__ float value(float x, float t, float) { return x * t; }
    static __device__ __forceinline__ float slope(float, float t, float) { return t; }
};
#include "formula.cuh"
#include "losses.cuh"

// Further arguments of the kernels of elements: which elements count, and the divisor of a mean.
#undef COUNTS_ARGUMENTS
#undef COUNTS
#ifdef COUNTED_STEPS
struct Counts {
    const float *divisor;
    const u32 *lengths;

    __device__ __forceinline__ bool has(u64 i) const { return i / STEP % COUNTED_STEPS < lengths[i / (STEP * COUNTED_STEPS)]; }
    __device__ __forceinline__ float all() const { return divisor ? divisor[0] : (float)(DIVISOR); }
};
#define COUNTS_ARGUMENTS , const float *divisor, const u32 *lengths
#define COUNTS {divisor, lengths}
#else
struct Counts {
    __device__ __forceinline__ bool has(u64) const { return true; }
    __device__ __forceinline__ float all() const { return (float)(DIVISOR); }
};
#define COUNTS_ARGUMENTS
#define COUNTS {}
#endif

// Returns the term of element i, and computes its gradient.
template <class Loss>
static __device__ __forceinline__ float term_of(u64 i, const real *x, const float *target, const u32 *state, real *dx, const Counts &counts) {
    if (!counts.has(i)) {
#if GRADIENT
        put(0.0f, dx + i);
#endif
        return 0.0f;
    }
    const float t = SAME<Loss, Mean> ? 0.0f : target[i], weight = weight_of(i / INNER % CLASSES), logit = widen(x[i]);
    const float value = Loss::value(logit, t, weight);
#if GRADIENT
    put(Loss::slope(logit, t, weight) * factor(state) / counts.all(), dx + i);
#endif
    return value;
}

// Returns the terms of a block, over elements a stride of all blocks apart.
template <class Loss>
static __device__ __forceinline__ float terms_of_block(const real *x, const float *target, const u32 *state, real *dx, float *scratch,
                                                       const Counts &counts) {
    float sum = 0.0f;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < COUNT; i += (u64)gridDim.x * blockDim.x)
        sum += term_of<Loss>(i, x, target, state, dx, counts);
    return block_sum(sum, scratch);
}

// Returns the sum of all terms, in one block, of up to 32 times 256 elements. The order of summation is that of many blocks of 256 threads.
// `scratch` has 288 floats of shared memory.
template <class Loss>
static __device__ __forceinline__ float all_terms(const real *x, const float *target, const u32 *state, real *dx, float *scratch) {
    constexpr u32 BLOCKS = COUNT < 8192 ? (u32)((COUNT + 255) / 256) : 32;
    float *sums = scratch, *sums_of_blocks = scratch + 256;
    const u32 lane = threadIdx.x % 32;
    for (u32 i = threadIdx.x; i < BLOCKS * 256; i += blockDim.x) {
        const float sum = warp_sum(i < COUNT ? term_of<Loss>(i, x, target, state, dx, Counts()) : 0.0f);
        if (lane == 0) sums[i / 32] = sum;
    }
    __syncthreads();
    for (u32 block = threadIdx.x / 32; block < BLOCKS; block += blockDim.x / 32) {
        const float sum = warp_sum(lane < 8 ? sums[block * 8 + lane] : 0.0f);
        if (lane == 0) sums_of_blocks[block] = sum;
    }
    __syncthreads();
    return warp_sum(lane < BLOCKS ? sums_of_blocks[lane] : 0.0f);
}

// Partial sums of 256 blocks.
KERNEL(mse_partial)(const real *x, const float *target, const u32 *state, real *dx, float *partial COUNTS_ARGUMENTS) {
    __shared__ float scratch[32];
    const float sum = terms_of_block<Mse>(x, target, state, dx, scratch, COUNTS);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

KERNEL(mean_partial)(const real *x, const float *target, const u32 *state, real *dx, float *partial COUNTS_ARGUMENTS) {
    __shared__ float scratch[32];
    const float sum = terms_of_block<Mean>(x, target, state, dx, scratch, COUNTS);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

KERNEL(dot_partial)(const real *x, const float *target, const u32 *state, real *dx, float *partial COUNTS_ARGUMENTS) {
    __shared__ float scratch[32];
    const float sum = terms_of_block<Dot>(x, target, state, dx, scratch, COUNTS);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

#ifdef LOSS
KERNEL(elements_partial)(const real *x, const float *target, const u32 *state, real *dx, float *partial COUNTS_ARGUMENTS) {
    __shared__ float scratch[32];
    const float sum = terms_of_block<LOSS>(x, target, state, dx, scratch, COUNTS);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}
#endif

#ifdef WEIGHTED
// Weighted terms of rows. Grid: a block for each row.
KERNEL(__launch_bounds__(1024) weighted_rows)
(const real *x, const row_target *target, const u32 *state, real *dx WEIGHTS_PARAMETERS, float *row_loss) {
    __shared__ float scratch[32];
    const float of_term = OF_TERM(place(blockIdx.x));
    const float term = row_term(OfBlock{threadIdx.x, blockDim.x, scratch}, blockIdx.x, x, target, state, DIVIDED_BY, dx, of_term);
    if (threadIdx.x == 0) row_loss[blockIdx.x] = of_term * term;
}

#ifdef LOSS
// Weighted terms of elements, in partial sums of 256 blocks.
KERNEL(weighted_elements)(const real *x, const float *target, const u32 *state, real *dx WEIGHTS_PARAMETERS, float *partial) {
    __shared__ float scratch[32];
    float sum = 0.0f;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < COUNT; i += (u64)gridDim.x * blockDim.x) {
        const float t = SAME<LOSS, Mean> ? 0.0f : target[i], weight = weight_of(i / INNER % CLASSES), logit = widen(x[i]);
        const float of_term = OF_TERM(i);
        sum += of_term * LOSS::value(logit, t, weight);
#if GRADIENT
        put(of_term * LOSS::slope(logit, t, weight) * factor(state) / DIVIDED_BY, dx + i);
#endif
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}
#endif
#endif

#ifdef SUMMED
// Computes the divisor of all terms, in one block: the sum of SUMMED numbers.
KERNEL(__launch_bounds__(1024) sum_of_numbers)(const float *numbers, float *divisor) {
    __shared__ float scratch[32];
    float sum = 0.0f;
    for (u64 i = threadIdx.x; i < SUMMED; i += blockDim.x) sum += numbers[i];
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) divisor[0] = sum;
}
#endif

// Words of the ring: session/losses.rs.
constexpr u32 RING = 8;

// Sends a loss to the host, by one thread: its bits in the lower half of a word, the number of the step in the upper half. Steps are numbered from
// 1 on by a separate count, since the state's step count leaves out skipped steps. A 64-bit word is written at once, so the host never sees the
// number of one step with the loss of another.
static __device__ __forceinline__ void send(float loss, volatile u64 *ring, u32 *state) {
    const u32 number = ++state[STATE_LOSSES];
    ring[number % RING] = (u64)number << 32 | bits_of(loss);
    // The host has the loss before any work after this launch begins.
    __threadfence_system();
}

// Ends the loss, by one block: the sum of all terms over the divisor, times WEIGHT. Also computes the numbers that all updates of this step need.
static __device__ __forceinline__ void finish(float sum, float divisor, float *loss, u32 *state, u64 *ring) {
#ifdef BETAS
    if (threadIdx.x < 2) {
        constexpr double betas[2] = BETAS;
        const double t = (double)((u64)state[STATE_STEP + 1] << 32 | state[STATE_STEP]) + 1.0;
        // In double precision: for powers of numbers near 1 in f32, the difference to 1 would lose half of its digits.
        state[STATE_CORRECTIONS + threadIdx.x] = bits_of((float)(1.0 - pow(threadIdx.x == 0 ? betas[0] : betas[1], t)));
    }
#endif
#ifdef CORRECTIONS
    if (threadIdx.x < 2) {
        const double steps = (double)((u64)state[STATE_STEP + 1] << 32 | state[STATE_STEP]) + 1.0;
        double both[2], t[VARIABLES + 1];
        CORRECTIONS
        state[STATE_CORRECTIONS + threadIdx.x] = bits_of((float)(threadIdx.x == 0 ? both[0] : both[1]));
    }
#endif
    if (threadIdx.x != 0) return;
#ifdef SCHEDULE
    state[STATE_RATE] = bits_of(scheduled(state));
#endif
    float total = sum / divisor * (float)(WEIGHT);
#if SUM
    total += loss[0];
#endif
    loss[0] = total;
    if (ring) send(total, ring, state);
}

// Returns the sum of ROWS terms, in the same order in every run.
static __device__ __forceinline__ float sum_of_terms(const float *terms, float *scratch) {
    float sum = 0.0f;
    for (u64 i = threadIdx.x; i < ROWS; i += blockDim.x) sum += terms[i];
    return block_sum(sum, scratch);
}

#ifdef COUNTED
KERNEL(loss_total_counted)(const float *terms, float *loss, u32 *state, const float *divisor, u64 *ring) {
    __shared__ float scratch[32];
    finish(sum_of_terms(terms, scratch), divisor[0], loss, state, ring);
}
#else
KERNEL(loss_total)(const float *terms, float *loss, u32 *state, u64 *ring) {
    __shared__ float scratch[32];
    finish(sum_of_terms(terms, scratch), (float)(DIVISOR), loss, state, ring);
}
#endif

// Everything in one block: a warp for each row, one after the other.
KERNEL(__launch_bounds__(1024) cross_entropy)(const real *x, const row_target *target, u32 *state, real *dx, float *terms, float *loss,
                                               u64 *ring) {
    __shared__ float scratch[32];
#ifdef COUNTS_TARGETS
    const float divisor = sum_of_weights(target, scratch);
#else
    const float divisor = (float)(DIVISOR);
#endif
    for (u64 row = threadIdx.x / 32; row < ROWS; row += blockDim.x / 32) {
        const float term = row_term(OfWarp{threadIdx.x % 32, 32}, row, x, target, state, divisor, dx);
        if (threadIdx.x % 32 == 0) terms[row] = term;
    }
    __syncthreads();
    finish(sum_of_terms(terms, scratch), divisor, loss, state, ring);
}

KERNEL(__launch_bounds__(1024) mse)(const real *x, const float *target, u32 *state, real *dx, float *, float *loss, u64 *ring) {
    __shared__ float scratch[288];
    finish(all_terms<Mse>(x, target, state, dx, scratch), (float)(DIVISOR), loss, state, ring);
}

KERNEL(__launch_bounds__(1024) mean)(const real *x, const float *target, u32 *state, real *dx, float *, float *loss, u64 *ring) {
    __shared__ float scratch[288];
    finish(all_terms<Mean>(x, target, state, dx, scratch), (float)(DIVISOR), loss, state, ring);
}

KERNEL(__launch_bounds__(1024) dot)(const real *x, const float *target, u32 *state, real *dx, float *, float *loss, u64 *ring) {
    __shared__ float scratch[288];
    finish(all_terms<Dot>(x, target, state, dx, scratch), (float)(DIVISOR), loss, state, ring);
}

#ifdef LOSS
KERNEL(__launch_bounds__(1024) elements)(const real *x, const float *target, u32 *state, real *dx, float *, float *loss, u64 *ring) {
    __shared__ float scratch[288];
    finish(all_terms<LOSS>(x, target, state, dx, scratch), (float)(DIVISOR), loss, state, ring);
}
#endif

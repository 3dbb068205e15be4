// Connectionist temporal classification loss (CTC) and its gradient, which may overwrite x. Grid: a block for each sample.
//
// STEPS    time steps of a sequence
// CLASSES  classes of each time step
// LABELS   labels of the longest target
// BLANK    the class between labels
// LENGTHS  1 if each sample has the number of its time steps that count
// ZERO_INFINITY  1 if an infinite loss counts as 0
// AVERAGES 1 if a sample's loss is divided by the labels of its target, at least 1
// GRADIENT 1 if the gradient is wanted
// ADD      1 if the gradient is added to its tensor (+=), which is not that of x; 0 if it overwrites it
// DIVISOR  divisor of the sum of terms
// WEIGHT   factor of loss and gradient
//
// A target of n labels has 2 n + 1 states: a blank, then each label followed by another blank.
//
// a[t, s] = x[t, s] + log sum of exp(a[t - 1, s']) over s' = s, s - 1, and s - 2 where that is another label
// b[t, s] = log sum of exp(b[t + 1, s'] + x[t + 1, s']) over s' = s, s + 1, and s + 2 where that is another label
// loss    = -log(exp(a[STEPS - 1, 2 n]) + exp(a[STEPS - 1, 2 n - 1]))
// dx[t, c] = exp(x[t, c]) - share of the states of class c in the sum over s of exp(a[t, s] + b[t, s])
//
// The largest element is subtracted from each row of a and of b, so that relevant numbers stay small. The shares of several states of one class are
// added up by the thread of the first state, in order, so that every run gives the same result.
//
// The loss scale of the state multiplies the gradient, not the loss. Terms are written to the workspace.
#include "base.cuh"
#include "real.cuh"
#include "loss.cuh"

// States of the longest target: elements of a row.
constexpr u64 STATES = 2 * (u64)(LABELS) + 1;
// Rows of a sample: STEPS rows of a, two of b + x, and one that says for each label where it occurs next and whether it occurred before.
constexpr u64 ROWS_OF_SAMPLE = (u64)(STEPS) + 3;

static __device__ __forceinline__ float none() { return -__int_as_float(0x7f800000); }

// Returns the log of a sum of exponentials. If all are -infinity, so is the result; NaN stays.
static __device__ __forceinline__ float log_sum(float a, float b, float c) {
    const float largest = fmaxf(a, fmaxf(b, c));
    if (largest == none()) return a + b + c;
    return largest + logf(expf(a - largest) + expf(b - largest) + expf(c - largest));
}

// A sample's target.
struct Target {
    const u32 *labels;
    u64 count;

    __device__ __forceinline__ u64 states() const { return 2 * count + 1; }
    __device__ __forceinline__ u32 at(u64 s) const { return s % 2 ? labels[s / 2] : (u32)(BLANK); }
    // True if a path may skip the blank before this state.
    __device__ __forceinline__ bool skips(u64 s) const { return s % 2 && s > 1 && labels[s / 2] != labels[s / 2 - 1]; }
};

// Returns the target up to its end, in every thread.
static __device__ __forceinline__ Target target_of(const u32 *labels, float *scratch) {
    u64 end = LABELS;
    for (u64 i = threadIdx.x; i < end; i += blockDim.x)
        if (labels[i] >= CLASSES || labels[i] == (u32)(BLANK)) end = i;
    return Target{labels, (u64)-block_max(-(float)end, scratch)};
}

// Subtracts the largest element from a row, unless that is -infinity, each thread from the elements that it wrote. Returns what was subtracted.
static __device__ __forceinline__ float lower(float *row, u64 states, float own, float *scratch) {
    const float largest = block_max(own, scratch);
    if (largest == none()) return 0.0f;
    for (u64 s = threadIdx.x; s < states; s += blockDim.x) row[s] -= largest;
    return largest;
}

// Returns the loss, in every thread, and computes the rows of a.
static __device__ __forceinline__ float loss_of(const Target &target, u64 steps, const real *x, float *rows, float *scratch) {
    const u64 states = target.states();
    if (steps == 0) return states == 1 ? 0.0f : -none();
    double likelihood = 0.0;
    for (u64 t = 0; t < steps; t++) {
        float *row = rows + t * STATES, own = none();
        const float *before = row - STATES;
        for (u64 s = threadIdx.x; s < states; s += blockDim.x) {
            float a = s < 2 ? 0.0f : none();
            if (t > 0) a = log_sum(before[s], s > 0 ? before[s - 1] : none(), target.skips(s) ? before[s - 2] : none());
            a += widen(x[t * CLASSES + target.at(s)]);
            row[s] = a;
            own = fmaxf(own, a);
        }
        likelihood += (double)lower(row, states, own, scratch);
        __syncthreads();
    }
    const float *last = rows + (steps - 1) * STATES;
    return (float)-(likelihood + (double)log_sum(last[states - 1], states > 1 ? last[states - 2] : none(), none()));
}

#if GRADIENT
// Finds the next occurrence of each label, and whether it is the first.
static __device__ __forceinline__ void link(const Target &target, u32 *following, u32 *is_first) {
    for (u64 i = threadIdx.x; i < target.count; i += blockDim.x) {
        u64 next = i + 1, before = 0;
        while (next < target.count && target.labels[next] != target.labels[i]) next++;
        while (before < i && target.labels[before] != target.labels[i]) before++;
        following[i] = (u32)next;
        is_first[i] = before == i;
    }
}

static __device__ __forceinline__ void gradient_of(const Target &target, u64 steps, const real *x, float scale, float *rows, real *dx,
                                                   float *scratch) {
    const u64 states = target.states();
    u32 *following = (u32 *)(rows + (STEPS + 2) * STATES), *is_first = following + LABELS;
    link(target, following, is_first);
    for (u64 t = steps; t-- > 0;) {
        float *shares = rows + t * STATES, *now = rows + (STEPS + t % 2) * STATES;
        const float *later = rows + (STEPS + (t + 1) % 2) * STATES;
        const real *numbers = x + t * CLASSES;
        real *out = dx + t * CLASSES;
        float most = none(), own = none();
        for (u64 s = threadIdx.x; s < states; s += blockDim.x) {
            float back = s + 2 < states ? none() : 0.0f;
            if (t + 1 < steps)
                back = log_sum(later[s], s + 1 < states ? later[s + 1] : none(),
                               s + 2 < states && target.skips(s + 2) ? later[s + 2] : none());
            most = fmaxf(most, shares[s] += back);
            own = fmaxf(own, now[s] = back + widen(numbers[target.at(s)]));
        }
        lower(now, states, own, scratch);
        most = block_max(most, scratch);
        float all = 0.0f, blanks = 0.0f;
        for (u64 s = threadIdx.x; s < states; s += blockDim.x) {
            const float share = shares[s] = expf(shares[s] - most);
            all += share;
            blanks += s % 2 ? 0.0f : share;
        }
        const float whole = 1.0f / block_sum(all, scratch);
        blanks = block_sum(blanks, scratch);
        // Puts the gradient of the class of state s, which no other state writes, in the place of its share.
        const auto put = [&](u64 s, float share) {
            const u32 c = target.at(s);
            const float gradient = (expf(widen(numbers[c])) - share * whole) * scale;
            shares[s] = ADD ? gradient + widen(out[c]) : gradient;
        };
        for (u64 i = threadIdx.x; i < target.count; i += blockDim.x) {
            if (!is_first[i]) continue;
            float share = 0.0f;
            for (u64 at = i; at < target.count; at = following[at]) share += shares[2 * at + 1];
            put(2 * i + 1, share);
        }
        if (threadIdx.x == 0) put(0, blanks);
        __syncthreads();
        for (u64 c = threadIdx.x; c < CLASSES; c += blockDim.x) give<ADD>(expf(widen(numbers[c])) * scale, out + c);
        __syncthreads();
        for (u64 i = threadIdx.x; i < target.count; i += blockDim.x)
            if (is_first[i]) narrow(shares[2 * i + 1], out + target.at(2 * i + 1));
        if (threadIdx.x == 0) narrow(shares[0], out + BLANK);
    }
}
#endif

KERNEL(ctc)(const real *x, const u32 *labels, const u32 *lengths, const u32 *state, real *dx WEIGHTS_PARAMETERS, float *rows, float *terms) {
    __shared__ float scratch[32];
    const u64 sample = blockIdx.x;
    x += sample * STEPS * CLASSES;
    rows += sample * ROWS_OF_SAMPLE * STATES;
    const Target target = target_of(labels + sample * LABELS, scratch);
#if LENGTHS
    const u64 steps = lengths[sample] < STEPS ? lengths[sample] : STEPS;
#else
    const u64 steps = STEPS;
#endif
    const float part = AVERAGES && target.count > 1 ? 1.0f / (float)target.count : 1.0f;
    const float loss = loss_of(target, steps, x, rows, scratch);
    const bool is_impossible = loss == -none();
    if (threadIdx.x == 0) terms[sample] = ZERO_INFINITY && is_impossible ? 0.0f : OF_TERM(sample) * (loss * part);
#if GRADIENT
    dx += sample * STEPS * CLASSES;
    if (is_impossible) {
        const float nothing = ZERO_INFINITY ? 0.0f : __int_as_float(0x7fc00000);
        for (u64 i = threadIdx.x; i < steps * CLASSES; i += blockDim.x) give<ADD>(nothing, dx + i);
    } else {
        gradient_of(target, steps, x, OF_TERM(sample) * factor(state) * part * (float)(1.0 / (double)(DIVISOR)), rows, dx, scratch);
    }
#if !ADD
    for (u64 i = steps * CLASSES + threadIdx.x; i < STEPS * CLASSES; i += blockDim.x) narrow(0.0f, dx + i);
#endif
#endif
}

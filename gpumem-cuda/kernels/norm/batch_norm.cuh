// Batch normalisation of one element or channel, for every layout: see batch_norm.cu for the meaning of the constants.
//
// BATCH, CHANNELS, AREA, NORM_REAL, AFFINE, EPS, MOMENTUM, MASKED, SLOPE, EVAL, ADD_WEIGHT, ADD_BIAS, RANKS, PITCH
//
// No include guard: the tests include it once for each kernel they compile.

typedef NORM_REAL Norm;

// Division by a constant is several times faster in 32 bits.
#if BATCH * CHANNELS * AREA < 0x80000000ull
typedef u32 Index;
#else
typedef u64 Index;
#endif

// Elements of a channel.
constexpr Index COUNT = (Index)(BATCH * AREA);

// Elements of a channel on all ranks that share its statistics.
#ifdef RANKS
constexpr u64 ALL_RANKS = BATCH * AREA * (RANKS);
#else
constexpr Index ALL_RANKS = COUNT;
#endif

static __device__ __forceinline__ float inverse_root(float variance) { return 1.0f / sqrtf(variance + (float)(EPS)); }

// Returns 1 / deviation of a channel: from its running variance or, with KEPT, from the saved statistics.
static __device__ __forceinline__ float deviation(const float *statistics, u64 c) {
#ifdef KEPT
    return statistics[CHANNELS + c];
#else
    return inverse_root(statistics[c]);
#endif
}

// The normalisation of a channel's elements: (x - mean) scale + shift.
struct Rule {
    float mean, scale, shift;
#ifdef SLOPE
    // 1 / scale, or 0 if scale is 0: inverts the normalisation.
    float inverse;
#endif
};

static __device__ __forceinline__ Rule rule(float mean, float rstd, const Norm *weight, const Norm *bias, Index c) {
#if AFFINE
#ifdef EVAL
    // The bias is null without a function after the normalisation: no gradient needs it then.
    const float shift = bias == nullptr ? 0.0f : widen(bias[c]);
#else
    const float shift = widen(bias[c]);
#endif
    Rule how = {mean, rstd * widen(weight[c]), shift};
#else
    Rule how = {mean, rstd, 0.0f};
#endif
#ifdef SLOPE
    how.inverse = how.scale == 0.0f ? 0.0f : 1.0f / how.scale;
#endif
    return how;
}

// Explicitly fused, so that the backward pass recomputes the forward pass to the last bit, and with it the sign.
static __device__ __forceinline__ float normalise(float x, const Rule &rule) {
    return fmaf(x - rule.mean, rule.scale, rule.shift);
}

// Stores mean and 1 / deviation of a channel for the backward pass, and updates the running statistics.
static __device__ __forceinline__ void
keep(Index c, float mean, float squares, float *saved, float *running_mean, float *running_var) {
    const float all = (float)ALL_RANKS;
    saved[c] = mean;
    saved[CHANNELS + c] = inverse_root(squares / all);
    if (running_mean == nullptr) return;
    // A single element has no unbiased variance, so its biased one, 0, is used.
    const float unbiased = squares / (ALL_RANKS > 1 ? all - 1.0f : 1.0f);
    const float momentum = (float)(MOMENTUM), rest = (float)(1.0 - (MOMENTUM));
    running_mean[c] = rest * running_mean[c] + momentum * mean;
    running_var[c] = rest * running_var[c] + momentum * unbiased;
}

#ifdef EVAL

// Stores mean and 1 / deviation of a channel from its running statistics, which do not change.
static __device__ __forceinline__ void keep(Index c, const float *mean, const float *variance, float *saved) {
    saved[c] = mean[c];
    saved[CHANNELS + c] = inverse_root(variance[c]);
}

// Returns the factor from a gradient of y to that of x, if no gradient passes through the statistics.
static __device__ __forceinline__ float factor(float rstd, const Norm *weight, Index c) {
#if AFFINE
    return rstd * widen(weight[c]);
#else
    return rstd;
#endif
}

#endif

// The backward pass has x of an element, or with SLOPE y, from which it recovers x.
//
// Returns x - mean.
static __device__ __forceinline__ float centered(float kept, const Rule &rule) {
#ifdef SLOPE
    const float before = kept < 0.0f ? kept * (float)(1.0 / (SLOPE)) : kept;
    return (before - rule.shift) * rule.inverse;
#else
    return kept - rule.mean;
#endif
}

// Returns the gradient of a normalised element, from that of the rectifier's output.
static __device__ __forceinline__ float through(float dy, float kept, const Rule &rule) {
#ifdef SLOPE
    return dy * rectifier_slope(kept);
#else
    if (MASKED || SAME<RECTIFIER, Identity>) return dy;
    real before;
    narrow(normalise(kept, rule), &before);
    return dy * rectifier_slope(widen(before));
#endif
}

// Stores the gradients of weight and bias from the sums of a channel: of dy, and of dy (x - mean). With ADD_WEIGHT and ADD_BIAS adds them.
static __device__ __forceinline__ void
parameters(Index c, float rstd, float sum, float product, Norm *dweight, Norm *dbias) {
    product *= rstd;
    if (dweight != nullptr) narrow(ADD_WEIGHT ? widen(dweight[c]) + product : product, &dweight[c]);
    if (dbias != nullptr) narrow(ADD_BIAS ? widen(dbias[c]) + sum : sum, &dbias[c]);
}

// Means of a channel that its gradient of the input needs, besides its rule: mean(dy), and mean(dy n) rstd.
struct Means {
    float sum, product;
};

// Returns the means, from the sums of a channel: of dy, and of dy (x - mean).
static __device__ __forceinline__ Means means_of(float sum, float product, float rstd) {
    return {sum / (float)COUNT, product / (float)COUNT * rstd * rstd};
}

#ifdef RANKS

// Stores the mean and the biased variance of a channel over this rank's samples, in the rank's row.
static __device__ __forceinline__ void send_statistics(Index c, float mean, float squares, float *row) {
    row[c] = mean;
    row[CHANNELS + c] = squares / (float)COUNT;
}

// Computes the mean of a channel over the samples of all ranks, and the sum of squares around it. All ranks do so in the order of ranks, so that
// their statistics have equal bits.
static __device__ __forceinline__ void combine(Index c, const float *rows, float *mean, float *squares) {
    // Means relative to that of the first rank, so that nothing cancels.
    const float base = rows[c];
    float shift = 0.0f, variance = 0.0f;
#pragma unroll 4
    for (u32 rank = 1; rank < RANKS; rank++) shift += rows[rank * PITCH + c] - base;
    shift /= (float)(RANKS);
#pragma unroll 4
    for (u32 rank = 0; rank < RANKS; rank++) {
        const float distance = rows[rank * PITCH + c] - base - shift;
        variance += rows[rank * PITCH + CHANNELS + c] + distance * distance;
    }
    *mean = base + shift;
    *squares = variance * (float)COUNT;
}

// Stores the sums of a channel over this rank's samples: of dy, and of dy n.
static __device__ __forceinline__ void send_sums(Index c, float rstd, float sum, float product, float *sums) {
    sums[c] = sum;
    sums[CHANNELS + c] = product * rstd;
}

// Returns the means over the samples of all ranks, from the sums of all.
static __device__ __forceinline__ Means means_of_ranks(Index c, float rstd, const float *sums) {
    return {sums[c] / (float)ALL_RANKS, sums[CHANNELS + c] / (float)ALL_RANKS * rstd};
}

#endif

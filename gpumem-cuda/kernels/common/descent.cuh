// The learning rate of updates, and the scaling and clipping of gradients before their rule.
//
// SCHEDULED   given if the learning rate changes from step to step: the first loss of a step has computed it, see schedule.cuh
// CLIP_NORM   given if gradients are multiplied by the factor that norm.cu has stored in the state
// CLIP_VALUE  given if each element is clamped between this and its negative
// WIDE        given if gradients are f32 for weights of any format: sums over micro-batches
//
// No include guard: the tests include it once for each kernel they compile.

// Number format of the gradient of a weight with REAL elements.
#ifdef WIDE
typedef float Slope;
#else
typedef real Slope;
#endif

static __device__ __forceinline__ float rate_of(const u32 *state) {
#ifdef SCHEDULED
    return from_bits(state[STATE_RATE]);
#else
    return from_bits(state[STATE_LEARNING_RATE]);
#endif
}

// Turns an element of a gradient into the input of the rule. Gradients are multiplied by the loss scale.
struct Gradients {
    // One over the loss scale, which is a power of two unless a user sets another.
    float inverse;
#ifdef CLIP_NORM
    float factor;
#endif

    __device__ __forceinline__ float operator()(float g) const {
        g *= inverse;
#ifdef CLIP_NORM
        g *= factor;
#endif
#ifdef CLIP_VALUE
        constexpr float LARGEST = (float)(CLIP_VALUE);
        // NaN stays NaN.
        g = g > LARGEST ? LARGEST : g < -LARGEST ? -LARGEST : g;
#endif
        return g;
    }
};

static __device__ __forceinline__ Gradients gradients_of(const u32 *state) {
    Gradients gradients;
    gradients.inverse = 1.0f / from_bits(state[STATE_LOSS_SCALE]);
#ifdef CLIP_NORM
    gradients.factor = from_bits(state[STATE_CLIP]);
#endif
    return gradients;
}

// What updates take from the state beside what their rule needs: the learning rate, and what is done to gradients first.
//
// SCHEDULED   where the rate changes from step to step: the first loss of a step has computed it, see schedule.cuh
// CLIP_NORM   where gradients are multiplied with what norm.cu has left in the state
// CLIP_VALUE  where each of their elements is kept between this and its negative
// WIDE        where gradients are f32, whatever weights are: sums over the parts of a batch
//
// No include guard: the tests include it once for each kernel they compile.

// What the gradient of a weight of REAL elements is made of.
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

// Makes an element of a gradient what the rule is given. Gradients carry the loss scale.
struct Gradients {
    // One over the loss scale: that is a power of two, but where a user says otherwise.
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
        // What is no number stays none.
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

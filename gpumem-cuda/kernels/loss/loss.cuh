// Gradients and weights of all losses. WEIGHT is the factor of loss and gradient.
//
// WEIGHTED  given if terms are weighted: consecutive terms that share a weight. `weights` are these weights, and `divisor`, if it is not null,
//           takes the place of DIVISOR: the sum of a mask, for a mean over it.
//
// No include guard: the tests include it once for each kernel they compile.
#undef WEIGHTS_PARAMETERS
#undef OF_TERM
#undef DIVIDED_BY
#ifdef WEIGHTED
#define WEIGHTS_PARAMETERS , const float *weights, const float *divisor
#define OF_TERM(term) (weights[(term) / WEIGHTED])
#define DIVIDED_BY (divisor ? divisor[0] : (float)(DIVISOR))
#else
#define WEIGHTS_PARAMETERS
#define OF_TERM(term) 1.0f
#define DIVIDED_BY ((float)(DIVISOR))
#endif

// Returns the factor of every gradient.
static __device__ __forceinline__ float factor(const u32 *state) {
    return from_bits(state[STATE_LOSS_SCALE]) * (float)(WEIGHT);
}

// Stores a gradient, or with ADDS adds it to its tensor.
template <bool ADDS, class Element> static __device__ __forceinline__ void give(float gradient, Element *dx) {
    if (ADDS) gradient += widen(*dx);
    narrow(gradient, dx);
}

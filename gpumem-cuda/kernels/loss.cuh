// What all losses do with their gradients. WEIGHT is what loss and gradient are multiplied with.
//
// WEIGHTED  where terms are multiplied with numbers of their own, how many terms follow each other that have one of them. `weights` are
//           these numbers, and `divisor`, if it is given, takes the place of DIVISOR: a mean of what a mask leaves.
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

// What every gradient is multiplied with.
static __device__ __forceinline__ float factor(const u32 *state) {
    return from_bits(state[STATE_LOSS_SCALE]) * (float)(WEIGHT);
}

// Puts a gradient, or adds it to what is there.
template <bool ADDS, class Element> static __device__ __forceinline__ void give(float gradient, Element *dx) {
    if (ADDS) gradient += widen(*dx);
    narrow(gradient, dx);
}

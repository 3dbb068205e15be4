// What all losses do with their gradients. WEIGHT is what loss and gradient are multiplied with.
// No include guard: the tests include it once for each kernel they compile.

// What every gradient is multiplied with.
static __device__ __forceinline__ float factor(const u32 *state) {
    return from_bits(state[STATE_LOSS_SCALE]) * (float)(WEIGHT);
}

// Puts a gradient, or adds it to what is there.
template <bool ADDS, class Element> static __device__ __forceinline__ void give(float gradient, Element *dx) {
    if (ADDS) gradient += widen(*dx);
    narrow(gradient, dx);
}

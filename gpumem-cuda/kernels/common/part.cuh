// The random numbers of a layer in the current micro-batch.
//
// DRAWN  given if the batch is split: draws of each micro-batch
//
// No include guard: the tests include it once for each kernel they compile.

static __device__ __forceinline__ Draws draws_of(const u32 *state, u32 row) {
#ifdef DRAWN
    return Draws{state, row, (u64)(DRAWN) * state[STATE_PART]};
#else
    return Draws{state, row, 0};
#endif
}

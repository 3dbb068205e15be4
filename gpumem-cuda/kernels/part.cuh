// What a layer draws from in the part of a batch that is at hand.
//
// DRAWN  where a batch is split: how many draws each part has
//
// No include guard: the tests include it once for each kernel they compile.

static __device__ __forceinline__ Draws draws_of(const u32 *state, u32 row) {
#ifdef DRAWN
    return Draws{state, row, (u64)(DRAWN) * state[STATE_PART]};
#else
    return Draws{state, row, 0};
#endif
}

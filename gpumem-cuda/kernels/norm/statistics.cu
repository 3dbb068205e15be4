// Saving and restoring of running statistics, for steps that may be skipped: of one tensor, or of many in one launch.
//
// statistics_save     copies them before the step
// statistics_restore  copies them back if the step is skipped
//
// FIELDS, MOST  see multi_tensor.cuh. A launch has for each tensor, after its first block: the offsets of it and its copy from the pointers of those names,
//               in units of 256 bytes
// SPLIT         given if a batch is split into micro-batches, of which only the first saves. On several ranks, the micro-batches of each
#include "base.cuh"
#include "real.cuh"
#include "multi_tensor.cuh"

template <u32 LIMIT> static __device__ __forceinline__ void copy(const float *from, float *to, const Tensors<LIMIT> &tensors, u32 source) {
    const Part part = part_of_thread(tensors);
    if (part.many == 0) return;
    float values[FOUR];
    load(from + tensors.words[source][part.tensor] * 64ull + part.first, part.many, values);
    save(values, part.many, to + tensors.words[3 - source][part.tensor] * 64ull + part.first);
}

static __device__ __forceinline__ bool is_saved(const u32 *state) {
#ifdef SPLIT
    return SPLIT == 1 ? state[STATE_PART] == 0 : state[STATE_PART] % SPLIT == 0;
#else
    return true;
#endif
}

// Grid: blocks of 256 threads.
KERNEL(statistics_save)(const float *statistics, float *saved, const u32 *state, IN_PLACE Tensors<FEW> tensors) {
    if (is_saved(state)) copy(statistics, saved, tensors, 1);
}

KERNEL(statistics_save_many)(const float *statistics, float *saved, const u32 *state, IN_PLACE Tensors<MOST> tensors) {
    if (is_saved(state)) copy(statistics, saved, tensors, 1);
}

KERNEL(statistics_restore)(float *statistics, const float *saved, const u32 *state, IN_PLACE Tensors<FEW> tensors) {
    if (state[STATE_OVERFLOW] != 0) copy(saved, statistics, tensors, 2);
}

KERNEL(statistics_restore_many)(float *statistics, const float *saved, const u32 *state, IN_PLACE Tensors<MOST> tensors) {
    if (state[STATE_OVERFLOW] != 0) copy(saved, statistics, tensors, 2);
}

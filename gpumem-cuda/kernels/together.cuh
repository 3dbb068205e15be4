// Grids whose blocks wait for each other. TOGETHER says that a kernel is one of these: it is launched so that all of its blocks run at
// once, and none otherwise has this.
#ifdef TOGETHER

// Waits until all blocks of the grid are here, which all run at once; then each sees what the others have written before. The word
// counts the blocks, and its highest bit changes with the last of them: the first block brings what the others leave up to that. The
// rest is 0 again then, for the next grid.
static __device__ __forceinline__ void wait_for_grid(u32 *state) {
#ifdef __CUDA_ARCH__
    constexpr u32 LAST = 0x80000000u;
    u32 *const word = &state[STATE_BLOCKS];
    __syncthreads();
    if (threadIdx.x == 0) {
        const bool is_first = blockIdx.x == 0 && blockIdx.y == 0;
        __threadfence();
        const u32 before = atomicAdd(word, is_first ? LAST - (gridDim.x * gridDim.y - 1) : 1u);
        while (((*(volatile u32 *)word ^ before) & LAST) == 0) {}
        __threadfence();
    }
    __syncthreads();
#else
    simt::wait_for_grid(&state[STATE_BLOCKS]);
#endif
}

#endif

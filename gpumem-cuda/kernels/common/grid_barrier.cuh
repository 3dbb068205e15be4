// A barrier for the whole grid. A kernel that is compiled with TOGETHER is launched with all of its blocks resident; other kernels lack the
// barrier.
#ifdef TOGETHER

// Waits until all blocks of the grid have arrived, all of which are resident. Each then sees the earlier writes of the others. The word counts the
// blocks, and its highest bit flips with the last one: the first block adds what the others leave up to that bit. The other bits are then 0 again,
// for the next grid.
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

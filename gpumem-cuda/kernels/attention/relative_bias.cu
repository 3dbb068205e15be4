// Relative position bias: a learned number for each head and each distance between a query and a key, and its gradient.
//
// HEADS, HEIGHT, WIDTH  heads, and the grid whose positions, row-major, are queries and keys
// PLACES   the row of the table for each distance of a query from a key, row-major: those along the height from 1 - HEIGHT on, and for each those
//          along the width from 1 - WIDTH on
// ADD      1 if the gradient is added to its tensor (+=), 0 if it overwrites it; 0 for the forward pass
//
// The table has rows of HEADS numbers; y is [HEADS, T, T] with T = HEIGHT * WIDTH.
#include "base.cuh"
#include "real.cuh"

static __device__ const u32 places[] = PLACES;

constexpr u32 POSITIONS = HEIGHT * WIDTH, DOWN = 2 * HEIGHT - 1, ACROSS = 2 * WIDTH - 1;
constexpr u64 COUNT = (u64)HEADS * POSITIONS * POSITIONS;

// Grid: blocks of 256 threads, an element each.
KERNEL(relative_bias_forward)(const real *table, real *y) {
    const u64 index = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= COUNT) return;
    const u32 key = (u32)(index % POSITIONS), query = (u32)(index / POSITIONS % POSITIONS);
    const u32 down = query / WIDTH + (HEIGHT - 1) - key / WIDTH, across = query % WIDTH + (WIDTH - 1) - key % WIDTH;
    y[index] = table[(u64)places[down * ACROSS + across] * HEADS + index / ((u64)POSITIONS * POSITIONS)];
}

// Grid: a block of 256 threads for each element of the table. Each sums the pairs of its distances in the same order in every run.
KERNEL(relative_bias_backward)(const real *dy, real *dtable) {
    __shared__ float scratch[8];
    const u32 row = blockIdx.x / HEADS, head = blockIdx.x % HEADS;
    dy += (u64)head * POSITIONS * POSITIONS;
    float sum = 0.0f;
    for (u32 place = 0; place < DOWN * ACROSS; place++) {
        if (places[place] != row) continue;
        const int down = (int)(place / ACROSS) - (HEIGHT - 1), across = (int)(place % ACROSS) - (WIDTH - 1);
        // Only queries whose key is on the grid.
        for (u32 query = threadIdx.x; query < POSITIONS; query += blockDim.x) {
            const int y = (int)(query / WIDTH) - down, x = (int)(query % WIDTH) - across;
            if (y < 0 || y >= HEIGHT || x < 0 || x >= WIDTH) continue;
            sum += widen(dy[(u64)query * POSITIONS + (u32)(y * WIDTH + x)]);
        }
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x > 0) return;
    real *to = dtable + (u64)row * HEADS + head;
    narrow(ADD ? sum + widen(*to) : sum, to);
}

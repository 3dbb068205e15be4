// Matrix products of Linear and Tied: y = x W^T + b, dx = dy W, dW = dy^T x, db = sums of the columns of dy, where x is
// [rows, features in], y [rows, features out] and W [features out, features in] or its transpose.
//
// The constants are those of matrices.cuh.
//
// product:     C = A B + bias. Grid: along x a block for each tile of C
// column_sums: sums[COLUMNS] = sum over the rows of A[ROWS, COLUMNS], where DEPTH is COLUMNS. Grid: along x a block of 1024 threads for 32 columns
#include "base.cuh"
#include "real.cuh"
#include "matrices.cuh"

KERNEL(__launch_bounds__(TILE_THREADS, TILE_RESIDENT) product)
(const real *__restrict__ a, const real *__restrict__ b, const real *__restrict__ bias, real *c) {
    __shared__ Tiles tiles;
    product_tile(blockIdx.x, a, b, bias, c, tiles);
}

// A lane for each of 32 columns and a warp for every 32nd row; then a warp for each column.
KERNEL(__launch_bounds__(1024) column_sums)(const real *__restrict__ a, real *sums) {
    __shared__ float partial[32][33];
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = blockIdx.x * 32 + lane;
    float sum = 0.0f;
    if (column < COLUMNS) {
#pragma unroll 4
        for (u32 row = warp; row < ROWS; row += 32) sum += widen(a[row * LEFT_ROW + column]);
    }
    partial[warp][lane] = sum;
    __syncthreads();
    sum = warp_sum(partial[lane][warp]);
    const u32 own = blockIdx.x * 32 + warp;
    if (lane == 0 && own < COLUMNS) {
#if ADD
        narrow(widen(sums[own]) + sum, &sums[own]);
#else
        narrow(sum, &sums[own]);
#endif
    }
}

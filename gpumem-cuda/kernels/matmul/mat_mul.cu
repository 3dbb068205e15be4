// Batched products of two values, over samples and positions, and their gradients: y = a b, da = dy b^T, db = a^T dy; with b transposed y = a b^T,
// da = dy b, db = dy^T a.
//
// The constants are those of matrices.cuh, without a bias. Matrices are consecutive, without gaps. Grid: along x a block for each tile of each
// product.
#include "base.cuh"
#include "real.cuh"
#include "matrices.cuh"

KERNEL(__launch_bounds__(TILE_THREADS, TILE_RESIDENT) mat_mul)
(const real *__restrict__ a, const real *__restrict__ b, real *c) {
    __shared__ Tiles tiles;
    constexpr u32 EACH = DOWN * ACROSS;
    const u64 product = blockIdx.x / EACH;
    a += product * (u64)ROWS * DEPTH;
    b += product * (u64)DEPTH * COLUMNS;
    product_tile(blockIdx.x % EACH, a, b, nullptr, c + product * (u64)ROWS * COLUMNS, tiles);
}

// The tile of a product C = A B of stored matrices that a block computes. It serves products of weights and of values.
//
// ROWS, COLUMNS, DEPTH C[ROWS, COLUMNS] = A[ROWS, DEPTH] B[DEPTH, COLUMNS] + bias[COLUMNS], a sum over DEPTH for each element
// A_TRANSPOSED         A is stored as [DEPTH, ROWS]
// B_TRANSPOSED         B is stored as [COLUMNS, DEPTH]
// A_ROW, B_ROW, C_ROW  given if rows have gaps: elements from one stored row to the next
// BIAS                 1 if there is a bias
// ADD                  1 if the result is added to its tensor (+=), 0 if it overwrites it
// TILE_M, TILE_N       rows and columns of C that a block computes: 32, 64 or 128 each
// TENSOR_CORES         terms that a tensor-core instruction sums, or 0: see mma.cuh
//
// Fewer than 2^31 rows, columns and terms; any number of elements.
//
// No include guard: the tests include it once for each kernel they compile.
#include "tile.cuh"

// Elements from one stored row to the next.
#ifdef A_ROW
constexpr u64 LEFT_ROW = A_ROW;
#else
constexpr u64 LEFT_ROW = A_TRANSPOSED ? ROWS : DEPTH;
#endif
#ifdef B_ROW
constexpr u64 RIGHT_ROW = B_ROW;
#else
constexpr u64 RIGHT_ROW = B_TRANSPOSED ? DEPTH : COLUMNS;
#endif
#ifdef C_ROW
constexpr u64 RESULT_ROW = C_ROW;
#else
constexpr u64 RESULT_ROW = COLUMNS;
#endif

struct Result {
    real *c;
    const real *addend;

    struct Column {
        real *c;
    };
    static __device__ __forceinline__ u32 rows() { return (u32)ROWS; }
    static __device__ __forceinline__ u32 columns() { return (u32)COLUMNS; }
    __device__ __forceinline__ Column column(u32 n) const { return {c + n}; }
    static __device__ __forceinline__ real *at(const Column &column, u32 m) { return column.c + m * RESULT_ROW; }
    __device__ __forceinline__ float bias(u32, u32 n) const {
#if BIAS
        return widen(addend[n]);
#else
        return 0.0f;
#endif
    }
    static __device__ __forceinline__ float through(float sum) { return sum; }
};

// Tiles of C, down and across.
constexpr u32 DOWN = (ROWS + TILE_M - 1) / TILE_M, ACROSS = (COLUMNS + TILE_N - 1) / TILE_N;

// The first row and column of a tile.
struct Corner {
    u32 m, n;
};

// Returns the corner of tile number `block` of C.
static __device__ __forceinline__ Corner corner_of(u32 block) {
    // Eight rows of tiles are processed together, so that their part of B is still in the cache.
    constexpr u32 BAND = 8 * ACROSS;
    const u32 above = block / BAND * 8, inside = block % BAND;
    const u32 height = DOWN - above < 8 ? DOWN - above : 8;
    return {(above + inside % height) * TILE_M, inside / height * TILE_N};
}

// Computes the tile of C with this corner. `right` loads columns of B from there on.
template <class Right>
static __device__ __forceinline__ void product_with(const Corner &corner, const real *__restrict__ a, Right &right,
                                                    const real *__restrict__ bias, real *c, Tiles &tiles) {
    typedef Matrix<!A_TRANSPOSED> Left;
    // A vector must be aligned in memory, and must not extend beyond the end of a row.
    constexpr bool LEFT_WIDE = LEFT_ROW % VECTOR == 0 && (A_TRANSPOSED ? ROWS : DEPTH) % VECTOR == 0;
    typename Carrier<LEFT_WIDE, TILE_M, !A_TRANSPOSED, Left>::Type left({a, LEFT_ROW, (u32)ROWS, (u32)DEPTH}, corner.m);
    Sums sums;
    clear(sums);
    multiply(left, right, 0, (u32)DEPTH, tiles, sums);
    store<COLUMNS % 4 == 0 && RESULT_ROW % 4 == 0>(Result{c, bias}, corner.m, corner.n, tiles, sums);
}

// Computes tile number `block` of C.
static __device__ __forceinline__ void
product_tile(u32 block, const real *__restrict__ a, const real *__restrict__ b, const real *__restrict__ bias, real *c,
             Tiles &tiles) {
    typedef Matrix<B_TRANSPOSED> Right;
    constexpr bool RIGHT_WIDE = RIGHT_ROW % VECTOR == 0 && (B_TRANSPOSED ? DEPTH : COLUMNS) % VECTOR == 0;
    const Corner corner = corner_of(block);
    typename Carrier<RIGHT_WIDE, TILE_N, B_TRANSPOSED, Right>::Type right({b, RIGHT_ROW, (u32)COLUMNS, (u32)DEPTH}, corner.n);
    product_with(corner, a, right, bias, c, tiles);
}

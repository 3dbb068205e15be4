// Muon's update of a matrix by its orthogonalised momentum. Several launches, each of which stores results for the next ones in the scratch memory:
//
// muon_momentum  the momentum, the matrix to be made orthogonal, and the norms of its pieces
// muon_norm      the factor that normalises that matrix
// muon_begin     X: the normalised matrix, transposed if it has more rows than columns
// muon_product   three for each iteration: G = X X^T;  P = c G G + b G;  X = P X + a X
// muon_update    updates the weight
//
// All sums are in f32, in an order that depends on shapes only.
//
// REAL         number format of the weight, and of its gradient without WIDE
// MOMENT_REAL  number format of the momentum
// SCHEDULED, CLIP_NORM, CLIP_VALUE, WIDE  see descent.cuh
//
// Sizes, hyperparameters and offsets in the scratch memory are plain numbers of a launch, after its pointers, so that the file is compiled once.
#include "base.cuh"
#include "real.cuh"
#include "descent.cuh"

typedef MOMENT_REAL Moment;

constexpr u32 THREADS = 256, PIECE = 1024;

// Numbers of all launches except products. Floats are passed as their bits.
struct Given {
    u32 rows, columns;
    // Offsets in the scratch memory, in numbers: X, the matrix before it is made orthogonal, the norms of its pieces, and 1 / its norm.
    u32 x, stored, pieces, norm;
    // Factor of the old momentum, factor of the gradient, and 1 for Nesterov's look-ahead.
    u32 kept, rest, looks_ahead;
    u32 eps;
    // Factors of the learning rate, for the weight decay and for the update.
    u32 decay, rate;

    __device__ __forceinline__ u64 elements() const { return (u64)rows * columns; }
    __device__ __forceinline__ bool is_tall() const { return rows > columns; }
};

static __device__ __forceinline__ bool is_skipped(const u32 *state) { return state[STATE_OVERFLOW] != 0; }

// Grid: blocks of 256 threads for 1024 elements each.
KERNEL(muon_momentum)(const Slope *dw, Moment *m, float *scratch, const u32 *state, IN_PLACE Given given) {
    __shared__ float shared[32];
    if (is_skipped(state)) return;
    const Gradients gradient = gradients_of(state);
    const float kept = from_bits(given.kept), rest = from_bits(given.rest);
    float all[PIECE / THREADS] = {};
#pragma unroll
    for (u32 e = 0; e < PIECE / THREADS; e++) {
        const u64 i = (u64)blockIdx.x * PIECE + e * THREADS + threadIdx.x;
        if (i >= given.elements()) break;
        const float g = gradient(widen(dw[i])), now = kept * widen(m[i]) + rest * g;
        narrow(now, &m[i]);
        all[e] = given.looks_ahead != 0 ? rest * g + kept * now : now;
        scratch[given.stored + i] = all[e];
    }
    const float norm = block_norm(all, shared);
    if (threadIdx.x == 0) scratch[given.pieces + blockIdx.x] = norm;
}

// Grid: one block.
KERNEL(muon_norm)(float *scratch, const u32 *state, IN_PLACE Given given) {
    __shared__ float shared[32];
    if (is_skipped(state)) return;
    const u32 pieces = (u32)((given.elements() + PIECE - 1) / PIECE);
    // hypotf multiplies the larger number by a root of one plus a square of at most one. So a thread's sum neither overflows nor underflows.
    float own[1] = {0.0f};
    for (u32 piece = threadIdx.x; piece < pieces; piece += THREADS) own[0] = hypotf(own[0], scratch[given.pieces + piece]);
    const float norm = block_norm(own, shared);
    if (threadIdx.x == 0) scratch[given.norm] = 1.0f / at_least(from_bits(given.eps), norm);
}

// Returns the place of element i of X in the untransposed matrix, or the other way round.
static __device__ __forceinline__ u64 turned(const Given &given, u64 i, u32 width, u32 height) {
    return given.is_tall() ? i % width * height + i / width : i;
}

KERNEL(muon_begin)(float *scratch, const u32 *state, IN_PLACE Given given) {
    if (is_skipped(state)) return;
    const float scale = scratch[given.norm];
    for (u32 e = 0; e < PIECE / THREADS; e++) {
        const u64 i = (u64)blockIdx.x * PIECE + e * THREADS + threadIdx.x;
        if (i >= given.elements()) break;
        scratch[given.x + i] = scratch[given.stored + turned(given, i, given.rows, given.columns)] * scale;
    }
}

// The offset `x` is that of the last X.
KERNEL(muon_update)(real *w, float *master, const float *scratch, const u32 *state, IN_PLACE Given given) {
    if (is_skipped(state)) return;
    const float lr = rate_of(state);
    const float shrink = 1.0f - lr * from_bits(given.decay), rate = lr * from_bits(given.rate);
    for (u32 e = 0; e < PIECE / THREADS; e++) {
        const u64 i = (u64)blockIdx.x * PIECE + e * THREADS + threadIdx.x;
        if (i >= given.elements()) break;
        const float old = master != nullptr ? master[i] : widen(w[i]);
        const float now = old * shrink - rate * scratch[given.x + turned(given, i, given.columns, given.rows)];
        if (master != nullptr) master[i] = now;
        narrow(now, &w[i]);
    }
}

// to[rows, columns] = p a[rows, depth] b[depth, columns] + q c[rows, columns], where b may be stored as its transpose. Each matrix is an offset in
// the scratch memory.
struct Product {
    u32 rows, columns, depth;
    u32 to, a, b, c;
    u32 is_transposed;
    // Bits of floats.
    u32 p, q;
};

// A block's tile of the product, terms loaded at a time, and a thread's part in both directions. The additional column keeps neighbouring threads
// that write to one column in different banks.
constexpr u32 TILE = 64, DEPTH = 16, EACH = 4, PADDED = TILE + 1;

// Grid: blocks of 256 threads for 64 times 64 elements each, row-major.
KERNEL(muon_product)(float *scratch, const u32 *state, IN_PLACE Product product) {
    __shared__ float as[DEPTH][PADDED], bs[DEPTH][PADDED];
    if (is_skipped(state)) return;
    const u32 wide = (product.columns + TILE - 1) / TILE;
    const u32 top = blockIdx.x / wide * TILE, left = blockIdx.x % wide * TILE;
    const u32 x = threadIdx.x % (TILE / EACH), y = threadIdx.x / (TILE / EACH);
    const float *a = scratch + product.a, *b = scratch + product.b;
    float sums[EACH][EACH] = {};
    for (u32 first = 0; first < product.depth; first += DEPTH) {
        __syncthreads();
#pragma unroll
        for (u32 e = threadIdx.x; e < TILE * DEPTH; e += THREADS) {
            // Neighbouring threads read neighbouring numbers.
            const u32 k = e % DEPTH, i = e / DEPTH, row = top + i;
            const bool is_there = row < product.rows && first + k < product.depth;
            as[k][i] = is_there ? a[(u64)row * product.depth + first + k] : 0.0f;
            if (product.is_transposed != 0) {
                const u32 column = left + i;
                const bool is_there = column < product.columns && first + k < product.depth;
                bs[k][i] = is_there ? b[(u64)column * product.depth + first + k] : 0.0f;
            } else {
                const u32 k = e / TILE, i = e % TILE, column = left + i;
                const bool is_there = column < product.columns && first + k < product.depth;
                bs[k][i] = is_there ? b[(u64)(first + k) * product.columns + column] : 0.0f;
            }
        }
        __syncthreads();
#pragma unroll
        for (u32 k = 0; k < DEPTH; k++) {
            float of_a[EACH], of_b[EACH];
#pragma unroll
            for (u32 e = 0; e < EACH; e++) {
                of_a[e] = as[k][y + e * (TILE / EACH)];
                of_b[e] = bs[k][x + e * (TILE / EACH)];
            }
#pragma unroll
            for (u32 i = 0; i < EACH; i++)
#pragma unroll
                for (u32 j = 0; j < EACH; j++) sums[i][j] += of_a[i] * of_b[j];
        }
    }
    const float p = from_bits(product.p), q = from_bits(product.q);
#pragma unroll
    for (u32 i = 0; i < EACH; i++) {
#pragma unroll
        for (u32 j = 0; j < EACH; j++) {
            const u32 row = top + y + i * (TILE / EACH), column = left + x + j * (TILE / EACH);
            if (row >= product.rows || column >= product.columns) continue;
            const u64 at = (u64)row * product.columns + column;
            // If c is not added, its memory may hold anything.
            scratch[product.to + at] = p * sums[i][j] + (q == 0.0f ? 0.0f : q * scratch[product.c + at]);
        }
    }
}

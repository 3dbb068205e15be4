// Embedding: a row of a table for each token, and the gradient of the table.
//
// TOKENS N, tokens of the whole batch, below 2^32
// TABLE  V, rows of the table
// PADDING the row that gets no gradient; one beyond the table if all do
// WIDTH  D, elements of a row
// ROWS   rows of the table that a block of gather_backward sums, at most 32
// ADD    1 if the gradient is added to its tensor (+=), 0 if it overwrites it
//
// token [N] of u32; weight, dweight [V, D]; y, dy [N, D]
//
// forward:  y[n, :] = weight[token[n], :]; a token beyond the table gives NaN
// backward: dweight[v, :] = sum of dy[n, :] over the places n whose token is v, in their order; 0 if there is none, or v is PADDING
//
// Backward, a block sums ROWS rows of 256 columns in shared memory. It reads all N tokens, 4 N V / ROWS bytes for the whole table and each 256
// columns, and lists the places that are its own; then each thread goes through the list for one column, with 8 loads in flight at a time. Every
// row of dy is read once, and every row of dweight written once; with ADD, only rows that have a token are read and written. For 16,384 tokens in a
// table of 50,257 rows, tokens cost 100 MB of reads from the cache for each 256 columns. A token that occurs n times in the batch costs one block n
// / 8 waits for memory.
#include "base.cuh"
#include "real.cuh"

// Elements in 16 bytes, if rows consist of whole packs of that.
constexpr int WIDE = 16 / sizeof(real), PACK = WIDTH % WIDE == 0 ? WIDE : 1;

struct alignas(sizeof(real) * PACK) Pack {
    real at[PACK];
};

// Grid: a thread for each pack of the output.
KERNEL(gather)(const u32 *token, const real *weight, real *y) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= TOKENS * (WIDTH / PACK)) return;
    const u64 row = token[i / (WIDTH / PACK)], column = i % (WIDTH / PACK);
    Pack pack;
    if (row < TABLE) {
        pack = ((const Pack *)weight)[row * (WIDTH / PACK) + column];
    } else {
#pragma unroll
        for (int k = 0; k < PACK; k++) narrow(__int_as_float(0x7fc00000), &pack.at[k]);
    }
    ((Pack *)y)[i] = pack;
}

#define THREADS 256
// Tokens of a thread in one pass, and the capacity of the list: a pass may add all of its tokens to a list that is half full.
#define EACH 4
#define ROOM (2 * THREADS * EACH)

KERNEL(gather_backward)(const u32 *token, const real *dy, real *dweight) {
    __shared__ float sums[ROWS * THREADS];
    __shared__ u32 places[ROOM];
    __shared__ unsigned char rows[ROOM];
    __shared__ u32 found[THREADS / 32];
    const u32 thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
    const u64 first = (u64)blockIdx.x * ROWS, column = (u64)blockIdx.y * THREADS + thread;
    // A thread uses the sums of its own column only.
    for (u32 row = 0; row < ROWS; row++) sums[row * THREADS + thread] = 0.0f;
    // `touched` has a bit for each row that has a token.
    u32 listed = 0, touched = 0;
    for (u64 pass = 0; pass < TOKENS; pass += THREADS * EACH) {
        // Each thread has neighbouring tokens, so that the list is in their order.
        u32 own[EACH], count = 0;
        const u64 start = pass + thread * EACH;
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            // A row before the first one becomes a large number.
            const u64 row = start + k < TOKENS ? (u64)token[start + k] - first : ROWS;
            own[k] = row < ROWS && first + row < TABLE && first + row != PADDING ? (u32)row : ROWS;
            count += own[k] < ROWS;
        }
        // Counts up to this lane, and in each warp.
        u32 upto = count;
#pragma unroll
        for (u32 step = 1; step < 32; step *= 2) {
            const u32 before = __shfl_sync(FULL_WARP, upto, lane >= step ? lane - step : lane);
            if (lane >= step) upto += before;
        }
        if (lane == 31) found[warp] = upto;
        __syncthreads();
        u32 at = listed + upto - count;
        for (u32 other = 0; other < THREADS / 32; other++) {
            if (other < warp) at += found[other];
            listed += found[other];
        }
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            if (own[k] >= ROWS) continue;
            places[at] = (u32)(start + k);
            rows[at] = (unsigned char)own[k];
            at++;
        }
        __syncthreads();
        if (listed <= ROOM / 2 && pass + THREADS * EACH < TOKENS) continue;
        if (column < WIDTH) {
            u32 i = 0;
            for (; i + 8 <= listed; i += 8) {
                float gradient[8];
#pragma unroll
                for (int k = 0; k < 8; k++) gradient[k] = widen(dy[places[i + k] * (u64)WIDTH + column]);
#pragma unroll
                for (int k = 0; k < 8; k++) {
                    sums[rows[i + k] * THREADS + thread] += gradient[k];
                    touched |= 1u << rows[i + k];
                }
            }
            for (; i < listed; i++) {
                sums[rows[i] * THREADS + thread] += widen(dy[places[i] * (u64)WIDTH + column]);
                touched |= 1u << rows[i];
            }
        }
        // The barrier of the next pass comes before its list is written.
        listed = 0;
    }
    if (column >= WIDTH) return;
    for (u32 row = 0; row < ROWS && first + row < TABLE; row++) {
        if (ADD && (touched >> row & 1) == 0) continue;
        real *out = &dweight[(first + row) * WIDTH + column];
        const float sum = sums[row * THREADS + thread];
        narrow(ADD ? widen(*out) + sum : sum, out);
    }
}
#undef THREADS
#undef EACH
#undef ROOM

// Rotary position embedding: rotates heads by angles that grow with the time step. Shared by `rotary.cu` and `rotary_following.cu`.
//
// COUNT    threads that have work
// UNITS    units of work of a row: PACK pairs of all heads each, and with WHOLE the elements that are not rotated
// STEPS, FEATURES  rows of a sample, and elements of a row
// HEADS, WIDTH, DIMS  heads at the beginning of a row, elements of each, and how many of those are rotated
// TURNS    angle of each pair from one time step to the next, in units of 2^-64 of a full turn
// BEFORE, ACROSS  time steps before a grid, and its columns: the first half of the pairs rotates by rows, the second by columns; ACROSS is 0
//          without a grid
// INTERLEAVED  1 if the elements of a pair are neighbours; if 0, they are DIMS / 2 apart
// BACK     1 to rotate in the opposite direction, for the gradient
// WHOLE    1 if y is not x, so that elements that are not rotated are copied, too
// ADD      1 if the result is added to its tensor (+=), 0 if it overwrites it
// PACK     see pack.cuh; 1 if pairs are neighbours
//
// (a, b) becomes (a cos - b sin, b cos + a sin). Angles are integers that wrap around, which are exact in any time step, unlike a product of
// floats. Sine and cosine are computed once for all heads.
//
// No include guard: the tests include it once for each kernel they compile.

static __constant__ const u64 turns[] = TURNS;

constexpr u32 PAIRS = DIMS / 2, TURNING = PAIRS / PACK, STILL = WIDTH - DIMS;
constexpr u64 APART = INTERLEAVED ? 1 : PAIRS;

static __device__ __forceinline__ void give(float value, Pack &pack, const Pack &before, int k) {
    put(ADD ? element(before, k) + value : value, pack, k);
}

// Returns the place of an element that is not rotated: those of the heads come first.
static __device__ __forceinline__ u64 still(u64 i) {
#if WIDTH > DIMS
    if (i < (u64)HEADS * STILL) return i / STILL * WIDTH + DIMS + i % STILL;
#endif
    return i + (u64)HEADS * DIMS;
}

// Returns the number of angle units by which a pair is rotated at a time step.
static __device__ __forceinline__ u64 number(u64 step, u32 pair) {
#if ACROSS
    if (step < BEFORE) return 0;
    return pair < PAIRS / 2 ? (step - BEFORE) / ACROSS : (step - BEFORE) % ACROSS;
#else
    return step;
#endif
}

// Rotates rows. The rows of a sample begin at time step `before`. Grid: blocks of 256 threads.
static __device__ __forceinline__ void turn(const real *x, real *y, u64 before) {
    const u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (thread >= COUNT) return;
    const u64 row = thread / UNITS;
    const u32 unit = (u32)(thread % UNITS);
    const real *from = x + row * FEATURES;
    real *to = y + row * FEATURES;
#if WHOLE
    if (unit >= TURNING) {
        const u64 at = still(unit - TURNING);
        narrow(ADD ? widen(from[at]) + widen(to[at]) : widen(from[at]), &to[at]);
        return;
    }
#endif
    const u64 step = before + row % STEPS;
    float sine[PACK], cosine[PACK];
#pragma unroll
    for (int k = 0; k < PACK; k++) {
        // From minus half a turn to half a turn.
        const int part = (int)(u32)(turns[unit * PACK + k] * number(step, unit * PACK + k) >> 32);
        sincospif((float)part * (1.0f / 2147483648.0f), &sine[k], &cosine[k]);
        if (BACK) sine[k] = -sine[k];
    }
#pragma unroll 4
    for (u32 head = 0; head < HEADS; head++) {
        const u64 at = (u64)head * WIDTH + (INTERLEAVED ? 2 * unit : unit * PACK);
        const Pack first = load(from, at), second = load(from, at + APART);
        Pack left, right, before_left = first, before_right = second;
        if (ADD) {
            before_left = load(to, at);
            before_right = load(to, at + APART);
        }
#pragma unroll
        for (int k = 0; k < PACK; k++) {
            const float a = element(first, k), b = element(second, k);
            give(a * cosine[k] - b * sine[k], left, before_left, k);
            give(b * cosine[k] + a * sine[k], right, before_right, k);
        }
        store(left, to, at);
        store(right, to, at + APART);
    }
}

// Definitions that the kernels of recurrent layers share.
//
// CELL       0 LSTM, 1 GRU, 2 tanh, 3 relu
// BATCH, STEPS, HIDDEN  B samples of T time steps, H hidden units
// OUTPUTS    P, outputs of a time step: H, or fewer if an LSTM's units are projected
// DIRECTIONS 1, or 2 if another direction runs from the last time step to the first
//
// With G gates (4, 3, 1, 1): gates and p are [B, T, G H], outputs [B, T, DIRECTIONS P], weights [G H, P], biases [G H],
// projections [P, H].
//
// No include guard: the tests include it once for each kernel they compile.

#define LSTM 0
#define GRU 1
#define PLAIN_TANH 2
#define PLAIN_RELU 3

constexpr int GATES = CELL == LSTM ? 4 : CELL == GRU ? 3 : 1;
// Gates of a row, and elements of a row of the output.
constexpr u32 WIDTH = GATES * HIDDEN, FEATURES = DIRECTIONS * OUTPUTS;
constexpr bool PROJECTED = OUTPUTS < HIDDEN;
// The gates whose gradients are equal before and after the product with W.
constexpr u32 SHARED_WIDTH = CELL == GRU ? 2 * HIDDEN : WIDTH;

// Returns the place in a direction's f32 scratch of the backward pass, [T + 1, B, H]. For each time step it has an LSTM's c, later replaced by the
// input of its projection, or a GRU's gradient of `s_n`. The last one has the gradient that a time step passes directly to the one before, not
// through the gates.
static __device__ __forceinline__ u64 room(u32 direction, u32 t, u64 sample) {
    return (((u64)direction * (STEPS + 1) + t) * BATCH + sample) * HIDDEN;
}

// Returns the place in the gradients of a direction's outputs, [T, B, P]. With a projection, they are after the scratch of all directions.
static __device__ __forceinline__ u64 room_of_outputs(u32 direction, u32 t, u64 sample) {
    return (u64)DIRECTIONS * (STEPS + 1) * BATCH * HIDDEN + (((u64)direction * STEPS + t) * BATCH + sample) * OUTPUTS;
}

// Returns the time step in memory that is number `step` in the order of a direction.
static __device__ __forceinline__ u32 on_the_way(u32 direction, u32 step) {
    return direction == 1 ? STEPS - 1 - step : step;
}

// Returns the gradient of one element of s: that of p, except for a GRU's last gate, which is stored elsewhere.
static __device__ __forceinline__ float
slope(const real *dp, const float *rows, u32 direction, u64 sample, u32 t, u32 gate) {
    if (gate < SHARED_WIDTH) return widen(dp[(sample * STEPS + t) * WIDTH + gate]);
    return rows[room(direction, t, sample) + gate - SHARED_WIDTH];
}

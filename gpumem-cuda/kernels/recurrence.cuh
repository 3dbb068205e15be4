// What the kernels of recurrent layers share.
//
// CELL       0 LSTM, 1 GRU, 2 tanh, 3 relu
// BATCH, STEPS, HIDDEN  B samples of T steps, H hidden units
// OUTPUTS    P, what a step puts out: H, or fewer where an LSTM's units are projected
// DIRECTIONS 1, or 2 where another one goes from the last step to the first
//
// With G gates (4, 3, 1, 1): gates and what arrives are [B, T, G H], outputs [B, T, DIRECTIONS P], weights [G H, P], biases [G H],
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
// The gates whose gradients are the same in front of the product with W and behind it.
constexpr u32 SHARED_WIDTH = CELL == GRU ? 2 * HIDDEN : WIDTH;

// The f32 of a direction that the backward pass works with, [T + 1, B, H]: for each step an LSTM's c, in whose place is then what its
// projection multiplies, or the gradient of `s_n` of a GRU; then what a step hands to the one before it, beside the gates' gradients.
static __device__ __forceinline__ u64 room(u32 direction, u32 t, u64 sample) {
    return (((u64)direction * (STEPS + 1) + t) * BATCH + sample) * HIDDEN;
}

// Behind those of all directions, where there is a projection: the gradients of a direction's outputs, [T, B, P].
static __device__ __forceinline__ u64 room_of_outputs(u32 direction, u32 t, u64 sample) {
    return (u64)DIRECTIONS * (STEPS + 1) * BATCH * HIDDEN + (((u64)direction * STEPS + t) * BATCH + sample) * OUTPUTS;
}

// The step in memory that is number `step` on the way of a direction.
static __device__ __forceinline__ u32 on_the_way(u32 direction, u32 step) {
    return direction == 1 ? STEPS - 1 - step : step;
}

// The gradient of s, of one element: that of what arrives, but for a GRU's last gate, which lies elsewhere.
static __device__ __forceinline__ float
slope(const real *dp, const float *rows, u32 direction, u64 sample, u32 t, u32 gate) {
    if (gate < SHARED_WIDTH) return widen(dp[(sample * STEPS + t) * WIDTH + gate]);
    return rows[room(direction, t, sample) + gate - SHARED_WIDTH];
}

// Learning-rate schedules: the rate of a step is computed once by its first loss, in double precision. See gpumem_core::train::Schedule.
//
// SCHEDULE  the schedule: one of the structs below. Its numbers are in the state, in the order of gpumem_core::train::Schedule, so that they can be
//           changed while a program runs; missing ones are 0
//
// No include guard: the tests include it once for each kernel they compile.

// Returns cos(pi x) for x from 0 to 1, by Taylor's series of up to a quarter of a turn. The library's function has a part for large angles that
// uses stack memory.
static __device__ __forceinline__ double cos_of_pi(double x) {
    constexpr double PI = 3.14159265358979323846;
    const bool is_beyond = x > 0.5;
    const double angle = PI * (is_beyond ? 1.0 - x : x), square = -(angle * angle);
    double term = 1.0, sum = 1.0;
#pragma unroll
    for (int n = 1; n < 14; n++) {
        term *= square * (1.0 / ((2 * n - 1) * (2 * n)));
        sum += term;
    }
    return is_beyond ? -sum : sum;
}

// Returns a number on half a period of a cosine between two others. `share` is the part of the way that is done, limited to 1.
static __device__ __forceinline__ double between(double from, double to, double share) {
    return to + (from - to) * (0.5 * (1.0 + cos_of_pi(share < 1.0 ? share : 1.0)));
}

// The four numbers.
struct Numbers {
    double at[4];
};

// Each schedule returns its warm-up steps, and the rate at step s after the warm-up. This one has only a warm-up.

struct ConstantRate {
    static __device__ __forceinline__ double warmup(const Numbers &n) { return n.at[0]; }
    static __device__ __forceinline__ double at(double lr, double, const Numbers &) { return lr; }
};

// Numbers: warmup, total, min
struct CosineRate {
    static __device__ __forceinline__ double warmup(const Numbers &n) { return n.at[0]; }
    static __device__ __forceinline__ double at(double lr, double s, const Numbers &n) {
        return between(lr, n.at[2], s / (n.at[1] - n.at[0]));
    }
};

// Numbers: warmup, total, min
struct LinearRate {
    static __device__ __forceinline__ double warmup(const Numbers &n) { return n.at[0]; }
    static __device__ __forceinline__ double at(double lr, double s, const Numbers &n) {
        const double share = s / (n.at[1] - n.at[0]);
        return lr + (n.at[2] - lr) * (share < 1.0 ? share : 1.0);
    }
};

// Numbers: warmup, every, factor
struct StepRate {
    static __device__ __forceinline__ double warmup(const Numbers &n) { return n.at[0]; }
    static __device__ __forceinline__ double at(double lr, double s, const Numbers &n) {
        return lr * pow(n.at[2], (double)(u64)(s / n.at[1]));
    }
};

// Numbers: total, pct_start, div_factor, final_div_factor
struct OneCycleRate {
    static __device__ __forceinline__ double warmup(const Numbers &) { return 0.0; }
    static __device__ __forceinline__ double at(double lr, double s, const Numbers &n) {
        const double total = n.at[0], highest = n.at[1] * total - 1.0, first = lr / n.at[2];
        if (s <= highest) return between(first, lr, s / highest);
        return between(lr, first / n.at[3], (s - highest) / (total - 1.0 - highest));
    }
};

// Returns the rate of the next step, according to the state.
static __device__ __forceinline__ float scheduled(const u32 *state) {
    Numbers numbers;
#pragma unroll
    for (u32 which = 0; which < 4; which++) numbers.at[which] = from_two_words(&state[STATE_SCHEDULE + 2 * which]);
    const double lr = from_bits(state[STATE_LEARNING_RATE]), s = (double)steps_before(state), warmup = SCHEDULE::warmup(numbers);
    return (float)(s < warmup ? lr * ((s + 1.0) / (warmup + 1.0)) : SCHEDULE::at(lr, s - warmup, numbers));
}

// The learning rate of a step, which its first loss computes once, in double precision: see gpumem_core::train::Schedule.
//
// SCHEDULE         which: one of the structs below
// SCHEDULE_VALUES  its numbers, in the order of gpumem_core::train::Schedule; those that it has not are 0
//
// No include guard: the tests include it once for each kernel they compile.

constexpr double schedule[4] = SCHEDULE_VALUES;

// cos(pi x) for x from 0 to 1: Taylor's series, of no more than a quarter of a turn. The library's has a part for large angles that takes
// memory of the stack.
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

// From one number to another one on half a period of a cosine, by a share of the way, at most all of it.
static __device__ __forceinline__ double between(double from, double to, double share) {
    return to + (from - to) * (0.5 * (1.0 + cos_of_pi(share < 1.0 ? share : 1.0)));
}

// What comes behind a warm-up, in step s from its end.

struct ConstantRate {
    static constexpr double warmup = schedule[0];
    static __device__ __forceinline__ double at(double lr, double) { return lr; }
};

struct CosineRate {
    static constexpr double warmup = schedule[0], total = schedule[1], least = schedule[2];
    static __device__ __forceinline__ double at(double lr, double s) { return between(lr, least, s / (total - warmup)); }
};

struct LinearRate {
    static constexpr double warmup = schedule[0], total = schedule[1], least = schedule[2];
    static __device__ __forceinline__ double at(double lr, double s) {
        const double share = s / (total - warmup);
        return lr + (least - lr) * (share < 1.0 ? share : 1.0);
    }
};

struct StepRate {
    static constexpr double warmup = schedule[0], every = schedule[1], factor = schedule[2];
    static __device__ __forceinline__ double at(double lr, double s) { return lr * pow(factor, (double)(u64)(s / every)); }
};

struct OneCycleRate {
    static constexpr double warmup = 0.0, total = schedule[0], highest = schedule[1] * total - 1.0;
    static __device__ __forceinline__ double at(double lr, double s) {
        const double first = lr / schedule[2];
        if (s <= highest) return between(first, lr, s / highest);
        return between(lr, first / schedule[3], (s - highest) / (total - 1.0 - highest));
    }
};

// The rate where so many steps were made before.
static __device__ __forceinline__ float scheduled(float lr, u64 step) {
    const double s = (double)step, warmup = SCHEDULE::warmup;
    return (float)(s < warmup ? lr * ((s + 1.0) / (warmup + 1.0)) : SCHEDULE::at(lr, s - warmup));
}

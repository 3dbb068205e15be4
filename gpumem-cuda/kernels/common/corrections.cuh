// Numbers of an optimizer's rule that are the same for all elements and change with each step: the two numbers of STATE_CORRECTIONS, which a step
// computes once, in double precision.
//
// CORRECTIONS  the rule: one of the structs below
// VALUES       its hyperparameters, in the order of gpumem_core::train::optim; missing ones are 0
//
// No include guard: the tests include it once for each kernel they compile.

constexpr double rule[8] = VALUES;

// Each struct returns number `which` of the two, for step t, counted from 1.

// t^beta2_decay, and 1 / sqrt(t).
struct Adafactor {
    static __device__ __forceinline__ double at(u32 which, double t) { return which == 0 ? pow(t, rule[0]) : 1.0 / sqrt(t); }
};

// The divisor of the learning rate.
struct Adagrad {
    static __device__ __forceinline__ double at(u32 which, double t) { return which == 0 ? 1.0 + (t - 1.0) * rule[0] : 0.0; }
};

// 1 - mu(1) mu(2) .. mu(t), and 1 - beta2^t. mu(t) = beta1 (1 - 0.5 0.96^(t momentum_decay))
struct NAdam {
    static __device__ __forceinline__ double at(u32 which, double t) {
        return 1.0 - (which == 0 ? product(t) : pow(rule[1], t));
    }

    // Computed from the step alone, so that training can resume as with any other rule. Numbers below NOTHING change no sum with 1, and no mu: with
    // usual hyperparameters that holds after some 60 steps, with any after 3000.
    static __device__ double product(double t) {
        constexpr double NOTHING = 1e-18;
        const double ratio = pow(0.96, rule[4]);
        double product = 1.0, left = 1.0;
        for (double at = 0.0; at < t && product > NOTHING; at += 1.0) {
            if (left <= NOTHING) return product * pow(rule[0], t - at);
            left *= ratio;
            product *= rule[0] * (1.0 - 0.5 * left);
        }
        return product;
    }
};

// 1 - beta1^t, and r(t) sqrt(1 - beta2^t), or 0 if the rule does not divide by the root in this step.
struct RAdam {
    static __device__ __forceinline__ double at(u32 which, double t) {
        const double power = pow(which == 0 ? rule[0] : rule[1], t), correction = 1.0 - power;
        if (which == 0) return correction;
        const double most = 2.0 / (1.0 - rule[1]) - 1.0, length = most - 2.0 * t * power / correction;
        if (length <= 5.0) return 0.0;
        const double share = (length - 4.0) * (length - 2.0) * most / ((most - 4.0) * (most - 2.0) * length);
        return sqrt(share) * sqrt(correction);
    }
};

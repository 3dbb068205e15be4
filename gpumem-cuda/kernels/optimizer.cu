// Updates of one parameter.
//
// COUNT        elements
// OPTIMIZER    0 Sgd, 1 Adam, 2 AdamW
// MOMENTUM, DAMPENING, WEIGHT_DECAY, NESTEROV, BETA1, BETA2, EPS  hyperparameters; those of other optimizers are 0
// HAS_MOMENTUM whether Sgd keeps a velocity
//
// The learning rate and the step come from the state, so that a captured step can be replayed with others. Gradients carry
// the loss scale.
//
// sgd:   g = dw + weight_decay w;  v = momentum v + (1 - dampening) g, in the first step g;  w -= lr (nesterov ? g + momentum v : v)
// adam:  g = dw + weight_decay w;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
//        w -= lr / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + eps)
// adamw: adam without weight_decay in g; before it w *= 1 - lr weight_decay
#include "base.cuh"
#include "real.cuh"

KERNEL(update)(real *w, const real *dw, real *first, real *second, const u32 *state) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT) return;
    const float lr = from_bits(state[STATE_LEARNING_RATE]);
    const bool is_first = state[STATE_STEP] == 0 && state[STATE_STEP + 1] == 0;
    float weight = widen(w[i]);
    float gradient = widen(dw[i]) / from_bits(state[STATE_LOSS_SCALE]);
#if OPTIMIZER == 0
    gradient += (float)(WEIGHT_DECAY)*weight;
#if HAS_MOMENTUM
    const float before = widen(first[i]);
    const float velocity = is_first ? gradient : (float)(MOMENTUM)*before + (float)(1.0 - (DAMPENING)) * gradient;
    narrow(velocity, &first[i]);
    gradient = NESTEROV ? gradient + (float)(MOMENTUM)*velocity : velocity;
#endif
    weight -= lr * gradient;
#else
#if OPTIMIZER == 1
    gradient += (float)(WEIGHT_DECAY)*weight;
#else
    weight *= 1.0f - lr * (float)(WEIGHT_DECAY);
#endif
    // Powers of numbers near 1: in f32 the difference to 1 would lose half of its digits.
    const double t = (double)((u64)state[STATE_STEP + 1] << 32 | state[STATE_STEP]) + 1.0;
    const float correction1 = (float)(1.0 - pow(BETA1, t)), correction2 = (float)(1.0 - pow(BETA2, t));
    const float m = (float)(BETA1)*widen(first[i]) + (float)(1.0 - (BETA1)) * gradient;
    const float v = (float)(BETA2)*widen(second[i]) + (float)(1.0 - (BETA2)) * gradient * gradient;
    narrow(m, &first[i]);
    narrow(v, &second[i]);
    weight -= lr / correction1 * m / (sqrtf(v / correction2) + (float)(EPS));
#endif
    narrow(weight, &w[i]);
}

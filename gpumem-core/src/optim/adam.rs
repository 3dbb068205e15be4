/// Adam with bias correction; `weight_decay` is added to the gradient (L2 regularisation).
///
/// ```text
/// g = gradient + weight_decay * w
/// m = beta1 * m + (1 - beta1) * g
/// v = beta2 * v + (1 - beta2) * g^2
/// w = w - lr / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + eps)
/// ```
///
/// Keeps two tensors of the parameter's size, `m` and `v`.
///
/// PyTorch: `torch.optim.Adam(params, lr, betas, eps, weight_decay)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// Learning rate.
    pub lr: f64,
    /// Decay rates of the two running means.
    pub betas: (f64, f64),
    /// Added to the denominator.
    pub eps: f64,
    /// L2 regularisation.
    pub weight_decay: f64,
}

impl Adam {
    /// PyTorch's defaults.
    pub const DEFAULT: Adam = Adam { lr: 1e-3, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.0 };

    /// The names of the hyperparameters.
    pub const FIELDS: [&'static str; 4] = ["lr", "betas", "eps", "weight_decay"];
}

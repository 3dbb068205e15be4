//! Factors of channels that are elsewhere, and normalisations of single numbers.
use gpumem::network;

network! {
    pub struct ConvNext;
    const INFER: Infer = Infer { batch: 1 };
    fn forward(image: Image<8, 6, 6>) -> Map<8, 6, 6> {
        [
            Add([], [
                Conv2d(8, 7, padding = 3, groups = 8), Permute(0, 2, 3, 1), LayerNorm(8), Linear(8, 32), Gelu, Linear(32, 8),
                Scale(init = 1e-6), Permute(0, 3, 1, 2),
            ]),
            Scale(8),
        ]
    }
}

network! {
    pub struct Alone;
    const INFER: Infer = Infer { batch: 1 };
    fn forward(x: Features<4>) -> Features<1> {
        [GroupNorm(4), Linear(1), LayerNorm, repeat(0, Relu)]
    }
}

fn main() {}

//! Layers of one's own with mistakes, in formulas and where they stand.
use gpumem::prelude::*;

operation! {
    fn Swish(x, beta: f64 = 1.0) { x * sigmod(beta * x) }
}

network! {
    pub struct Formulas;

    operation! {
        fn Clip(x, limit: f64) { clamp(x, -limit, limit) }
        fn Cut(x: [rows.., features], groups: usize) -> [rows.., features / groups] {
            requires: [features % groups == 0],
        }
    }

    fn forward(x: Features<10>) -> Logits<10> {
        [Clip, Cut(3), Linear(10)]
    }
}

fn main() {}

//! The memory of the macros: an editor's macro server expands a network again and again, in one process.
//!
//! This is the only test of its program, so that no other one allocates meanwhile. In a test of `gpumem-language` itself the standard library is
//! a shared one, with an allocator of its own.

use proc_macro2::TokenStream;

/// A network of 16 residual blocks that is too large for its card, with an operation that has an argument.
const REFUSED: &str = "
    pub struct Refused;
    const TRAIN: Train = Train {
        batch: 512, optimizer: AdamW { lr: 0.1 }, loss: CrossEntropy, cards: [RTX_3060], checkpoint: Norms
    };
    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [stage(3, 64), stage(4, 128), stage(6, 256), stage(3, 512), GlobalAvgPool, Scaled(by = 3.0), Linear(1000)]
    }
    fn stage(depth: usize, width: usize) -> Block {
        [Conv2d(width, 3, stride = 2, padding = 1), repeat(depth, block(width))]
    }
    fn block(width: usize) -> Block {
        [
            Add([], [
                Conv2d(width / 4, 1), BatchNorm2d, Relu,
                Conv2d(width / 4, 3, padding = 1), BatchNorm2d, Relu,
                Conv2d(width, 1), BatchNorm2d,
            ]),
        ]
    }
    operation! {
        fn Scaled(x, by: f64 = 2.0) { x * by }
    }
";

/// The first expansion fills tables that all later ones use. Of what a later one allocates, nothing is left.
#[test]
fn expanding_again_keeps_nothing() {
    let expand = || {
        let tokens: TokenStream = REFUSED.parse().unwrap();
        let text = gpumem_language::network(tokens).to_string();
        assert!(text.contains("check_with") && !text.contains("compile_error"), "{text}");
        // The texts that a thread has parsed are kept for their spans. In a compiler, the compiler has them.
        proc_macro2::extra::invalidate_current_thread_spans();
        gpumem_fuzz::allocated()
    };
    let live: Vec<isize> = std::iter::repeat_with(expand).take(5).collect();
    // The list of these numbers is allocated before the first expansion ends.
    assert!(live[1..].iter().all(|bytes| *bytes <= live[1]), "live bytes after each expansion: {live:?}");
}

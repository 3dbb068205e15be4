//! `chunks` of `CrossEntropy`, as it is written in `TRAIN`: losses and parameters are those of whole logits.

use gpumem::cards::RTX_3060;
use gpumem::prelude::*;
use gpumem::{Cpu, Line};

/// Returns the bytes of an RTX 3060 but for an arena of this many.
const fn all_but(arena: u64) -> u64 {
    RTX_3060.usable() - RTX_3060.reserve() - arena
}

macro_rules! words {
    ($name:ident, $chunks:tt, { $($settings:tt)* }) => {
        network! {
            pub struct $name;

            const TRAIN: Train = Train {
                loss: CrossEntropy { chunks: $chunks, ignore_index: -100, label_smoothing: 0.1 } + 0.3 * Mean(from = middle),
                seed: 3, optimizer: Sgd { lr: 0.1, momentum: 0.9 }, $($settings)*
            };

            fn forward(tokens: Tokens<6>) -> TokenLogits<6, 300> {
                let words = Embedding(300, 8);
                [words, Linear(8), Tanh, Dropout(0.1), tap(middle), Tied(words)]
            }
        }
    };
}

words!(Whole, 1, { batch: 12 });
words!(Chunked, 4, { batch: 12 });
words!(InParts, 4, { batch: 12, micro_batches: 4, clip: GlobalNorm(100.0) });
words!(Lean, 4, { batch: 12, checkpoint: Budget(0.97), offload: All });
words!(Four, 4, { batch: 12, cards: [RTX_3060] });
words!(Fitting, Auto, { batch: 12, cards: [RTX_3060], headroom: all_but(<Four as Network>::BUDGET.get(Line::Arena)) });
words!(Roomy, Auto, { batch: 12, cards: [RTX_3060] });
words!(Narrow, 4, { batch: 12, precision: Mixed(F16) });

/// Losses of three steps and parameters after each, a validation loss and an output.
macro_rules! steps {
    ($name:ident) => {{
        let mut net = $name::on(&Cpu::new().emulate()).unwrap();
        let mut all = Vec::new();
        for step in 0..3 {
            let tokens = Tensor::from_fn(|index| ((index * 5 + step) % 300) as u32);
            let label = Tensor::from_fn(|index| if index % 7 == 1 { -100i32 as u32 } else { (index * 3 % 300) as u32 });
            all.push(vec![net.train_step(&tokens, &label).unwrap()]);
            all.push(vec![net.eval_loss(&tokens, &label).unwrap()]);
            let names: Vec<String> =
                net.names().filter(|name| !name.ends_with(".gradient")).map(String::from).collect();
            all.extend(names.iter().map(|name| net.get(name).unwrap()));
            all.push(net.forward(&tokens).unwrap().into_vec());
        }
        all
    }};
}

#[test]
fn training_is_that_of_whole_logits() {
    let whole = steps!(Whole);
    for (name, found) in
        [("chunks", steps!(Chunked)), ("parts", steps!(InParts)), ("lean", steps!(Lean)), ("narrow", steps!(Narrow))]
    {
        assert_eq!(found.len(), whole.len(), "{name}");
        for (found, whole) in found.iter().zip(&whole) {
            let largest = whole.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            let error = found.iter().zip(whole).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(found.len() == whole.len() && error <= 1e-5 * largest.max(1e-3), "{name}: {error} of {largest}");
        }
    }
}

/// The arena is smaller by most of the logits.
#[test]
fn logits_are_not_there_at_once() {
    let arena = |budget: &gpumem::Budget| budget[Line::Arena];
    let logits = 12 * 6 * 300 * 4;
    assert!(arena(&Whole::BUDGET) - arena(&Chunked::BUDGET) > logits / 2);
}

/// Const evaluation takes the fewest chunks that fit the card, as it does with recompute levels, and says so.
#[test]
fn as_few_chunks_as_fit() {
    assert_eq!(Fitting::BUDGET, Four::BUDGET);
    assert_eq!(steps!(Fitting), steps!(Four), "the program is that of four chunks, to the bit");
    let text = gpumem::report::table::<Fitting>();
    assert!(text.contains("\nlogits: in 4 chunks; level 2 of "), "{text}");
    assert!(gpumem::report::json::<Fitting>().contains("\"chunks\":4,"));
    // With enough memory, logits are whole.
    assert_eq!(steps!(Roomy), steps!(Whole));
    assert!(!gpumem::report::table::<Roomy>().contains("logits"));
}

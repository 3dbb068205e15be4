//! Recomputation in networks: it changes the memory of a step and none of its numbers.
#![deny(warnings)]

use gpumem::cards::GTX_1050_TI;
use gpumem::prelude::*;
use gpumem::report::json;
use gpumem::{Cpu, Line};

/// Residual blocks of convolutions, then one of attention.
macro_rules! residual {
    ($name:ident, { $($settings:tt)* }, $(#[$mark:meta])*) => {
        network! {
            pub struct $name;

            const TRAIN: Train = Train { optimizer: Adam { lr: 1e-3 }, seed: 11, $($settings)* };

            fn forward(image: Image<3, 12, 12>) -> Logits<5> {
                [
                    Conv2d(16, 3, padding = 1, bias = false), BatchNorm2d, Relu,
                    repeat(3, [block()]),
                    MaxPool2d(2), Dropout(0.1), AvgPool2d(2), Flatten, Linear(32), Gelu, LayerNorm, Linear(5),
                ]
            }

            $(#[$mark])*
            fn block() -> Block {
                [
                    Add(
                        [
                            Conv2d(16, 3, padding = 1, bias = false), BatchNorm2d, Relu,
                            Conv2d(16, 3, padding = 1, bias = false), BatchNorm2d,
                        ],
                        [],
                    ),
                    Relu,
                ]
            }
        }
    };
}

residual!(Plain, { batch: 8 },);
residual!(Keeping, { batch: 8, checkpoint: None },);
residual!(ByHand, { batch: 8 }, #[checkpoint]);
residual!(Cheap, { batch: 8, checkpoint: Cheap },);
residual!(Half, { batch: 8, checkpoint: Budget(0.6) },);
residual!(Whole, { batch: 8, checkpoint: Budget(1.0) },);
residual!(Fits, { batch: 8, checkpoint: Auto, cards: [RTX_3060] },);
residual!(Tight, { batch: 8, checkpoint: Auto, cards: [GTX_1050_TI], headroom: leave(1.0) },);
residual!(Tighter, { batch: 8, checkpoint: Auto, cards: [GTX_1050_TI], headroom: leave(0.8) },);
residual!(ByHandAndAuto, { batch: 8, checkpoint: Auto, cards: [GTX_1050_TI], headroom: leave(0.8) }, #[checkpoint]);
residual!(PlainLargest, { batch: Largest, cards: [GTX_1050_TI], headroom: leave(1.0) },);
residual!(AutoLargest, { batch: Largest, checkpoint: Auto, cards: [GTX_1050_TI], headroom: leave(1.0) },);
residual!(FoundLargest, { batch: Largest, checkpoint: Auto, cards: [GTX_1050_TI], headroom: mib(3839.0) },);

residual!(HalfLargest, { batch: Largest, checkpoint: Budget(0.9), cards: [GTX_1050_TI], headroom: leave(1.0) },);

/// Bytes of the card that leave an arena of this many MiB.
const fn leave(room: f64) -> u64 {
    GTX_1050_TI.usable() - GTX_1050_TI.reserve() - mib(room)
}

/// Losses of three steps, and everything that a network keeps after them, to the bit.
macro_rules! trained {
    ($name:ident) => {{
        let mut net = $name::on(&Cpu::new()).unwrap();
        let mut losses = Vec::new();
        for step in 0..3 {
            let image = Tensor::from_fn(|index| ((index * 7919 + step * 31) % 1009) as f32 / 504.5 - 1.0);
            let label = Tensor::from_fn(|index| ((index + step) % 5) as u32);
            losses.push(net.train_step(&image, &label).unwrap().to_bits());
        }
        let names: Vec<String> = net.names().map(String::from).collect();
        let kept = names.iter().flat_map(|name| net.get(name).unwrap()).map(f32::to_bits);
        (losses, kept.collect::<Vec<u32>>())
    }};
}

/// Whatever is computed again, losses, parameters, moments and running statistics are the same.
#[test]
fn no_bit_changes() {
    let expected = trained!(Plain);
    assert!(expected.0.iter().all(|&loss| f32::from_bits(loss).is_finite()));
    for (name, found) in [
        ("all kept", trained!(Keeping)),
        ("by hand", trained!(ByHand)),
        ("cheap", trained!(Cheap)),
        ("half", trained!(Half)),
        ("tight", trained!(Tight)),
        ("tighter", trained!(Tighter)),
        ("by hand and found", trained!(ByHandAndAuto)),
    ] {
        assert!(found == expected, "{name}");
    }
}

fn activations<N: Network>() -> u64 {
    N::BUDGET[Line::Activations]
}

#[test]
fn each_way_saves_memory() {
    let plain = activations::<Plain>();
    assert!(activations::<ByHand>() < plain);
    // Of what the step takes that keeps all.
    let (keeping, cheap) = (activations::<Keeping>(), activations::<Cheap>());
    assert!(cheap <= plain && cheap < keeping * 9 / 10, "{cheap} of {plain} of {keeping}");
    assert!(plain < keeping && activations::<Half>() * 10 <= keeping * 6 && activations::<Whole>() == keeping);
    // What lasts is what it was.
    for line in Line::ALL.into_iter().filter(|line| !matches!(line, Line::Activations | Line::Arena | Line::Total)) {
        assert_eq!(Half::BUDGET[line], Plain::BUDGET[line], "{}", line.name());
    }
}

/// What a layer keeps is what is there from the forward pass on: inside the blocks nothing but the statistics of normalisations.
#[test]
fn the_layer_table_has_what_is_kept() {
    let kept = |layers: &[gpumem::LayerInfo]| -> Vec<u64> {
        let inside = layers.iter().filter(|layer| layer.path.starts_with("block"));
        inside.map(|layer| layer.kept_bytes(8, gpumem::Precision::F32)).collect()
    };
    let map = 8 * 16 * 12 * 12 * 4;
    let maps = |layers| kept(layers).iter().filter(|&&bytes| bytes >= map).count();
    // Of each block both convolutions' outputs and what leaves it; of the last one the pooling makes that small. What is between the
    // convolutions is made again from the first one's output.
    assert_eq!(maps(Plain::LAYERS), 3 * 3 - 1);
    // What leaves a block, which the next one is computed from.
    assert_eq!(maps(ByHand::LAYERS), 2, "{:?}", kept(ByHand::LAYERS));
}

/// Nothing where the step fits, and no more than it takes where it does not.
#[test]
fn auto_takes_the_first_that_fits() {
    assert_eq!(Fits::BUDGET[Line::Activations], activations::<Keeping>());
    assert_eq!(Fits::PROGRAM.level.number, 0);
    let arena = |budget: gpumem::__private::memory::budget::Budget| budget[Line::Arena];
    assert!(arena(Plain::BUDGET) > mib(1.0));
    assert!(arena(Tight::BUDGET) <= mib(1.0) && arena(Tighter::BUDGET) <= mib(0.8));
    let [tight, tighter] = [Tight::PROGRAM.level, Tighter::PROGRAM.level];
    assert!(0 < tight.number && tight.number < tighter.number && tighter.number < tighter.count);
    assert_eq!(tight.activations_without, activations::<Keeping>());
}

/// Among all batches with which the step fits with some recomputation, the largest.
#[test]
fn the_largest_batch_is_that_of_the_leanest_step() {
    let (plain, auto) = (PlainLargest::TRAIN.batch, AutoLargest::TRAIN.batch);
    assert!(auto > plain, "{auto} {plain}");
    assert!(AutoLargest::BUDGET[Line::Arena] <= mib(1.0));
    // A share is no more than the card has: of the same batch, what it leaves is too much.
    assert_eq!(HalfLargest::TRAIN.batch, auto);
    assert!(HalfLargest::BUDGET[Line::Arena] <= mib(1.0));
}

/// The macro finds the batch if all numbers are literals; const evaluation then chooses between two plans.
#[test]
fn a_batch_that_the_macro_found_is_as_large() {
    assert_eq!(mib(3839.0), leave(1.0));
    let [found, searched] = [FoundLargest::TRAIN.batch, AutoLargest::TRAIN.batch];
    // The levels are those of another batch.
    assert!(found > PlainLargest::TRAIN.batch && found.abs_diff(searched) <= searched / 10, "{found} {searched}");
    assert!(FoundLargest::BUDGET[Line::Arena] <= mib(1.0));
    assert!(0 < FoundLargest::PROGRAM.level.number);
}

#[test]
fn reports_say_what_is_computed_again() {
    let text = json::<Tight>();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let found = &json["train"]["checkpoint"];
    assert_eq!(found["level"], Tight::PROGRAM.level.number);
    assert_eq!(found["levels"], Tight::PROGRAM.level.count);
    assert_eq!(found["activations_without"], activations::<Keeping>());
    // What is kept is that of the level, too.
    let kept = |json: &serde_json::Value| -> u64 {
        json["layers"].as_array().unwrap().iter().map(|layer| layer["kept_bytes"].as_u64().unwrap()).sum()
    };
    assert!(kept(&json) < kept(&serde_json::from_str(&gpumem::report::json::<Plain>()).unwrap()));
    for key in ["recomputed", "extra_flops", "extra_bytes_moved"] {
        assert!(found[key].as_u64().unwrap() > 0, "{key}: {found}");
    }
    let table = gpumem::report::table::<Tight>();
    let last = table.lines().last().unwrap();
    let level = format!("level {} of {}", Tight::PROGRAM.level.number, Tight::PROGRAM.level.count - 1);
    assert!(last.starts_with("computed again: ") && last.contains(&level), "{last}");
    // Without a word about it, a normalisation and a rectifier of each block, those before them, and the last normalisation.
    let table = gpumem::report::table::<Plain>();
    assert!(table.contains("computed again: 9 operations, 290.3 KiB moved\n"), "{table}");
    let plain: serde_json::Value = serde_json::from_str(&gpumem::report::json::<Plain>()).unwrap();
    assert_eq!(plain["train"]["checkpoint"]["recomputed"], 9);
    assert!(!gpumem::report::table::<Keeping>().contains("computed again"));
}

#[test]
fn settings_are_constants() {
    assert_eq!(Half::TRAIN.checkpoint, gpumem::Checkpoint::Budget(0.6));
    assert_eq!(Plain::TRAIN.checkpoint, gpumem::Checkpoint::Norms);
    assert_eq!(Keeping::TRAIN.checkpoint, gpumem::Checkpoint::None);
    assert_eq!(Tight::TRAIN.checkpoint, gpumem::Checkpoint::Auto);
}

//! `offload`: a step that finds what the optimizer keeps, or what the forward pass made, in host memory is the same step.
#![deny(warnings)]

use gpumem::__private::memory::budget::{BUS_BYTES, budget_at};
use gpumem::cards::GTX_1050_TI;
use gpumem::prelude::*;
use gpumem::report::{json, table};
use gpumem::{Cpu, Line, Offload};

/// Maps and vectors, dropout, a tap with a loss of its own, a weight that is used twice, a frozen layer.
macro_rules! joined {
    ($name:ident, { $($settings:tt)* }) => {
        network! {
            pub struct $name;

            const TRAIN: Train = Train {
                batch: 6, loss: CrossEntropy + 0.3 * Mse(from = middle, target = codes), seed: 11, $($settings)*
            };

            fn forward(image: Image<3, 9, 7>, extra: Features<6>) -> Logits<5> {
                let shared = Linear(32, 32);
                [
                    Add(
                        [Conv2d(8, 3), BatchNorm2d, Relu, Dropout2d(0.2), MaxPool2d(2), Flatten, Linear(32)],
                        [from(extra), Linear(32)],
                    ),
                    Gelu, shared, tap(middle), Dropout(0.3), LayerNorm, shared, Tanh, Linear(5),
                ]
            }
        }
    };
}

/// The same network with its states in the arena and in host memory.
macro_rules! both {
    ($here:ident, $there:ident, { $($settings:tt)* }) => {
        joined!($here, { $($settings)* });
        joined!($there, { $($settings)* offload: OptimizerState, });
    };
}

both!(Here, There, { optimizer: Adam { lr: 1e-3 }, });
both!(Mixed16, MixedThere, { optimizer: AdamW { lr: 1e-3 }, precision: Mixed(F16), });
both!(Narrow, NarrowThere, { optimizer: Lion { lr: 1e-3 }, precision: Bf16, });
both!(Masters, MastersThere, { optimizer: Sgd { lr: 1e-3 }, precision: Mixed(Bf16), });
both!(Split, SplitThere, {
    optimizer: AdamW { lr: 1e-3, groups: [Group { paths: "*.bias", weight_decay: 0.0 }] }, micro_batches: 3,
    clip: GlobalNorm(0.05), schedule: Cosine { warmup: 2, total: 9 },
});
both!(Leaner, LeanerThere, { optimizer: Adam { lr: 1e-3 }, checkpoint: Budget(0.9), update: Separate, });

/// The bits of four losses, a validation loss, outputs, and of everything that a network keeps after them, the last two steps by another
/// network that was given what the first one had.
macro_rules! trained {
    ($name:ident, $device:expr) => {{
        let image = |step: usize| Tensor::from_fn(|index| ((index * 7919 + step * 31) % 1009) as f32 / 504.5 - 1.0);
        let extra = |step: usize| Tensor::from_fn(|index| ((index * 613 + step * 17) % 101) as f32 / 50.5 - 1.0);
        let codes = Tensor::from_fn(|index| ((index * 29) % 53) as f32 / 53.0);
        let mut losses = Vec::new();
        let mut train = |net: &mut gpumem::Net<$name, Cpu>, step: usize| {
            let label = Tensor::from_fn(|index| ((index + step) % 5) as u32);
            losses.push(net.train_step((&image(step), &extra(step)), (&label, &codes)).unwrap());
        };
        let mut first = $name::on(&$device).unwrap();
        (0..2).for_each(|step| train(&mut first, step));
        let mut net = $name::on(&$device).unwrap();
        let names: Vec<String> = net.names().map(String::from).collect();
        for name in &names {
            net.set(name, &first.get(name).unwrap()).unwrap();
        }
        net.set_steps(first.steps().unwrap()).unwrap();
        drop(first);
        (2..4).for_each(|step| train(&mut net, step));
        let label = Tensor::from_fn(|index| (index % 5) as u32);
        losses.push(net.eval_loss((&image(9), &extra(9)), (&label, &codes)).unwrap());
        let output = net.forward((&image(9), &extra(9))).unwrap().into_vec();
        let kept: Vec<Vec<f32>> = names.iter().map(|name| net.get(name).unwrap()).collect();
        let all: Vec<Vec<f32>> = [vec![losses, output], kept].concat();
        let all: Vec<Vec<u32>> =
            all.iter().map(|numbers| numbers.iter().map(|number| number.to_bits()).collect()).collect();
        (names, all)
    }};
}

/// Every number, and nothing else that is kept.
macro_rules! compared {
    ($($here:ident $there:ident on $device:expr),* $(,)?) => {
        $({
            let (here, there) = (trained!($here, $device), trained!($there, $device));
            assert_eq!(here.0, there.0, "{}", $there::NAME);
            for (index, (here, there)) in here.1.iter().zip(&there.1).enumerate() {
                assert!(here == there, "{}: {index} of {:?}", $there::NAME, $here::NAME);
            }
            assert!(here.1.iter().flatten().all(|&number| f32::from_bits(number).is_finite()));
        })*
    };
}

#[test]
fn the_step_is_the_same_to_the_bit() {
    compared!(
        Here There on Cpu::new(),
        Mixed16 MixedThere on Cpu::new().emulate(),
        Narrow NarrowThere on Cpu::new().emulate(),
        Masters MastersThere on Cpu::new().emulate(),
        Split SplitThere on Cpu::new(),
        Leaner LeanerThere on Cpu::new(),
    );
}

/// Beside a layer that is trained through low-rank additions, and with what is computed again where that is needed.
mod large {
    use super::*;

    macro_rules! wide {
        ($name:ident, { $($settings:tt)* }) => {
            network! {
                pub struct $name;

                const TRAIN: Train = Train { batch: 2, optimizer: AdamW { lr: 1e-3 }, $($settings)* };

                fn forward(x: Features<600>) -> Logits<3> {
                    [Linear(4000), Relu, lora(4, 8.0, Linear(2000)), Relu, Linear(1500), Relu, Linear(3)]
                }
            }
        };
    }

    wide!(Wide, { precision: Mixed(Bf16) });
    wide!(WideThere, { precision: Mixed(Bf16), offload: OptimizerState });

    /// Parameters that are trained: three layers, and the additions to one that is not.
    const TRAINED: u64 = 601 * 4000 + 4 * (4000 + 2000) + 2001 * 1500 + 1501 * 3;

    #[test]
    fn the_budget_has_buffers_in_place_of_states() {
        let (here, there) = (Wide::BUDGET, WideThere::BUDGET);
        assert_eq!((here[Line::Optimizer], here[Line::Master]), (8 * TRAINED, 4 * TRAINED));
        assert_eq!((there[Line::Optimizer], there[Line::Master]), (0, 0));
        assert_eq!((here.host, here.fetched), (0, 0));
        assert_eq!(there.fetched, 12 * TRAINED);
        assert!(there.host >= there.fetched && there.host < there.fetched + 256 * 100);
        assert_eq!(there.bus_ms(), 12 * TRAINED * 1000 / BUS_BYTES);
        for line in [Line::Weights, Line::Gradients, Line::Buffers, Line::BatchIo] {
            assert_eq!(here[line], there[line], "{}", line.name());
        }
        // Three buffers of 4 MiB for two states and a master copy.
        let staging = 3 * 3 * (4 << 20);
        let saved = here[Line::Arena] - there[Line::Arena];
        assert!(saved + staging >= 12 * TRAINED && saved < 12 * TRAINED, "{saved}");
        assert_eq!(there.lower_bound, there[Line::Arena]);
        let planned = budget_at(WideThere::PROGRAM.tables, 2, WideThere::PROGRAM.precision).unwrap();
        assert_eq!((planned.host, planned.fetched), (there.host, there.fetched));
        assert_eq!(WideThere::TRAIN.offload, Offload::OptimizerState);
    }

    #[test]
    fn reports_say_what_lies_where() {
        let text = table::<WideThere>();
        assert!(text.contains("  of which 34.3 MiB that pieces of optimizer state pass through\n"), "{text}");
        assert!(text.contains(&format!("{:<12} {:>12}\n", "host", "62.2 MiB")), "{text}");
        assert!(
            text.contains("  each step copies 62.2 MiB from there and back, at least 2 ms at 25 GB/s each way\n"),
            "{text}"
        );
        assert!(!table::<Wide>().contains("host"));
        let json = json::<WideThere>();
        assert!(json.contains(&format!(
            "\"host\":{},\"host_each_way\":{},\"host_ms\":2",
            WideThere::BUDGET.host,
            12 * TRAINED
        )));
        assert!(!gpumem::report::json::<Wide>().contains("host"));
    }

    #[test]
    fn the_step_is_the_same_to_the_bit() {
        let device = Cpu::new().emulate();
        let (x, y) = (Tensor::from_fn(|index| (index as f32 * 0.37).sin()), Tensor::from([0, 2]));
        let (mut here, mut there) = (Wide::on(&device).unwrap(), WideThere::on(&device).unwrap());
        for _ in 0..2 {
            let (one, other) = (here.train_step(&x, &y).unwrap(), there.train_step(&x, &y).unwrap());
            assert_eq!(one.to_bits(), other.to_bits());
        }
        let names: Vec<String> = here.names().map(String::from).collect();
        for name in &names {
            assert!(here.get(name).unwrap() == there.get(name).unwrap(), "{name}");
        }
    }
}

network! {
    pub struct Fitted;

    const TRAIN: Train = Train {
        batch: Largest, optimizer: Adam { lr: 1e-3 }, cards: [GTX_1050_TI], headroom: ROOM, offload: OptimizerState,
        checkpoint: Auto,
    };

    fn forward(x: Features<64>) -> Logits<10> { [Linear(256), Relu, Linear(256), Relu, Linear(10)] }
}

const ROOM: u64 = GTX_1050_TI.usable() - GTX_1050_TI.reserve() - mib(8.0);

#[test]
fn the_largest_batch_is_that_beside_the_buffers() {
    let program = Fitted::TRAINING.unwrap();
    let arena = |batch| budget_at(program.tables, batch, program.precision).unwrap()[Line::Arena];
    let batch = Fitted::TRAIN.batch as u64;
    assert!(batch > 1 && arena(batch) <= 8 << 20 && arena(batch + 1) > 8 << 20, "{batch}");
    let mut net = Fitted::on(&Cpu::new()).unwrap();
    let (x, y) = (Tensor::from_fn(|index| (index as f32 * 0.37).sin()), Tensor::from_fn(|index| (index % 10) as u32));
    let first = net.train_step(&x, &y).unwrap();
    assert!(net.train_step(&x, &y).unwrap() < first);
}

/// Activations that leave during the forward pass and are back when they are read.
mod activations {
    use super::*;

    macro_rules! deep {
        ($name:ident, { $($settings:tt)* }) => {
            network! {
                pub struct $name;

                const TRAIN: Train = Train { batch: 8, optimizer: AdamW { lr: 1e-3 }, seed: 3, $($settings)* };

                fn block() -> Block { [Conv2d(8, 3, padding = 1), BatchNorm2d, Gelu, Dropout2d(0.1)] }
                fn forward(image: Image<3, 8, 8>) -> Logits<4> { [repeat(24, block()), GlobalAvgPool, Linear(4)] }
            }
        };
    }

    macro_rules! both {
        ($here:ident, $there:ident, $all:ident, { $($settings:tt)* }) => {
            deep!($here, { $($settings)* });
            deep!($there, { $($settings)* offload: Activations });
            deep!($all, { $($settings)* offload: All });
        };
    }

    both!(Plain, Parked, All, {});
    both!(Mixed16, MixedParked, MixedAll, { precision: Mixed(F16), });
    both!(Split, SplitParked, SplitAll, { micro_batches: 4, clip: GlobalNorm(0.1), });
    both!(Leaner, LeanerParked, LeanerAll, { checkpoint: Budget(0.8), });

    macro_rules! compared {
        ($($here:ident $there:ident),* $(,)?) => {
            $({
                let device = Cpu::new().emulate();
                let (mut here, mut there) = ($here::on(&device).unwrap(), $there::on(&device).unwrap());
                let x = Tensor::from_fn(|index| (index as f32 * 0.37).sin());
                let y = Tensor::from_fn(|index| (index % 4) as u32);
                for _ in 0..3 {
                    let (one, other) = (here.train_step(&x, &y).unwrap(), there.train_step(&x, &y).unwrap());
                    assert_eq!(one.to_bits(), other.to_bits(), "{}", $there::NAME);
                }
                assert_eq!(here.eval_loss(&x, &y).unwrap().to_bits(), there.eval_loss(&x, &y).unwrap().to_bits());
                assert!(here.forward(&x).unwrap() == there.forward(&x).unwrap());
                let names: Vec<String> = here.names().map(String::from).collect();
                assert!(there.names().eq(here.names()));
                for name in &names {
                    assert!(here.get(name).unwrap() == there.get(name).unwrap(), "{}: {name}", $there::NAME);
                }
            })*
        };
    }

    #[test]
    fn the_step_is_the_same_to_the_bit() {
        compared!(Plain Parked, Mixed16 MixedParked, Split SplitParked, Leaner LeanerParked);
        compared!(Plain All, Mixed16 MixedAll, Split SplitAll, Leaner LeanerAll);
    }

    #[test]
    fn the_budget_has_them_in_host_memory() {
        let (here, there) = (Plain::BUDGET, Parked::BUDGET);
        assert!(there[Line::Arena] < here[Line::Arena] && there.lower_bound < here.lower_bound);
        for line in [Line::Weights, Line::Optimizer, Line::Gradients, Line::Buffers, Line::BatchIo] {
            assert_eq!(here[line], there[line], "{}", line.name());
        }
        // Maps of one size, of which some lie there.
        let map = 8 * 8 * 8 * 8 * 4;
        assert!(there.host > 0 && there.host % map == 0 && there.fetched == there.host && here.host == 0);
        assert_eq!(MixedParked::BUDGET.fetched, there.fetched / 2);
        assert_eq!((SplitParked::BUDGET.host, SplitParked::BUDGET.fetched), (there.host / 4, there.fetched));
        let planned = budget_at(Parked::PROGRAM.tables, 8, Parked::PROGRAM.precision).unwrap();
        assert_eq!(planned.with_reserve(there[Line::Reserve]), there);
        assert_eq!(there.lower_bound, there[Line::Arena]);
        assert_eq!(Parked::TRAIN.offload, Offload::Activations);
    }

    /// Optimizer state and activations together: both lie there, and what a step copies is added up.
    #[test]
    fn the_budget_has_both_in_host_memory() {
        for [here, parked, all] in [
            [Plain::BUDGET, Parked::BUDGET, All::BUDGET],
            [Mixed16::BUDGET, MixedParked::BUDGET, MixedAll::BUDGET],
            [Split::BUDGET, SplitParked::BUDGET, SplitAll::BUDGET],
        ] {
            let states = here[Line::Optimizer] + here[Line::Master];
            assert!(states > 0 && (all[Line::Optimizer], all[Line::Master]) == (0, 0));
            assert_eq!(all.fetched, parked.fetched + states);
            assert!(all.host >= parked.host + states && all.host < parked.host + states + 256 * 400);
            assert_eq!(all[Line::Gradients], here[Line::Gradients]);
        }
        assert_eq!(All::TRAIN.offload, Offload::All);
    }

    #[test]
    fn reports_say_what_lies_where() {
        let text = table::<Parked>();
        assert!(text.contains("\nhost ") && text.contains("each step copies") && !text.contains("pieces"), "{text}");
        let text = table::<All>();
        assert!(text.contains("\nhost ") && text.contains("that pieces of optimizer state pass through\n"), "{text}");
        assert!(json::<All>().contains(&format!(
            "\"host\":{},\"host_each_way\":{},",
            All::BUDGET.host,
            All::BUDGET.fetched
        )));
        assert!(json::<Parked>().contains(&format!("\"host\":{}", Parked::BUDGET.host)));
        assert!(!table::<Plain>().contains("host") && !json::<Plain>().contains("host"));
    }
}

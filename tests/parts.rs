//! Tensors that are set and read some elements at a time.

mod storage;

use gpumem::prelude::*;
use gpumem::{Error, Net};
use std::ops::ControlFlow;
use storage::Storage;

network! {
    /// A convolution whose weight is of several parts.
    struct Wide;

    const INFER: Infer = Infer { batch: 1 };

    fn forward(map: Image<250, 3, 3>) -> Map<130, 1, 1> {
        [Conv2d(130, 3, bias = false, name = "conv")]
    }
}

network! {
    /// A weight of several parts, with a master copy and moments.
    struct Large;

    const TRAIN: Train = Train { batch: 1, optimizer: Adam { lr: 0.1 }, loss: Mse, precision: Mixed(Bf16) };

    fn forward(features: Features<700>) -> Features<800> {
        [Linear(800, bias = false)]
    }
}

network! {
    /// A weight that is kept in codes.
    struct Coded;

    const TRAIN: Train = Train { batch: 1, optimizer: Adam { lr: 0.1 }, loss: Mse };

    fn forward(features: Features<64>) -> Features<64> {
        [lora(4, 8.0, Linear(64, name = "fc"), base = Int8)]
    }
}

/// Tensors that are set and read in parts are as set and read whole, and parts have at most 1 MiB of f32.
#[test]
fn tensors_are_set_and_read_in_parts() {
    let mut net = Net::<Large, Storage>::load(&Storage).unwrap();
    let number = |at: usize| at as f32 / 4096.0;
    let mut starts = Vec::new();
    let fill = |first: usize, part: &mut [f32]| (first..).zip(part).for_each(|(at, value)| *value = number(at));
    for name in ["linear.weight", "linear.weight.exp_avg", "linear.weight.exp_avg_sq"] {
        net.set_with(name, |first, part| {
            starts.push((first, part.len()));
            fill(first, part);
        })
        .unwrap();
        assert_eq!(std::mem::take(&mut starts), [(0, 262_144), (262_144, 262_144), (524_288, 35_712)], "{name}");
        let whole = net.get(name).unwrap();
        assert!(whole.iter().enumerate().all(|(at, value)| *value == number(at)), "{name}");
        let mut parts = Vec::new();
        let end = net.get_with(name, |part| {
            assert!(part.len() <= 262_144);
            parts.extend_from_slice(part);
            ControlFlow::<()>::Continue(())
        });
        assert!(end.unwrap() == ControlFlow::Continue(()) && parts == whole, "{name}");
    }
    // Both copies, as `set` writes them.
    let bytes = net.runner_mut().0.clone();
    let values: Vec<f32> = (0..560_000).map(number).collect();
    net.set("linear.weight", &values).unwrap();
    assert!(net.runner_mut().0 == bytes);
    // Until it breaks off.
    let mut count = 0;
    let end = net.get_with("linear.weight", |part| {
        count += part.len();
        ControlFlow::Break("enough")
    });
    assert_eq!((end.unwrap(), count), (ControlFlow::Break("enough"), 262_144));
    // Positions are those in the whole.
    let refused = net.set_with("linear.weight.exp_avg_sq", |first, part| {
        fill(first, part);
        if let Some(value) = 300_000usize.checked_sub(first).and_then(|at| part.get_mut(at)) {
            *value = -1.0;
        }
    });
    assert_eq!(
        refused.unwrap_err().to_string(),
        "`linear.weight.exp_avg_sq` cannot be -1 at position 300000: the optimizer keeps numbers of 0 or more there; set what `get` gave for \
         this name"
    );
    let unknown = net.set_with("linear.wieght", |_, _| ()).unwrap_err();
    assert!(matches!(unknown, Error::Name { .. }), "{unknown}");
    let unknown = net.get_with("linear.wieght", |_| ControlFlow::<()>::Continue(())).unwrap_err();
    assert!(matches!(unknown, Error::Name { .. }), "{unknown}");

    let mut net = Net::<Coded, Storage>::load(&Storage).unwrap();
    net.set_with("fc.weight", |first, part| fill(first, part)).unwrap();
    let whole = net.get("fc.weight").unwrap();
    assert!(whole.iter().any(|value| *value != 0.0));
    let mut parts = Vec::new();
    net.get_with("fc.weight", |part| {
        parts.extend_from_slice(part);
        ControlFlow::<()>::Continue(())
    })
    .unwrap()
    .is_continue();
    assert_eq!(parts, whole);
}

/// A device may keep the channels of each filter last, so that it can be read and written in whole filters alone.
#[test]
fn parts_of_a_convolution_are_whole_filters() {
    let mut net = Net::<Wide, Storage>::load(&Storage).unwrap();
    let filter = 250 * 3 * 3;
    let mut starts = Vec::new();
    net.set_with("conv.weight", |first, part| starts.push((first, part.len()))).unwrap();
    // 2^18 / 2250 filters, rounded down.
    assert_eq!(starts, [(0, 116 * filter), (116 * filter, 14 * filter)]);
    let mut lengths = Vec::new();
    let end = net.get_with("conv.weight", |part| {
        lengths.push(part.len());
        ControlFlow::<()>::Continue(())
    });
    assert!(end.unwrap().is_continue());
    assert_eq!(lengths, [116 * filter, 14 * filter]);
}

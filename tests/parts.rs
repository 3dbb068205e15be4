//! Tensors that are set and read some elements at a time.

use gpumem::__private::run::device::{Device, Job, Runner};
use gpumem::optim::Optimizer;
use gpumem::prelude::*;
use gpumem::{Error, Net};

/// A device that holds the arena and computes nothing.
struct Storage;

struct Held(Vec<u8>);

impl Device for Storage {
    type Runner = Held;

    fn load(&self, job: Job) -> Result<Held, Error> {
        Ok(Held(vec![0xff; job.arena as usize]))
    }
}

impl Runner for Held {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.0[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        bytes.copy_from_slice(&self.0[offset as usize..][..bytes.len()]);
        Ok(())
    }

    fn train(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn evaluate(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn infer(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn set_optimizer(&mut self, _: Optimizer) -> Result<(), Error> {
        Ok(())
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

/// What is set and read in parts is what is set and read whole, and parts have at most 1 MiB of f32.
#[test]
fn tensors_are_set_and_read_in_parts() {
    use std::ops::ControlFlow;
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

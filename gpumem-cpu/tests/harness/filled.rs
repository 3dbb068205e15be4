//! Random networks with numbers in them, and three steps of their training.

use super::Loaded;
use super::graphs::random::BATCH;
use gpumem_core::Role;
use gpumem_core::program::{Class, Init, Program};
use gpumem_core::run::device::Runner;
use gpumem_core::train::optim::{Optimizer, Sgd};
use gpumem_cpu::Cpu;

/// Numbers around 0 that look random.
pub fn spread(count: usize, salt: usize) -> Vec<f32> {
    (0..count).map(|index| ((index * 7919 + salt * 104_729) % 1009) as f32 / 1009.0 - 0.5).collect()
}

pub fn words(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Fills parameters, inputs and the target, each as its name says; returns the names of the parameters.
pub fn fill<R: Runner>(loaded: &mut Loaded<R>) -> Vec<String> {
    let tensors = loaded.train.program.tensors.clone();
    let mut parameters = Vec::new();
    for (id, tensor) in tensors.iter().enumerate() {
        let salt = tensor.name.bytes().fold(1, |salt, byte| (salt * 31 + usize::from(byte)) % 65_521);
        let count = tensor.elements(loaded.batch).unwrap() as usize;
        match (tensor.class, tensor.role) {
            (Class::Input, Role::Index) => loaded.set(&tensor.name, &[0, 3, 3, 1, 4, 2, 2, 2, 0]),
            (Class::Target, Role::Index) => loaded.set(&tensor.name, &[0, 3, 1]),
            (Class::Parameter, Role::Int8 | Role::Nf4 | Role::Nf4Double) => loaded.set_coded(id, &spread(count, salt)),
            // Those of codes are set with them.
            (Class::Parameter, Role::Scale) => {}
            // A scale near 0 would have its sign changed by a step, and what is normalised after it with it.
            (Class::Parameter, Role::Norm) => {
                let values: Vec<f32> = spread(count, salt).iter().map(|x| x + 1.0).collect();
                loaded.set(&tensor.name, &words(&values));
            }
            (Class::Parameter | Class::Input | Class::Target, _) => {
                loaded.set(&tensor.name, &words(&spread(count, salt)));
            }
            // Singular vectors, of which 0 is none.
            (Class::Buffer, _) if matches!(tensor.init, Init::Singular { .. }) => {
                loaded.set(&tensor.name, &words(&spread(count, salt)));
            }
            // With a running variance of 0 a normalisation would multiply by 316, and rounding would blur every slope.
            (Class::Buffer, _) => {
                let Init::Constant(mean) = tensor.init else { unreachable!("{} has another beginning", tensor.name) };
                let values: Vec<f32> = spread(count, salt).iter().map(|x| x + mean as f32).collect();
                loaded.set(&tensor.name, &words(&values));
            }
            _ => {}
        }
        if tensor.class == Class::Parameter {
            parameters.push(tensor.name.clone());
        }
    }
    parameters
}

/// The bits of three losses, and of all that lasts but the state after them.
pub fn trained(program: &Program, threads: usize) -> (Vec<u32>, Vec<Vec<u32>>) {
    let cpu = Cpu::with_threads(threads).unwrap().with_poison(true);
    let sgd = Optimizer::Sgd(Sgd { lr: 1e-4, momentum: 0.9, ..Sgd::DEFAULT });
    let mut loaded = Loaded::of(&cpu, program, BATCH, sgd).unwrap();
    fill(&mut loaded);
    let losses: Vec<f32> = (0..3).map(|_| loaded.step().unwrap()).collect();
    assert!(losses.iter().all(|loss| loss.is_finite()), "{losses:?}");
    let lasts = |class| matches!(class, Class::Parameter | Class::Moment | Class::Buffer);
    let lasting = program.tensors.iter().filter(|tensor| lasts(tensor.class));
    let lasting: Vec<Vec<f32>> = lasting.map(|tensor| loaded.get(&tensor.name).unwrap()).collect();
    assert!(lasting.iter().flatten().all(|value| !value.is_nan()));
    (words(&losses), lasting.iter().map(|values| words(values)).collect())
}

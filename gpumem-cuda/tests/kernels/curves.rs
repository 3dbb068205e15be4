//! Whole networks trained for 20 steps by the kernels on the host, against PyTorch's curves.

use crate::host::harness::compile;
use crate::host::harness::curves::{
    Curve, Network, Trained, recurrent_network, residual_network, transformer, volumes,
};
use crate::host::{CAPABILITY, Simulated};
use gpumem_core::Precision;
use gpumem_core::lower::{Options, lower};
use gpumem_core::program::{Class, StateWord};

impl Trained for Simulated {
    fn set(&mut self, name: &str, words: &[u32]) {
        let id = self.placed.program.tensors.iter().position(|tensor| tensor.name == name);
        self.write(id.unwrap_or_else(|| panic!("nothing is called {name}")), words);
    }

    fn get(&mut self, name: &str) -> Option<Vec<f32>> {
        let id = self.placed.program.tensors.iter().position(|tensor| tensor.name == name)?;
        Some(self.read(id).into_iter().map(f32::from_bits).collect())
    }

    fn step(&mut self) -> f32 {
        Simulated::step(self);
        let loss = self.placed.program.results[0] as usize;
        f32::from_bits(self.read(loss)[0])
    }
}

/// A network for the kernels on the host, as [`Network::on`] for a device.
fn simulated(network: &Network) -> Simulated {
    let options = Options { training: Some(network.training()) };
    let program = lower(&network.graph, &[network.output], &options).unwrap();
    let placed = compile(&program, network.batch);
    let ends = program.tensors.iter().zip(&placed.offsets);
    let arena = ends.map(|(tensor, offset)| offset + tensor.elements(network.batch).unwrap() * 4).max().unwrap();
    let arena = arena.next_multiple_of(256);
    let mut simulated =
        Simulated::new(placed, network.batch, arena, network.optimizer, (Precision::F32, CAPABILITY), 0);
    for (id, tensor) in program.tensors.iter().enumerate() {
        let mut words = vec![0; tensor.elements(network.batch).unwrap() as usize];
        match tensor.class {
            Class::State => {
                words[StateWord::LearningRate as usize] = (network.optimizer.lr() as f32).to_bits();
                words[StateWord::LossScale as usize] = 1f32.to_bits();
            }
            Class::Moment | Class::Buffer => {}
            _ => continue,
        }
        simulated.write(id, &words);
    }
    simulated
}

fn check(curve: &Curve) {
    if std::env::var_os("GPUMEM_SKIP_HOST").is_some() {
        return;
    }
    curve.check(&mut simulated(&curve.network));
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn a_residual_network() {
    check(&residual_network());
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn a_transformer_with_a_tied_head() {
    check(&transformer());
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn a_recurrent_network() {
    check(&recurrent_network());
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn a_network_of_volumes() {
    check(&volumes());
}

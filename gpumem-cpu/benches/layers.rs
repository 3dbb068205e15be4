//! Steps of a few layers. `scripts/compare_layers.py` runs it in turn with PyTorch.
//!
//! ```text
//! echo 20 | cargo bench -p gpumem-cpu --bench layers -- 32x96x96 4 gradients "Conv2d(32, 3, padding = 1)"
//! ```
//!
//! The arguments are the shape of a sample, the batch, `inference`, `training` or `gradients` (training, with the gradient of the input), and the
//! layers. It prints `ready` after a few steps. Then it reads a number of steps from each line of the standard input, makes them, and prints a line
//! of JSON: `seconds` of all of them together, and the last loss as `value`.

#[path = "../tests/harness/mod.rs"]
mod harness;

use gpumem_core::graph::Graph;
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::program::Class;
use gpumem_core::run::device::Runner;
use gpumem_core::train::Descent;
use gpumem_core::train::optim::{Optimizer, Sgd};
use gpumem_core::{Role, Update};
use gpumem_cpu::{Cpu, Session};
use harness::Loaded;
use harness::filled::{spread, words};
use harness::graphs::{chain, inputs};
use std::io::BufRead;
use std::time::Instant;

fn main() {
    // Cargo adds `--bench`. Without other arguments, as in a run of all benches, there is nothing to measure.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let [input, batch, mode, layers] = &arguments[..] else {
        println!("give the shape of a sample, the batch, inference, training or gradients, and layers");
        return;
    };
    let mut graph = Graph::default();
    let node = inputs(&mut graph, input)[0];
    let output = chain(&mut graph, node, layers);
    let training = Training {
        loss: &[Term::MSE],
        moments: 0,
        update: Update::Fused,
        skips_overflow: false,
        input_gradient: mode == "gradients",
        descent: Descent::PLAIN,
    };
    let trains = mode != "inference";
    let program = lower(&graph, &[output], &Options { training: trains.then_some(training) }).unwrap();
    let rate = Optimizer::Sgd(Sgd { lr: 1e-6, ..Sgd::DEFAULT });
    let cpu = Cpu::with_threads(1).unwrap();
    let mut loaded = Loaded::of(&cpu, &program, batch.parse().unwrap(), rate).unwrap();
    loaded.initialise(1);
    for tensor in loaded.train.program.tensors.clone() {
        if matches!(tensor.class, Class::Input | Class::Target) && tensor.role != Role::Index {
            let count = tensor.elements(loaded.batch).unwrap() as usize;
            loaded.set(&tensor.name, &words(&spread(count, 1)));
        }
    }
    answer(&mut loaded, trains);
}

/// Makes a few steps, and then as many as each line of the standard input says.
fn answer(loaded: &mut Loaded<Session>, trains: bool) {
    let mut step = || if trains { loaded.step() } else { loaded.runner_mut().infer().map(|()| 0.0) }.unwrap();
    for _ in 0..3 {
        step();
    }
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let steps: u64 = line.unwrap().trim().parse().unwrap();
        let (start, mut value) = (Instant::now(), 0.0);
        (0..steps).for_each(|_| value = step());
        println!("{{\"seconds\": {}, \"value\": {value}}}", start.elapsed().as_secs_f64());
    }
}

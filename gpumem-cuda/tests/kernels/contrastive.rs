//! Losses of all vectors of a batch: tiles of products on both sides, with and without tensor cores, against the CPU backend.

use crate::gradients;
use crate::host::harness::graphs::{chain, learned, numbers};
use crate::host::harness::{Truth, assert_close, compile};
use crate::host::{CAPABILITY, Simulated, compare_in, kernels_in};
use gpumem_core::Precision;
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::memory::budget::Line;
use gpumem_core::memory::place::place;
use gpumem_core::number::Half;
use gpumem_core::program::{Class, Measure, StateWord, Tensor};

/// Two values of vectors, with the numbers that are learned.
fn network(length: u64, layers: &str, measure: Measure, names: &[&str]) -> (Graph, [NodeId; 2], Term) {
    let mut graph = Graph::default();
    let inputs = [0, 1].map(|_| graph.input(numbers(&[length])).unwrap());
    let values = inputs.map(|input| chain(&mut graph, input, layers));
    let mut number = |name: &str| names.contains(&name).then(|| learned(&mut graph, name));
    let (scale, bias) = (number("scale"), number("bias"));
    let term = Term { weight: 0.7, from: Some(values[0]), and: Some(values[1]), scale, bias, ..Term::of(measure) };
    (graph, values, term)
}

/// The numbers of a loss that can be learned.
fn names(measure: Measure) -> &'static [&'static str] {
    if measure == Measure::Siglip { &["scale", "bias"] } else { &["scale"] }
}

const MEASURES: [Measure; 3] = [Measure::Contrastive, Measure::Siglip, Measure::NtXent];

fn compare(what: &str, terms: &[Term], format: (Precision, (i32, i32)), (graph, output): (&Graph, NodeId), batch: u64) {
    let (training, optimizer) = gradients();
    let training = Training { loss: terms, ..training };
    let (orders, tolerance) = if format.0 == Precision::F32 { (0..2, 1e-5) } else { (0..1, 1e-2) };
    let what = format!("{what} of {batch} in {:?} on {:?}", format.0, format.1);
    compare_in(format, orders, (what.as_str(), graph, output, training, batch, optimizer), 1, 5, tolerance);
}

/// Less than a tile, whole tiles, and one sample more than that; vectors of one chunk of the gradient and of two.
#[test]
fn tiles() {
    for (measure, batch, length, learns) in [
        (MEASURES[0], 2, 5, true),
        (MEASURES[0], 65, 7, false),
        (MEASURES[1], 32, 9, true),
        (MEASURES[1], 129, 4, true),
        (MEASURES[2], 33, 6, false),
        (MEASURES[2], 64, 300, true),
    ] {
        let names = if learns { names(measure) } else { &[] };
        let (graph, [output, _], term) = network(length, "Tanh", measure, names);
        let what = format!("{measure:?} of {length}");
        compare(&what, std::slice::from_ref(&term), (Precision::F32, CAPABILITY), (&graph, output), batch);
    }
}

/// Tensor cores of two generations, with rows that are read in vectors and one by one; and cards that have none for the format.
#[test]
fn tensor_cores() {
    for (measure, format, batch, length) in [
        (MEASURES[0], (Precision::Bf16, CAPABILITY), 40, 24),
        (MEASURES[0], (Precision::F16, (7, 5)), 9, 7),
        (MEASURES[1], (Precision::F16, CAPABILITY), 33, 8),
        (MEASURES[1], (Precision::Mixed(Half::Bf16), (7, 0)), 20, 5),
        (MEASURES[2], (Precision::Mixed(Half::F16), CAPABILITY), 66, 16),
    ] {
        // What arrives in 16 bits is what was given.
        let (graph, [output, _], term) = network(length, "LeakyRelu(1.0)", measure, names(measure));
        compare(&format!("{measure:?}"), std::slice::from_ref(&term), format, (&graph, output), batch);
    }
}

/// One side is trained, or none but the scale; several terms add to gradients and to the loss.
#[test]
fn sides_and_terms() {
    let (training, optimizer) = gradients();
    for [x, y] in [["Linear(5)", "LeakyRelu(1.0)"], ["LeakyRelu(1.0)", "Linear(5)"], ["LeakyRelu(1.0)"; 2]] {
        let mut graph = Graph::default();
        let inputs = [5, 5].map(|length| graph.input(numbers(&[length])).unwrap());
        let values = [chain(&mut graph, inputs[0], x), chain(&mut graph, inputs[1], y)];
        let scale = Some(learned(&mut graph, "scale"));
        let term = |measure, scale| Term { from: Some(values[0]), and: Some(values[1]), scale, ..Term::of(measure) };
        let once = [term(Measure::Contrastive, scale)];
        let twice =
            [term(Measure::Siglip, None), Term { weight: 0.4, ..term(Measure::NtXent, scale) }, once[0].clone()];
        for loss in [&once[..], &twice] {
            let training = Training { loss, input_gradient: false, ..training };
            let case = ("sides", &graph, values[0], training, 5, optimizer);
            compare_in((Precision::F32, CAPABILITY), 0..2, case, 2, 5, 1e-5);
        }
    }
}

/// What runs: gradients take a launch where there are some, and so do learned numbers.
#[test]
fn launches_of_a_batch() {
    let (training, optimizer) = gradients();
    for (names, input_gradient, expected) in [
        (
            &["scale"][..],
            true,
            &["contrastive_terms", "contrastive_gradients", "contrastive_numbers", "loss_total"][..],
        ),
        (&["scale"], false, &["contrastive_terms", "contrastive_gradients", "contrastive_numbers", "loss_total"]),
    ] {
        let (graph, [output, _], term) = network(6, "Tanh", Measure::Contrastive, names);
        let training = Training { loss: &[term], input_gradient, ..training };
        let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
        let kernels = kernels_in(&compile(&program, 3), 3, Precision::F32, optimizer);
        let of_loss = kernels.iter().filter(|kernel| matches!(kernel.file, "contrastive.cu" | "loss.cu"));
        assert_eq!(of_loss.map(|kernel| kernel.entry).collect::<Vec<_>>(), expected);
    }
}

/// What the CPU backend's goldens have, on the kernels.
#[test]
fn losses_of_batches_beside_pytorch() {
    for (file, measure) in [
        ("contrastive_scale", Measure::Contrastive),
        ("siglip", Measure::Siglip),
        ("siglip_learned", Measure::Siglip),
        ("nt_xent_scale", Measure::NtXent),
    ] {
        let path = format!("{}/../gpumem-cpu/tests/truth/losses/{file}.safetensors", env!("CARGO_MANIFEST_DIR"));
        let truth = Truth::parse(&std::fs::read(path).unwrap());
        let (samples, length) = (truth.shape("input.x")[0], truth.shape("input.x")[1]);
        let given: Vec<&str> = truth.names().filter_map(|name| name.strip_prefix("input.")).collect();
        let (graph, [output, _], term) = network(length, "LeakyRelu(1.0)", measure, &given);
        let term = Term { weight: 1.0, ..term };
        let (training, optimizer) = gradients();
        let training = Training { loss: &[term], ..training };
        let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
        let compiled = crate::host::harness::graphs::plan(&program, samples, Precision::F32);
        let placed = place(&compiled).unwrap();
        let format = (Precision::F32, CAPABILITY);
        let mut simulated = Simulated::new(placed, samples, compiled.budget[Line::Arena], optimizer, format, 0);
        let mut state = [0; StateWord::COUNT];
        state[StateWord::LossScale as usize] = 1f32.to_bits();
        let id = |is: &dyn Fn(&Tensor) -> bool| program.tensors.iter().position(is).unwrap();
        simulated.write(id(&|it| it.class == Class::State), &state);
        let name = |given: &str| match given {
            "x" => "input".to_string(),
            "y" => "input1".to_string(),
            other => other.to_string(),
        };
        for given in &given {
            simulated.write(id(&|it| it.name == name(given)), truth.words(&format!("input.{given}")));
        }
        simulated.step();
        let mut floats = |id: usize| simulated.read(id).into_iter().map(f32::from_bits).collect::<Vec<f32>>();
        assert_close(&format!("{file} loss"), &floats(program.results[0] as usize), &truth.floats("output"), 1e-5);
        for given in given {
            let found = floats(id(&|it| it.name == format!("{}.gradient", name(given))));
            assert_close(&format!("{file} {given}"), &found, &truth.floats(&format!("grad_input.{given}")), 2e-5);
        }
    }
}

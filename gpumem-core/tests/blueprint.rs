//! What a network is lowered from, written and read back.

mod common;

use common::chain;
use common::random::{KINDS, network};
use gpumem_core::graph::{Graph, Source, SourceLine, SourceLines};
use gpumem_core::lower::{Blueprint, Cached, Steps, Term};
use gpumem_core::number::{Half, Precision};
use gpumem_core::program::op::Rule;
use gpumem_core::program::ops::{Convolution, Window};
use gpumem_core::program::{Class, Program};
use gpumem_core::shape::Shape;
use gpumem_core::train::{Clip, Descent, Offload, Schedule};
use gpumem_core::{Checkpoint, ConvNorm, Update};

fn blueprints() -> impl Iterator<Item = Blueprint> {
    (0..KINDS).map(|kind| {
        let (graph, output) = network(&[(12, 0, 0), (kind, 1, 2)], true);
        let loss = vec![Term::MSE, Term { weight: 0.3, from: Some(output), target: 1, ..Term::MSE }];
        let all = [Checkpoint::Norms, Checkpoint::None, Checkpoint::Cheap, Checkpoint::Auto, Checkpoint::Budget(0.5)];
        let checkpoint = all[kind % 5];
        let clip = [None, Some(Clip::GlobalNorm(1.0)), Some(Clip::Value(0.5))][kind % 3];
        let schedule = Schedule::Step { warmup: 3, every: 10, factor: 0.5 };
        let offload = Offload::ALL[kind % 4];
        let descent = Descent { clip, schedule, micro_batches: 1 + kind as u64, offload, ..Descent::PLAIN };
        let (update, conv_norm) = (Update::Separate, ConvNorm::ALL[kind % 2]);
        let training = (kind % 3 > 0).then_some(Steps {
            loss,
            moments: 2,
            update,
            checkpoint,
            descent,
            conv_norm,
            ordered_at: [None, Some(32)][kind % 2],
        });
        Blueprint { graph, outputs: vec![output], training, cached: None, parts: Default::default() }
    })
}

/// A tool lowers to the program that the macro lowered to, at every precision.
#[test]
fn a_blueprint_survives() {
    for blueprint in blueprints() {
        let read = Blueprint::decode(&blueprint.encode()).unwrap();
        assert_eq!(read, blueprint);
        for precision in [Precision::F32, Precision::Mixed(Half::F16)] {
            assert_eq!(read.training(precision), blueprint.training(precision));
        }
        assert_eq!(read.inference(), blueprint.inference());
    }
}

/// A blueprint has the source lines of its layers at its end, and none without them.
#[test]
fn source_lines_survive() {
    for blueprint in blueprints().step_by(5) {
        let without = blueprint.encode();
        let mut with = blueprint.clone();
        let lines = [(3, None), (7, Some(0))].map(|(line, caller)| SourceLine { file: 0, line, caller });
        let rows = (0..with.graph.rows.len()).map(|row| Some(row % 2)).collect();
        with.graph.lines = SourceLines { files: vec!["src/net.rs".into()], lines: lines.to_vec(), rows };
        assert_eq!(Blueprint::decode(&with.encode()), Some(with.clone()));
        assert!(with.encode().starts_with(&without), "older readers know the beginning");
        assert_eq!(Blueprint::decode(&without).map(|read| read.graph.lines), Some(SourceLines::default()));
        with.graph.lines.rows[0] = Some(2);
        assert_eq!(Blueprint::decode(&with.encode()), None, "a line that does not exist");
    }
}

#[test]
fn damaged_blueprints_are_nothing_or_connected() {
    for bytes in blueprints().step_by(9).map(|blueprint| blueprint.encode()) {
        for end in 0..bytes.len() {
            assert_eq!(Blueprint::decode(&bytes[..end]), None, "{end} of {} bytes", bytes.len());
        }
        assert_eq!(Blueprint::decode(&[&bytes[..], &[0]].concat()), None);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x41;
            if let Some(read) = Blueprint::decode(&damaged) {
                let nodes = &read.graph.nodes;
                assert!(nodes.iter().enumerate().all(|(id, node)| node.inputs().iter().all(|&input| input < id)));
                assert!(read.outputs.iter().all(|&output| output < nodes.len()));
            }
        }
    }
}

/// A graph whose digest is right may still be none that lowering can work on.
#[test]
fn blueprints_with_wrong_shapes_or_missing_inputs_are_nothing() {
    let mut looked_at = [0; 2];
    for blueprint in blueprints() {
        for id in 0..blueprint.graph.nodes.len() {
            let mut changed = blueprint.clone();
            let node = &mut changed.graph.nodes[id];
            let Source::Op { op, inputs, .. } = &mut node.source else { continue };
            let has_gradient_of = |input: usize| op.gradients().iter().any(|rule| rule.inputs().any(|of| of == input));
            if inputs.len().checked_sub(1).is_some_and(has_gradient_of) {
                inputs.pop();
                assert!(Blueprint::decode(&changed.encode()).is_none(), "{:?} lacks an input", changed.graph.nodes[id]);
                looked_at[0] += 1;
            }
            let mut changed = blueprint.clone();
            let shape = &mut changed.graph.nodes[id].value.shape;
            let Some((last, first)) = shape.dims().split_last() else { continue };
            *shape = Shape::new(&[first, &[last + 1]].concat());
            assert!(Blueprint::decode(&changed.encode()).is_none(), "{:?} has another shape", changed.graph.nodes[id]);
            looked_at[1] += 1;
        }
    }
    assert!(looked_at.iter().all(|&count| count > 20), "{looked_at:?}");
}

/// Inference with a cache: it is read back, and the pass of one step lies in the places of that of several.
#[test]
fn a_cache_survives() {
    let mut graph = Graph::default();
    let tokens = graph.input(common::tokens(8)).unwrap();
    let output = chain(
        &mut graph,
        tokens,
        "Embedding(7, 16) | CausalSelfAttention(4, kv_heads = 2, rotary = 100.0) | LayerNorm | Linear(24) | Gelu | Linear(5)",
    );
    for (steps, chunk) in [(8, 1), (1000, 3), (20, 20)] {
        let cached = Some(Cached { steps, chunk });
        let blueprint = Blueprint {
            graph: graph.clone(),
            outputs: vec![output],
            training: None,
            cached,
            parts: Default::default(),
        };
        let read = Blueprint::decode(&blueprint.encode()).unwrap();
        assert_eq!(read, blueprint);
        let several = blueprint.inference().unwrap();
        assert_eq!(Program::decode(&several.encode()).unwrap(), several);
        let caches: Vec<_> = several.of_class(Class::Cache).map(|id| several.tensor(id)).collect();
        let ends: Vec<_> = caches.iter().map(|cache| cache.name.rsplit('.').next().unwrap()).collect();
        assert_eq!(ends, ["cached_keys", "cached_values"]);
        assert!(caches.iter().all(|cache| cache.batched && cache.shape == Shape::new(&[steps, 8])), "{several}");
        let one = blueprint.decoding().unwrap();
        assert_eq!(one.is_some(), chunk > 1, "{several}");
        if let Some(one) = one {
            assert!(several.covers(&one) && !one.covers(&several));
        }
        assert_ne!(blueprint.evaluation().unwrap(), several);
    }
}

/// A damaged record may name any numbers, which the report multiplies and divides.
#[test]
fn a_convolution_of_no_groups_divides_by_none() {
    let window = Window { kernel_size: [3, 3], stride: [1, 1], padding: [1, 1], dilation: [1, 1] };
    let of = |groups: u64| {
        let sides = ([8, 8], [8, 8]);
        let (in_channels, out_channels) = (4, 4);
        Convolution {
            in_channels,
            out_channels,
            window,
            groups,
            bias: false,
            transposed: false,
            input: sides.0,
            output: sides.1,
        }
    };
    assert_eq!(of(0).macs(), of(1).macs());
}

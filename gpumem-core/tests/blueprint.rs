//! What a network is lowered from, written and read back.

mod common;

use common::random::{KINDS, network};
use gpumem_core::Update;
use gpumem_core::lower::{Blueprint, Steps, Term};
use gpumem_core::number::{Half, Precision};

fn blueprints() -> impl Iterator<Item = Blueprint> {
    (0..KINDS).map(|kind| {
        let (graph, output) = network(&[(12, 0, 0), (kind, 1, 2)], true);
        let loss = vec![Term::MSE, Term { weight: 0.3, from: Some(output), target: 1, ..Term::MSE }];
        let training = (kind % 3 > 0).then_some(Steps { loss, moments: 2, update: Update::Separate });
        Blueprint { graph, outputs: vec![output], training, cached: None }
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

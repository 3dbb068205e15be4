//! Functions of one number at their kinks and in their tails.

mod harness;

use gpumem_core::graph::Graph;
use gpumem_core::lower::Term;
use gpumem_core::program::{Op, Slot};
use harness::functions::{check, slopes};
use harness::given::{assert_right, on_cpu, step};
use harness::graphs::{chain, numbers};

#[test]
fn values_and_slopes() {
    check(on_cpu);
}

#[test]
fn known_slopes() {
    for (layer, x, expected) in harness::functions::KNOWN {
        for (who, found) in slopes(on_cpu, layer, &x) {
            assert_right(&who, &found, &expected, 1e-4, 0.0);
        }
    }
}

/// In place the output is kept, of which rounding has left the slope to within its last digit.
#[test]
fn exponential_units_in_place() {
    let x = [-20.0, -10.0, -6.0, -1.0, -1e-8, 0.0, 1e-8, 2.0];
    for (apart, in_place) in [
        ("Elu(1.5)", "Elu(1.5, inplace = true)"),
        ("Celu(0.5)", "Celu(0.5, inplace = true)"),
        ("Selu", "Selu(inplace = true)"),
    ] {
        let [apart, in_place] = [apart, in_place].map(|layer| format!("LeakyRelu(1.0) | {layer}"));
        let expected: Vec<f64> = slopes(on_cpu, &apart, &x)[0].1.iter().copied().map(f64::from).collect();
        for (who, found) in slopes(on_cpu, &in_place, &x) {
            assert_right(&who, &found, &expected, 1e-6, 2.0 * f64::from(f32::EPSILON));
        }
        assert_eq!([apart, in_place].map(|layers| reads(&layers)), [[true, false], [false, true]]);
    }
}

/// Returns whether the gradient of the last function reads its input, and whether it reads its output.
fn reads(layers: &str) -> [bool; 2] {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[4])).unwrap();
    let output = chain(&mut graph, input, layers);
    let program = step(&graph, output, &[Term::DOT]);
    let mut operations = program.operations.iter();
    let operation = operations.find(|it| matches!(it.backward(), Some(Op::Pointwise(_)))).unwrap();
    [Slot::Input(0), Slot::Output].map(|slot| operation.read(slot).is_some())
}

use crate::host::harness::graphs::{layer, numbers};
use crate::{check, check_narrow};

#[test]
fn functions_of_one_number() {
    for name in ["Relu", "Relu6", "LeakyRelu(0.2)", "Gelu", "Gelu(approximate = \"tanh\")", "Silu", "Sigmoid", "Tanh"] {
        check(name, 3, |graph| {
            let input = graph.input(numbers(&[7, 13])).unwrap();
            layer(graph, input, name)
        });
    }
}

#[test]
fn sixteen_bits() {
    for name in ["Relu", "Gelu", "Tanh"] {
        check_narrow(name, 3, |graph| {
            let input = graph.input(numbers(&[7, 13])).unwrap();
            layer(graph, input, name)
        });
    }
}

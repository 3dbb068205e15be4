//! Windows of every kind, drawn: kernels, strides, padding, dilation, and what a transposed convolution adds at the end.

use crate::host::harness::graphs::{numbers, try_join};
use crate::{gradients, host};
use gpumem_core::Precision;
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Term, Training};
use std::env;

/// Numbers that look random, the same in each run; with `GPUMEM_SEED` others.
struct Draws(u64);

impl Draws {
    fn from(&mut self, least: u64, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        least + (self.0 >> 33) % (most - least + 1)
    }

    fn one_of<'t>(&mut self, of: &[&'t str]) -> &'t str {
        of[self.from(0, of.len() as u64 - 1) as usize]
    }

    /// A number for all axes, half of the time the least one, or one for each.
    fn each(&mut self, axes: usize, least: u64, most: u64) -> String {
        match self.from(0, 3) {
            0 | 1 => least.to_string(),
            2 => self.from(least, most).to_string(),
            _ if axes == 1 => self.from(least, most).to_string(),
            _ => {
                let each: Vec<String> = (0..axes).map(|_| self.from(least, most).to_string()).collect();
                format!("[{}]", each.join("; "))
            }
        }
    }
}

/// A layer and what it works on, which may not go together.
fn draw(draws: &mut Draws, layer: &str, axes: usize) -> (Vec<u64>, String) {
    let groups = draws.from(1, 3);
    let channels = groups * draws.from(1, 4);
    let largest = if axes == 3 { 5 } else { 9 };
    let mut shape = vec![channels];
    shape.extend((0..axes).map(|_| draws.from(1, largest)));
    let is_convolution = layer.starts_with("Conv");
    let mut text = format!("{layer}{axes}d(");
    if is_convolution {
        text += &format!("{}, ", groups * draws.from(1, 4));
    }
    text += &format!("{}, stride = {}", draws.each(axes, 1, 3), draws.each(axes, 1, 3));
    text += &format!(", padding = {}", draws.each(axes, 0, 1));
    match layer {
        "AvgPool" => text += &format!(", count_include_pad = {}", draws.one_of(&["true", "false"])),
        _ => text += &format!(", dilation = {}", draws.each(axes, 1, 3)),
    }
    if layer == "ConvTranspose" {
        text += &format!(", output_padding = {}", draws.each(axes, 0, 2));
    }
    text += &match is_convolution {
        true => format!(", groups = {groups}, bias = {})", draws.one_of(&["true", "false"])),
        false => format!(", ceil_mode = {})", draws.one_of(&["true", "false"])),
    };
    (shape, text)
}

fn built(graph: &mut Graph, shape: &[u64], text: &str) -> Option<NodeId> {
    let input = graph.input(numbers(shape)).unwrap();
    try_join(graph, &[input], text).ok()
}

/// Compares with the CPU backend in 32 or in 16 bits. The loss is one of squares: terms of other sums may cancel, and errors show.
fn check(narrow: bool, shape: &[u64], text: &str) {
    let mut graph = Graph::default();
    let output = built(&mut graph, shape, text).unwrap();
    let (training, optimizer) = gradients();
    let training = Training { loss: &[Term::MSE], ..training };
    let what = format!("{text} of {shape:?}");
    let case = (what.as_str(), &graph, output, training, 2, optimizer);
    let formats: &[(Precision, f64)] =
        if narrow { &[(Precision::Bf16, 1e-2), (Precision::F16, 1e-2)] } else { &[(Precision::F32, 1e-5)] };
    for &(precision, tolerance) in formats {
        let format = (precision, host::CAPABILITY);
        host::prepare(&[format], case);
        host::compare_in(format, 0..1, case, 1, 5, tolerance);
    }
}

/// Draws until there are so many layers that can stand where they do.
fn windows(layer: &str, count: usize) {
    let seed = env::var("GPUMEM_SEED").map_or(2, |seed| seed.parse().expect("a whole number"));
    let mut draws = Draws(seed);
    for axes in 1..=3 {
        let mut found = 0;
        for _ in 0..1000 * count {
            let (shape, text) = draw(&mut draws, layer, axes);
            if built(&mut Graph::default(), &shape, &text).is_none() {
                continue;
            }
            if found == count {
                break;
            }
            found += 1;
            check(false, &shape, &text);
            // One in three in 16 bits as well.
            if found % 3 == 0 {
                check(true, &shape, &text);
            }
        }
        assert_eq!(found, count, "{layer} of {axes} axes can hardly stand where it is drawn");
    }
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn convolutions() {
    windows("Conv", 9);
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn transposed_convolutions() {
    windows("ConvTranspose", 9);
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn maxima() {
    windows("MaxPool", 6);
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn means() {
    windows("AvgPool", 6);
}

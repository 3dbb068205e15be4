//! Pools: sliding windows, and as many windows as the output has elements.

use super::layers::Made;
use super::{Writer, int, list, table};
use gpumem_core::graph::NodeId;
use gpumem_core::program::ops::{AveragePool, MaxPool, Window, Windows};

/// Returns the attributes of a sliding window.
fn window<const N: usize>(window: &Window<N>, input: [u64; N], output: [u64; N]) -> Vec<super::AttributeProto> {
    let reach = |axis: usize| {
        (output[axis] - 1) * window.stride[axis] + window.dilation[axis] * (window.kernel_size[axis] - 1) + 1
    };
    let rounds_up = (0..N).any(|axis| reach(axis) > input[axis] + 2 * window.padding[axis]);
    vec![
        list("kernel_shape", window.kernel_size),
        list("strides", window.stride),
        list("dilations", window.dilation),
        list("pads", window.padding.into_iter().chain(window.padding)),
        int("ceil_mode", i64::from(rounds_up)),
    ]
}

/// Returns the window of an adaptive pool whose windows are all alike. `None` if they are not.
fn equal<const N: usize>(input: [u64; N], output: [u64; N]) -> Option<Window<N>> {
    let mut kernel_size = [1; N];
    for axis in 0..N {
        if output[axis] == 0 || !input[axis].is_multiple_of(output[axis]) {
            return None;
        }
        kernel_size[axis] = input[axis] / output[axis];
    }
    Some(Window { kernel_size, stride: kernel_size, padding: [0; N], dilation: [1; N] })
}

/// Returns the first element of each window of an adaptive pool, and the one after its last.
fn spans(input: u64, output: u64) -> Vec<[u64; 2]> {
    let output = output.max(1);
    (0..output).map(|at| [at * input / output, ((at + 1) * input).div_ceil(output)]).collect()
}

impl Writer<'_> {
    pub(super) fn max_pool<const N: usize>(&mut self, op: &MaxPool<N>, inputs: &[NodeId]) -> Option<Made> {
        let &input = inputs.first()?;
        let x = self.as_maps(input, &[&[op.channels], &op.input[..]].concat());
        let shape = self.of_maps(input, [&[op.channels], &op.output[..]].concat());
        let windows = if op.adaptive { equal(op.input, op.output) } else { Some(op.window) };
        match windows {
            Some(windows) => Some((self.add("MaxPool", &[&x], window(&windows, op.input, op.output)), shape)),
            None => Some((self.largest(x, op), shape)),
        }
    }

    /// Takes the maximum of windows of several lengths, one axis after the other. Shorter windows repeat their last element.
    fn largest<const N: usize>(&mut self, mut x: String, op: &MaxPool<N>) -> String {
        let mut sizes: Vec<u64> = [&[op.channels], &op.input[..]].concat();
        for axis in 0..N {
            let (input, output) = (op.input[axis], op.output[axis]);
            if input == output {
                continue;
            }
            let spans = spans(input, output);
            let longest = spans.iter().map(|[first, end]| end - first).max().unwrap_or(1);
            let places = spans.iter().flat_map(|&[first, end]| (0..longest).map(move |at| (first + at).min(end - 1)));
            let places = self.indices(format!("/windows({input},{output})"), &[output * longest], || {
                places.map(|place| place as i64).collect()
            });
            let at = axis as i64 + 2;
            x = self.add("Gather", &[&x, &places], vec![int("axis", at)]);
            let mut split: Vec<i64> = [0].into_iter().chain(super::ints(sizes.iter().copied())).collect();
            split.splice(axis + 2..axis + 3, [output as i64, longest as i64]);
            let split = self.integers(&split);
            x = self.add("Reshape", &[&x, &split], vec![]);
            let listed = self.integers(&[at + 1]);
            x = self.add("ReduceMax", &[&x, &listed], vec![int("keepdims", 0)]);
            sizes[axis + 1] = output;
        }
        x
    }

    pub(super) fn average_pool<const N: usize>(&mut self, op: &AveragePool<N>, inputs: &[NodeId]) -> Option<Made> {
        let &input = inputs.first()?;
        let x = self.as_maps(input, &[&[op.channels], &op.input[..]].concat());
        let shape = self.of_maps(input, [&[op.channels], &op.output[..]].concat());
        let (windows, counts) = match op.windows {
            Windows::Sliding { window, count_include_pad } => (window, count_include_pad),
            Windows::Adaptive => match equal(op.input, op.output) {
                Some(windows) => (windows, false),
                None => {
                    (0..N).try_for_each(|axis| table(&[op.input[axis], op.output[axis]]).map(|_| ()))?;
                    return Some((self.means(x, op), shape));
                }
            },
        };
        if windows.kernel_size == op.input && windows.padding == [0; N] {
            return Some((self.add("GlobalAveragePool", &[&x], vec![]), shape));
        }
        let mut attributes = window(&windows, op.input, op.output);
        attributes.push(int("count_include_pad", i64::from(counts)));
        Some((self.add("AveragePool", &[&x], attributes), shape))
    }

    /// Takes means of windows of several lengths, one axis after the other: products with a matrix that has a row for each window.
    fn means<const N: usize>(&mut self, mut x: String, op: &AveragePool<N>) -> String {
        for axis in 0..N {
            let (input, output) = (op.input[axis], op.output[axis]);
            if input == output {
                continue;
            }
            let rows = move || {
                let row = |[first, end]: [u64; 2]| {
                    (0..input).map(move |at| if (first..end).contains(&at) { 1.0 / (end - first) as f32 } else { 0.0 })
                };
                spans(input, output).into_iter().flat_map(row).collect()
            };
            let matrix = self.constant(format!("/means({input},{output})"), &[output, input], rows);
            x = self.along(x, axis, N, &matrix);
        }
        x
    }

    /// Multiplies maps with a matrix of outputs and inputs along one of their `N` axes.
    pub(super) fn along(&mut self, x: String, axis: usize, count: usize, matrix: &str) -> String {
        // The axis comes last, and goes back after the product.
        let order = |from: usize, to: usize| {
            let mut order: Vec<u64> = (0..count as u64 + 2).collect();
            let moved = order.remove(from);
            order.insert(to, moved);
            list("perm", order)
        };
        let turned = self.add("Transpose", &[matrix], vec![list("perm", [1, 0])]);
        if axis + 1 == count {
            return self.add("MatMul", &[&x, &turned], vec![]);
        }
        let last = self.add("Transpose", &[&x], vec![order(axis + 2, count + 1)]);
        let made = self.add("MatMul", &[&last, &turned], vec![]);
        self.add("Transpose", &[&made], vec![order(count + 1, axis + 2)])
    }
}

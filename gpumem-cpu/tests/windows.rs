//! Layers that slide a window, with random geometries, against plain loops in double precision that follow PyTorch's
//! definitions: output sizes, outputs, and the gradients of input and weight.

mod harness;

use gpumem_core::Update;
use gpumem_core::graph::Graph;
use gpumem_core::lower::{Term, Training};
use gpumem_core::program::Class;
use gpumem_core::train::optim::{Optimizer, Sgd};
use harness::Loaded;
use harness::graphs::{numbers, try_join};
use proptest::prelude::*;

const BATCH: usize = 2;

/// One axis of a window.
#[derive(Clone, Copy, Debug)]
struct Axis {
    size: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
    ceil: bool,
}

impl Axis {
    /// `pooling_output_shape` of ATen; `None` if the kernel is larger than the padded input, with `ceil_mode` by its stride or more.
    fn positions(&self) -> Option<usize> {
        let span = self.dilation * (self.kernel - 1) + 1;
        let up = if self.ceil { self.stride - 1 } else { 0 };
        let room = (self.size + 2 * self.padding + up).checked_sub(span)?;
        let count = room / self.stride + 1;
        let outside = self.ceil && (count - 1) * self.stride >= self.size + self.padding;
        Some(if outside { count - 1 } else { count })
    }

    /// Coordinates inside the input that the window at `position` reads, with the element of the kernel that reads each.
    fn reads(&self, position: usize) -> Vec<(usize, usize)> {
        let at = |k: usize| (position * self.stride + k * self.dilation).checked_sub(self.padding);
        (0..self.kernel).filter_map(|k| at(k).filter(|&at| at < self.size).map(|at| (k, at))).collect()
    }

    /// `avg_pool2d` of ATen: the part of its divisor that belongs to this axis.
    fn divisor(&self, position: usize, count_include_pad: bool) -> usize {
        let start = (position * self.stride) as i64 - self.padding as i64;
        let end = (start + self.kernel as i64).min((self.size + self.padding) as i64);
        let inside = end.min(self.size as i64) - start.max(0);
        (if count_include_pad { end - start } else { inside }) as usize
    }
}

/// What a layer computes of an input and a target, where the loss is the sum of output times target.
struct Found {
    output_shape: Vec<u64>,
    loss: f64,
    input_gradient: Vec<f32>,
    weight: Vec<f32>,
    weight_gradient: Option<Vec<f32>>,
}

fn run(shape: [usize; 3], text: &str, input: &[f32], target: impl Fn(usize) -> f32) -> Option<Found> {
    let mut graph = Graph::default();
    let x = graph.input(numbers(&shape.map(|dim| dim as u64))).unwrap();
    let output = try_join(&mut graph, &[x], text).ok()?;
    let training = Training {
        loss: &[Term::DOT],
        moments: 0,
        update: Update::Separate,
        skips_overflow: false,
        input_gradient: true,
        descent: gpumem_core::train::Descent::PLAIN,
    };
    let stay = Optimizer::Sgd(Sgd { lr: 0.0, ..Sgd::DEFAULT });
    let mut loaded = Loaded::new(&graph, output, training, BATCH as u64, stay);
    let bits = |values: &[f32]| -> Vec<u32> { values.iter().map(|value| value.to_bits()).collect() };
    let count = |class: Class, loaded: &Loaded| {
        let tensors = loaded.train.program.tensors.iter();
        let tensor = tensors.filter(|tensor| tensor.class == class).min_by_key(|tensor| tensor.name.contains("bias"));
        tensor.map(|tensor| (tensor.name.clone(), tensor.elements(BATCH as u64).unwrap() as usize))
    };
    loaded.set("input", &bits(input));
    let (_, targets) = count(Class::Target, &loaded).unwrap();
    loaded.set("target", &bits(&(0..targets).map(target).collect::<Vec<f32>>()));
    let weight = count(Class::Parameter, &loaded);
    if let Some((name, count)) = &weight {
        loaded.set(name, &bits(&values(*count, 3)));
    }
    let loss = f64::from(loaded.step().unwrap());
    Some(Found {
        output_shape: graph.rows[0].output.shape.dims().to_vec(),
        loss,
        input_gradient: loaded.get("input.gradient").unwrap(),
        weight: weight.as_ref().map(|(name, _)| loaded.get(name).unwrap()).unwrap_or_default(),
        weight_gradient: weight.and_then(|(name, _)| loaded.get(&format!("{name}.gradient"))),
    })
}

fn values(count: usize, salt: usize) -> Vec<f32> {
    (0..count).map(|index| ((index * 7919 + salt * 104_729) % 1009) as f32 / 1009.0 - 0.5).collect()
}

fn target(index: usize) -> f32 {
    ((index * 31) % 17) as f32 / 8.0 - 1.0
}

fn assert_near(what: &str, found: &[f32], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (index, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let near = (f64::from(found) - expected).abs() <= 1e-5 * expected.abs().max(1.0);
        assert!(near || found.is_nan() && expected.is_nan(), "{what}, element {index}: {found} instead of {expected}");
    }
}

fn axis() -> impl Strategy<Value = Axis> {
    (1usize..9, 1usize..5, 1usize..4, 0usize..3, 1usize..4, any::<bool>()).prop_map(
        |(size, kernel, stride, padding, dilation, ceil)| Axis { size, kernel, stride, padding, dilation, ceil },
    )
}

/// One of an axis' numbers.
type Number = fn(&Axis) -> usize;

/// Pairs of numbers as the texts of layers have them.
fn pairs([height, width]: [Axis; 2], names: &[(&str, Number)]) -> String {
    names.iter().map(|(name, get)| format!(", {name} = [{}; {}]", get(&height), get(&width))).collect()
}

/// Calls `f` for each plane and position with the input's and the output's plane, and the position.
fn for_positions(planes: usize, positions: [usize; 2], mut f: impl FnMut(usize, [usize; 2], usize)) {
    for plane in 0..planes {
        for (index, o) in
            (0..positions[0] * positions[1]).map(|index| (index, [index / positions[1], index % positions[1]]))
        {
            f(plane, o, plane * positions[0] * positions[1] + index);
        }
    }
}

/// By hand: behind a row of four stands the one zero that a kernel of two needs, around it the three of a kernel of four.
#[test]
fn even_kernels_have_more_padding_at_the_end() {
    let input: Vec<f32> = (0..8).map(|index| [1.0, 2.0, 3.0, 4.0][index % 4] + (index / 4) as f32).collect();
    for (kernel, elements) in [
        (2, vec![vec![0, 1], vec![1, 2], vec![2, 3], vec![3]]),
        (4, vec![vec![0, 1, 2], vec![0, 1, 2, 3], vec![1, 2, 3], vec![2, 3]]),
    ] {
        let text = format!("Conv2d(1, [1; {kernel}], padding = \"same\", bias = false)");
        let found = run([1, 1, 4], &text, &input, target).unwrap();
        assert_eq!(found.output_shape, [1, 1, 4]);
        let mut loss = 0.0;
        for (index, read) in (0..8).map(|index| (index, &elements[index % 4])) {
            // The first window of four begins at its second element, with one zero in front of it.
            let first = if kernel == 4 && index % 4 == 0 { 1 } else { 0 };
            for (tap, &element) in read.iter().enumerate() {
                loss += f64::from(input[index / 4 * 4 + element])
                    * f64::from(found.weight[first + tap])
                    * f64::from(target(index));
            }
        }
        assert_near(&text, &[found.loss as f32], &[loss]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn maxima(mut height in axis(), mut width in axis(), ties in any::<bool>()) {
        width.ceil = height.ceil;
        for axis in [&mut height, &mut width] {
            axis.padding = axis.padding.min(axis.kernel / 2);
        }
        let axes = [height, width];
        let options = pairs(axes, &[("stride", |a| a.stride), ("padding", |a| a.padding), ("dilation", |a| a.dilation)]);
        let text = format!("MaxPool2d([{}; {}]{options}, ceil_mode = {})", height.kernel, width.kernel, height.ceil);
        let area = height.size * width.size;
        let mut input = values(BATCH * 2 * area, 1);
        if ties {
            input = input.iter().map(|x| (x * 4.0).floor()).collect();
            input[area / 2] = f32::NAN;
        }
        let found = run([2, height.size, width.size], &text, &input, target);
        let (Some(rows), Some(columns)) = (height.positions(), width.positions()) else {
            prop_assert!(found.is_none(), "{}", text);
            return Ok(());
        };
        // Dilation can step over the whole input; such a window's maximum is minus infinity, here as in PyTorch.
        let empty = |axis: Axis, count: usize| (0..count).any(|position| axis.reads(position).is_empty());
        prop_assume!(!empty(height, rows) && !empty(width, columns));
        let found = found.unwrap();
        prop_assert_eq!(found.output_shape, [2, rows as u64, columns as u64]);
        let mut gradient = vec![0.0; input.len()];
        let mut loss = 0.0;
        for_positions(BATCH * 2, [rows, columns], |plane, o, index| {
            let mut best: Option<(f32, usize)> = None;
            for (_, y) in height.reads(o[0]) {
                for (_, x) in width.reads(o[1]) {
                    let at = plane * area + y * width.size + x;
                    // The first of equal ones, and the last NaN, as in PyTorch.
                    if best.is_none_or(|(max, _)| input[at] > max || input[at].is_nan()) {
                        best = Some((input[at], at));
                    }
                }
            }
            let (max, at) = best.unwrap();
            gradient[at] += f64::from(target(index));
            loss += f64::from(max) * f64::from(target(index));
        });
        assert_near(&text, &found.input_gradient, &gradient);
        assert_near(&text, &[found.loss as f32], &[loss]);
    }

    #[test]
    fn means(mut height in axis(), mut width in axis(), count_include_pad in any::<bool>()) {
        width.ceil = height.ceil;
        for axis in [&mut height, &mut width] {
            (axis.padding, axis.dilation) = (axis.padding.min(axis.kernel / 2), 1);
        }
        let axes = [height, width];
        let options = pairs(axes, &[("stride", |a| a.stride), ("padding", |a| a.padding)]);
        let text = format!(
            "AvgPool2d([{}; {}]{options}, ceil_mode = {}, count_include_pad = {count_include_pad})",
            height.kernel, width.kernel, height.ceil
        );
        let area = height.size * width.size;
        let input = values(BATCH * 2 * area, 1);
        let found = run([2, height.size, width.size], &text, &input, target);
        let (Some(rows), Some(columns)) = (height.positions(), width.positions()) else {
            prop_assert!(found.is_none(), "{}", text);
            return Ok(());
        };
        let found = found.unwrap();
        prop_assert_eq!(found.output_shape, [2, rows as u64, columns as u64]);
        let mut gradient = vec![0.0; input.len()];
        let mut loss = 0.0;
        for_positions(BATCH * 2, [rows, columns], |plane, o, index| {
            let divisor = height.divisor(o[0], count_include_pad) * width.divisor(o[1], count_include_pad);
            for (_, y) in height.reads(o[0]) {
                for (_, x) in width.reads(o[1]) {
                    let at = plane * area + y * width.size + x;
                    gradient[at] += f64::from(target(index)) / divisor as f64;
                    loss += f64::from(input[at]) * f64::from(target(index)) / divisor as f64;
                }
            }
        });
        assert_near(&text, &found.input_gradient, &gradient);
        assert_near(&text, &[found.loss as f32], &[loss]);
    }

    /// Both kinds of convolution connect the same elements: what is input to one is output of the other.
    #[test]
    fn convolutions(
        mut height in axis(),
        mut width in axis(),
        channels in (1usize..3, 1usize..3),
        groups in 1usize..4,
        extra in (0usize..3, 0usize..3),
        transposed in any::<bool>(),
        same in any::<bool>(),
    ) {
        let same = same && !transposed;
        if same {
            for axis in [&mut height, &mut width] {
                // PyTorch's `_convolution_same`: of what a window covers but for one, the smaller half stands in front.
                (axis.stride, axis.padding) = (1, axis.dilation * (axis.kernel - 1) / 2);
            }
        }
        let axes = [height, width];
        let [input_each, output_each] = [channels.0, channels.1];
        let (inputs, outputs) = (input_each * groups, output_each * groups);
        let mut options =
            pairs(axes, &[("stride", |a| a.stride), ("padding", |a| a.padding), ("dilation", |a| a.dilation)]);
        if same {
            options = pairs(axes, &[("dilation", |a| a.dilation)]) + ", padding = \"same\"";
        }
        options += &format!(", groups = {groups}, bias = false");
        // The window slides over the image; a transposed convolution's input is the positions.
        let (image, positions) = if transposed {
            let sizes = [(height, extra.0), (width, extra.1)].map(|(axis, extra)| {
                let whole = (axis.size - 1) * axis.stride + axis.dilation * (axis.kernel - 1) + 1 + extra;
                whole.checked_sub(2 * axis.padding).filter(|&size| size > 0 && extra < axis.stride.max(axis.dilation))
            });
            options += &format!(", output_padding = [{}; {}]", extra.0, extra.1);
            (sizes, axes.map(|axis| Some(axis.size)))
        } else {
            let positions = |axis: Axis| {
                if same { Some(axis.size) } else { Axis { ceil: false, ..axis }.positions() }
            };
            (axes.map(|axis| Some(axis.size)), axes.map(positions))
        };
        let name = if transposed { "ConvTranspose2d" } else { "Conv2d" };
        let text = format!("{name}({outputs}, [{}; {}]{options})", height.kernel, width.kernel);
        let input = values(BATCH * inputs * height.size * width.size, 1);
        let found = run([inputs, height.size, width.size], &text, &input, target);
        let ([Some(tall), Some(wide)], [Some(rows), Some(columns)]) = (image, positions) else {
            prop_assert!(found.is_none(), "{}", text);
            return Ok(());
        };
        let found = found.unwrap();
        let size = if transposed { [tall, wide] } else { [rows, columns] };
        prop_assert_eq!(&found.output_shape, &[outputs as u64, size[0] as u64, size[1] as u64]);
        let [vertical, horizontal] = [Axis { size: tall, ..height }, Axis { size: wide, ..width }];
        let taps = height.kernel * width.kernel;
        let (mut dx, mut dw, mut loss) = (vec![0.0; input.len()], vec![0.0; found.weight.len()], 0.0);
        for sample in 0..BATCH {
            for (group, i, o) in (0..groups * input_each * output_each)
                .map(|n| (n / (input_each * output_each), n / output_each % input_each, n % output_each))
            {
                let [x_plane, y_plane] =
                    [sample * inputs + group * input_each + i, sample * outputs + group * output_each + o];
                let w_plane = if transposed {
                    (group * input_each + i) * output_each + o
                } else {
                    (group * output_each + o) * input_each + i
                };
                for_positions(1, [rows, columns], |_, at, position| {
                    for (ky, y) in vertical.reads(at[0]) {
                        for (kx, x) in horizontal.reads(at[1]) {
                            let pixel = y * wide + x;
                            let [a, b] = if transposed {
                                [x_plane * rows * columns + position, y_plane * tall * wide + pixel]
                            } else {
                                [x_plane * tall * wide + pixel, y_plane * rows * columns + position]
                            };
                            let k = w_plane * taps + ky * width.kernel + kx;
                            let [x, w, t] = [input[a], found.weight[k], target(b)].map(f64::from);
                            dx[a] += w * t;
                            dw[k] += x * t;
                            loss += x * w * t;
                        }
                    }
                });
            }
        }
        assert_near(&text, &found.input_gradient, &dx);
        assert_near(&text, &found.weight_gradient.unwrap(), &dw);
        assert_near(&text, &[found.loss as f32], &[loss]);
    }

    #[test]
    fn adaptive_means_and_repetitions(size in (1usize..12, 1usize..12), other in (1usize..8, 1usize..8)) {
        let (input, area) = (values(BATCH * 2 * size.0 * size.1, 1), size.0 * size.1);
        let text = format!("AdaptiveAvgPool2d([{}; {}])", other.0, other.1);
        let found = run([2, size.0, size.1], &text, &input, target).unwrap();
        let mut gradient = vec![0.0; input.len()];
        for_positions(BATCH * 2, [other.0, other.1], |plane, o, index| {
            let window = |o: usize, size: usize, count: usize| o * size / count..((o + 1) * size).div_ceil(count);
            let [rows, columns] = [window(o[0], size.0, other.0), window(o[1], size.1, other.1)];
            let share = f64::from(target(index)) / (rows.len() * columns.len()) as f64;
            for (y, x) in rows.flat_map(|y| columns.clone().map(move |x| (y, x))) {
                gradient[plane * area + y * size.1 + x] += share;
            }
        });
        assert_near(&text, &found.input_gradient, &gradient);
        let text = format!("AdaptiveMaxPool2d([{}; {}])", other.0, other.1);
        let found = run([2, size.0, size.1], &text, &input, target).unwrap();
        let mut gradient = vec![0.0; input.len()];
        for_positions(BATCH * 2, [other.0, other.1], |plane, o, index| {
            let window = |o: usize, size: usize, count: usize| o * size / count..((o + 1) * size).div_ceil(count);
            let [rows, columns] = [window(o[0], size.0, other.0), window(o[1], size.1, other.1)];
            let places = rows.flat_map(|y| columns.clone().map(move |x| plane * area + y * size.1 + x));
            // The first of those that are largest.
            let best = places.reduce(|best, at| if input[at] > input[best] { at } else { best });
            gradient[best.unwrap()] += f64::from(target(index));
        });
        assert_near(&text, &found.input_gradient, &gradient);
        let text = format!("Upsample([{}; {}])", other.0, other.1);
        let found = run([2, size.0, size.1], &text, &input, target).unwrap();
        let mut gradient = vec![0.0; input.len()];
        for_positions(BATCH * 2, [size.0 * other.0, size.1 * other.1], |plane, o, index| {
            gradient[plane * area + o[0] / other.0 * size.1 + o[1] / other.1] += f64::from(target(index));
        });
        assert_near(&text, &found.input_gradient, &gradient);
        let loss: f64 = gradient.iter().zip(&input).map(|(&g, &x)| g * f64::from(x)).sum();
        assert_near(&text, &[found.loss as f32], &[loss]);
    }
}

//! Forward passes against plain loops in double precision, and against numbers worked out by hand.

mod common;

use common::{Input, OneLayer, Options, assert_close};
/// Output, inputs and parameters of one step, in double precision.
struct Run {
    output: Vec<f32>,
    input: Vec<f64>,
    parameters: Vec<Vec<f64>>,
}

fn run(layer: &str, inputs: &[Input], batch: u64) -> Run {
    let mut net = OneLayer::new(layer, inputs, Options { batch, ..Options::default() });
    net.run().unwrap();
    let wide = |values: Vec<f32>| values.into_iter().map(f64::from).collect();
    let parameters = net.parameters.clone().into_iter().map(|id| wide(net.get(id))).collect();
    Run { output: net.get(net.output), input: wide(net.get(net.inputs[0])), parameters }
}

/// `y[b, o, i] += w * x[b, c, at(i, k)]` for every pair that a convolution connects, found by comparing coordinates.
fn connect(geometry: [[u64; 2]; 6], mut f: impl FnMut([usize; 2], [usize; 2], [usize; 2])) {
    let [image, positions, kernel, stride, padding, dilation] = geometry;
    for row in 0..positions[0] {
        for column in 0..positions[1] {
            for ky in 0..kernel[0] {
                for kx in 0..kernel[1] {
                    let y = (row * stride[0] + ky * dilation[0]) as i64 - padding[0] as i64;
                    let x = (column * stride[1] + kx * dilation[1]) as i64 - padding[1] as i64;
                    if (0..image[0] as i64).contains(&y) && (0..image[1] as i64).contains(&x) {
                        let place = |a: u64, b: u64| [a as usize, b as usize];
                        f(place(row, column), place(ky, kx), [y as usize, x as usize]);
                    }
                }
            }
        }
    }
}

fn index(dims: &[usize], at: &[usize]) -> usize {
    dims.iter().zip(at).fold(0, |sum, (dim, at)| sum * dim + at)
}

/// Two numbers as the language has them.
fn pair([height, width]: [u64; 2]) -> String {
    format!("[{height}; {width}]")
}

/// The options of a layer with a window.
fn options(stride: [u64; 2], padding: [u64; 2], more: &str) -> String {
    format!(", stride = {}, padding = {}, {more}", pair(stride), pair(padding))
}

#[test]
fn convolutions_are_sums_over_windows() {
    // Depthwise, grouped, dilated, strided; the last is cut into several blocks.
    for (channels, groups, input, kernel, stride, padding, dilation) in [
        ([2, 4], 1, [5, 7], [3, 2], [1, 2], [1, 0], [1, 1]),
        ([4, 6], 2, [6, 5], [2, 3], [2, 1], [0, 2], [2, 1]),
        ([3, 3], 3, [6, 5], [3, 3], [2, 1], [1, 1], [1, 2]),
        ([3, 4], 1, [4, 3], [1, 1], [1, 1], [0, 0], [1, 1]),
        ([8, 3], 1, [40, 30], [5, 5], [1, 1], [2, 2], [1, 1]),
    ] {
        let output: [u64; 2] =
            [0, 1].map(|a| (input[a] + 2 * padding[a] - dilation[a] * (kernel[a] - 1) - 1) / stride[a] + 1);
        let [in_channels, out_channels] = channels;
        let options = options(stride, padding, &format!("dilation = {}, groups = {groups}", pair(dilation)));
        let layer = format!("Conv2d({out_channels}, {}{options})", pair(kernel));
        let found = run(&layer, &[Input::Numbers(vec![in_channels, input[0], input[1]])], 2);
        let [ci, co, g] = [in_channels, out_channels, groups].map(|x| x as usize);
        let size = |pair: [u64; 2]| pair.map(|x| x as usize);
        let ([h, w], [oh, ow], [kh, kw]) = (size(input), size(output), size(kernel));
        let mut expected = vec![0.0; 2 * co * oh * ow];
        for b in 0..2 {
            for o in 0..co {
                let bias = found.parameters[1][o];
                (0..oh * ow).for_each(|i| expected[(b * co + o) * oh * ow + i] = bias);
                for c in 0..ci / g {
                    connect([input, output, kernel, stride, padding, dilation], |[row, column], [ky, kx], [y, x]| {
                        let weight = found.parameters[0][index(&[co, ci / g, kh, kw], &[o, c, ky, kx])];
                        let channel = o / (co / g) * (ci / g) + c;
                        expected[index(&[2, co, oh, ow], &[b, o, row, column])] +=
                            weight * found.input[index(&[2, ci, h, w], &[b, channel, y, x])];
                    });
                }
            }
        }
        assert_close(&found.output, &expected, 1e-5);
    }
}

#[test]
fn transposed_convolutions_spread_their_input() {
    for (channels, groups, kernel, stride, padding, extra) in
        [([2, 3], 1, [2, 2], [2, 2], [0, 0], 0), ([4, 2], 2, [3, 2], [2, 3], [1, 0], 1)]
    {
        let input = [3, 4];
        let output: [u64; 2] = [0, 1].map(|a| (input[a] - 1) * stride[a] + kernel[a] + extra - 2 * padding[a]);
        let [in_channels, out_channels] = channels;
        let options = options(stride, padding, &format!("output_padding = {extra}, groups = {groups}"));
        let layer = format!("ConvTranspose2d({out_channels}, {}{options})", pair(kernel));
        let found = run(&layer, &[Input::Numbers(vec![in_channels, 3, 4])], 2);
        let [ci, co, g] = [in_channels, out_channels, groups].map(|x| x as usize);
        let size = |pair: [u64; 2]| pair.map(|x| x as usize);
        let ([oh, ow], [kh, kw]) = (size(output), size(kernel));
        let mut expected = vec![0.0; 2 * co * oh * ow];
        for b in 0..2 {
            for o in 0..co {
                (0..oh * ow).for_each(|i| expected[(b * co + o) * oh * ow + i] = found.parameters[1][o]);
            }
            for c in 0..ci {
                for o in 0..co / g {
                    connect([output, input, kernel, stride, padding, [1, 1]], |[row, column], [ky, kx], [y, x]| {
                        let weight = found.parameters[0][index(&[ci, co / g, kh, kw], &[c, o, ky, kx])];
                        let channel = c / (ci / g) * (co / g) + o;
                        expected[index(&[2, co, oh, ow], &[b, channel, y, x])] +=
                            weight * found.input[index(&[2, ci, 3, 4], &[b, c, row, column])];
                    });
                }
            }
        }
        assert_close(&found.output, &expected, 1e-5);
    }
}

#[test]
fn large_products_are_cut_correctly() {
    let found = run("Linear(300)", &[Input::Numbers(vec![150, 20])], 4);
    let mut expected = Vec::new();
    for row in found.input.chunks(20) {
        for (o, weight) in found.parameters[0].chunks(20).enumerate() {
            expected.push(found.parameters[1][o] + row.iter().zip(weight).map(|(x, w)| x * w).sum::<f64>());
        }
    }
    assert_close(&found.output, &expected, 1e-5);
}

#[test]
fn normalised_rows_have_mean_0_and_variance_1() {
    for row in run("LayerNorm(eps = 0.0, elementwise_affine = false)", &[Input::Numbers(vec![8])], 3).output.chunks(8) {
        assert!(row.iter().sum::<f32>().abs() < 1e-5);
        assert!((row.iter().map(|x| x * x).sum::<f32>() - 8.0).abs() < 1e-4);
    }
}

#[test]
fn running_statistics_move_towards_the_batch() {
    let layer = "BatchNorm2d(momentum = 0.25)";
    let mut net = OneLayer::new(layer, &[Input::Numbers(vec![1, 1, 2])], Options::default());
    net.set(net.inputs[0], &[1.0, 3.0, 5.0, 7.0]);
    net.set(net.parameters[0], &[2.0]);
    net.set(net.parameters[1], &[1.0]);
    net.run().unwrap();
    // Mean 4; biased variance 5, unbiased 20 / 3.
    let [mean, variance] = [net.buffers[0], net.buffers[1]].map(|id| net.get(id)[0]);
    assert_close(&[mean, variance], &[0.25 * 4.0, 0.75 + 0.25 * 20.0 / 3.0], 1e-6);
    let std = (5.0f64 + 1e-5).sqrt();
    let output = net.get(net.output);
    assert_close(&output, &[-3.0, -1.0, 1.0, 3.0].map(|x| 2.0 * x / std + 1.0), 1e-6);
}

#[test]
fn pooled_maps_by_hand() {
    let map = [Input::Numbers(vec![1, 3, 3])];
    let values: Vec<f32> = (1..=9).map(|x| x as f32).collect();
    let pooled = |layer: &str| {
        let mut net = OneLayer::new(layer, &map, Options { batch: 1, ..Options::default() });
        net.set(net.inputs[0], &values);
        net.run().unwrap();
        net.get(net.output)
    };
    assert_eq!(pooled("MaxPool2d(2, padding = 1)"), [1.0, 3.0, 7.0, 9.0]);
    // `ceil_mode`: the last windows reach beyond the map.
    assert_eq!(pooled("MaxPool2d(2, ceil_mode = true)"), [5.0, 6.0, 8.0, 9.0]);
    assert_eq!(pooled("AvgPool2d(2, padding = 1)"), [0.25, 1.25, 2.75, 7.0]);
    assert_eq!(pooled("AvgPool2d(2, padding = 1, count_include_pad = false)"), [1.0, 2.5, 5.5, 7.0]);
    assert_eq!(pooled("AvgPool2d(2, ceil_mode = true)"), [3.0, 4.5, 7.5, 9.0]);
    assert_eq!(pooled("Upsample([1; 2])")[..6], [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]);
}

#[test]
fn a_softmax_along_channels_sums_to_1() {
    let found = run("Softmax", &[Input::Numbers(vec![3, 2, 20])], 2);
    for sample in 0..2 {
        for position in 0..40 {
            let at = |class: usize| sample * 120 + class * 40 + position;
            let sum: f64 = (0..3).map(|class| found.input[at(class)].exp()).sum();
            let expected: Vec<f64> = (0..3).map(|class| found.input[at(class)].exp() / sum).collect();
            assert_close(&[0, 1, 2].map(|class| found.output[at(class)]), &expected, 1e-6);
        }
    }
}

#[test]
fn attention_sees_the_past_only() {
    let (heads, steps, features) = (2, 67, 6);
    let found = run("CausalAttention(2)", &[Input::Numbers(vec![steps, 3 * features])], 2);
    let mut expected = vec![0.0; found.output.len()];
    let [heads, steps, features] = [heads, steps, features].map(|x| x as usize);
    let width = features / heads;
    for b in 0..2 {
        for h in 0..heads {
            let part =
                |part: usize, t: usize, d: usize| found.input[((b * steps + t) * 3 + part) * features + h * width + d];
            for i in 0..steps {
                let score = |j: usize| {
                    ((0..width).map(|d| part(0, i, d) * part(1, j, d)).sum::<f64>() / (width as f64).sqrt()).exp()
                };
                let sum: f64 = (0..=i).map(score).sum();
                for d in 0..width {
                    expected[(b * steps + i) * features + h * width + d] =
                        (0..=i).map(|j| score(j) / sum * part(2, j, d)).sum();
                }
            }
        }
    }
    assert_close(&found.output, &expected, 1e-5);
}

#[test]
fn dropout_keeps_the_mean_and_follows_the_seed() {
    let mut net = OneLayer::new("Dropout(0.3)", &[Input::Numbers(vec![10_000])], Options::default());
    net.set(net.inputs[0], &vec![1.0; 20_000]);
    net.run().unwrap();
    let first = net.get(net.output);
    let mean = first.iter().sum::<f32>() / 20_000.0;
    assert!((mean - 1.0).abs() < 0.02, "mean {mean}");
    let kept = (1.0f64 / 0.7) as f32;
    assert!(first.iter().all(|&x| x == 0.0 || x == kept));
    net.run().unwrap();
    assert_eq!(first, net.get(net.output), "the same step draws the same");
    let state = net.offsets[net.state as usize];
    common::write_words(&mut net.session, state, &[6, 0, 77, 1]);
    net.run().unwrap();
    assert_ne!(first, net.get(net.output), "another step draws anew");
}

#[test]
fn channels_and_samples_are_dropped_whole() {
    for (layer, shared) in [("Dropout2d(0.5)", 6), ("DropPath(0.5)", 24)] {
        let mut net = OneLayer::new(layer, &[Input::Numbers(vec![4, 2, 3])], Options::default());
        let samples = net.get(net.inputs[0]).len() / 24;
        net.set(net.inputs[0], &vec![1.0; samples * 24]);
        let mut means = 0.0;
        for step in 0..400 {
            let state = net.offsets[net.state as usize];
            common::write_words(&mut net.session, state, &[step, 0, 77, 1]);
            net.run().unwrap();
            let found = net.get(net.output);
            for group in found.chunks(shared) {
                assert!(group.iter().all(|&x| x == group[0] && (x == 0.0 || x == 2.0)), "{layer}: {group:?}");
            }
            means += found.iter().sum::<f32>() / found.len() as f32 / 400.0;
        }
        assert!((means - 1.0).abs() < 0.15, "{layer}: mean {means}");
    }
}

#[test]
fn tokens_pick_rows() {
    let found = run_tokens("Embedding(4, 3)", vec![3, 0, 1, 3]);
    let table = common::numbers(12, 3, 1.0);
    let expected: Vec<f32> = [3, 0, 1, 3].iter().flat_map(|&row| table[row * 3..][..3].to_vec()).collect();
    assert_eq!(found, expected);
}

fn run_tokens(layer: &str, tokens: Vec<u32>) -> Vec<f32> {
    let mut net = OneLayer::new(layer, &[Input::Tokens(tokens)], Options::default());
    net.run().unwrap();
    net.get(net.output)
}

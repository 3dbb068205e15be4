//! Every layer's backward pass against differences of its forward pass: overwriting and accumulating, in place and not.

mod common;

use common::{Input, OneLayer, Options};
use gpumem_core::layers::rule::Backward;
use gpumem_core::layers::{
    AdaptiveAvgPool2d, Add, AvgPool2d, BatchNorm2d, CausalAttention, Concat, Conv2d, ConvTranspose2d, Dropout,
    Embedding, Gelu, GlobalAvgPool, Layer, LayerNorm, LeakyRelu, Linear, MaxPool2d, Mul, PositionEmbedding, Relu,
    Relu6, Sigmoid, Silu, Softmax, Tanh, Tied, Upsample,
};
use gpumem_core::shape::Shape;

fn conv(
    channels: [u64; 2],
    kernel: [u64; 2],
    stride: [u64; 2],
    padding: [u64; 2],
    dilation: [u64; 2],
    groups: u64,
) -> Layer {
    let input = [5, 6];
    let output = [0, 1].map(|a| (input[a] + 2 * padding[a] - dilation[a] * (kernel[a] - 1) - 1) / stride[a] + 1);
    Layer::Conv2d(Conv2d {
        in_channels: channels[0],
        out_channels: channels[1],
        kernel_size: kernel,
        stride,
        padding,
        dilation,
        groups,
        bias: true,
        input,
        output,
    })
}

fn transposed(
    channels: [u64; 2],
    kernel: [u64; 2],
    stride: [u64; 2],
    padding: [u64; 2],
    extra: u64,
    groups: u64,
) -> Layer {
    let input = [3, 4];
    let output = [0, 1].map(|a| (input[a] - 1) * stride[a] + kernel[a] + extra - 2 * padding[a]);
    Layer::ConvTranspose2d(ConvTranspose2d {
        in_channels: channels[0],
        out_channels: channels[1],
        kernel_size: kernel,
        stride,
        padding,
        dilation: [1, 1],
        groups,
        bias: true,
        input,
        output,
    })
}

/// Checks a layer in every way in which it can be run.
fn check(layer: Layer, inputs: &[Input], scale: f32) {
    let name = format!("{layer:?}");
    let base = Options { scale, ..Options::default() };
    OneLayer::new(&layer, inputs, base).check_gradients(&name);
    OneLayer::new(&layer, inputs, Options { accumulate: true, ..base })
        .check_gradients(&format!("accumulating {name}"));
    // Where the backward pass needs the input, a network lets the forward pass overwrite it in inference only.
    let (backward_in_place, keeps_input) = match layer.backward() {
        Backward::Input { reads, in_place } | Backward::Joint { reads, in_place } => (in_place, reads.input),
        Backward::Parameters { .. } | Backward::Split { .. } => (false, false),
    };
    let apart = OneLayer::new(&layer, inputs, base).results();
    if backward_in_place {
        let found = OneLayer::new(&layer, inputs, Options { backward_in_place, ..base }).results();
        assert_eq!(apart, found, "{name} with its gradient in place");
    }
    if layer.in_place() && !keeps_input {
        let found = OneLayer::new(&layer, inputs, Options { forward_in_place: true, ..base }).results();
        assert_eq!(apart, found, "{name} in place");
    } else if layer.in_place() {
        let found = OneLayer::new(&layer, inputs, Options { forward_in_place: true, ..base }).results();
        assert_eq!(apart.last(), found.last(), "{name} in place");
    }
    let alone = OneLayer::new(&layer, inputs, Options { threads: 1, ..base }).results();
    let many = OneLayer::new(&layer, inputs, Options { threads: 3, ..base }).results();
    assert_eq!(alone, many, "{name} with another number of threads");
}

fn map(channels: u64) -> [Input; 1] {
    [Input::Numbers(vec![channels, 5, 6])]
}

#[test]
fn convolutions() {
    check(conv([2, 3], [3, 3], [1, 1], [1, 1], [1, 1], 1), &map(2), 1.0);
    check(conv([2, 4], [3, 2], [2, 1], [0, 1], [1, 2], 2), &map(2), 1.0);
    check(conv([3, 2], [1, 1], [1, 1], [0, 0], [1, 1], 1), &map(3), 1.0);
    check(conv([3, 2], [1, 1], [2, 2], [0, 0], [1, 1], 1), &map(3), 1.0);
    check(conv([3, 3], [3, 3], [1, 1], [1, 1], [1, 1], 3), &map(3), 1.0);
    check(conv([2, 2], [3, 3], [2, 2], [2, 2], [2, 1], 2), &map(2), 1.0);
    check(conv([2, 4], [3, 3], [1, 2], [1, 1], [1, 1], 2), &map(2), 1.0);
    // Padding that makes whole windows empty.
    check(conv([1, 2], [2, 2], [1, 1], [3, 3], [1, 1], 1), &map(1), 1.0);
}

#[test]
fn transposed_convolutions() {
    let input = |channels| [Input::Numbers(vec![channels, 3, 4])];
    check(transposed([2, 3], [2, 2], [2, 2], [0, 0], 0, 1), &input(2), 1.0);
    check(transposed([2, 4], [3, 2], [2, 3], [1, 0], 1, 2), &input(2), 1.0);
    check(transposed([2, 2], [3, 3], [2, 2], [1, 1], 1, 2), &input(2), 1.0);
}

#[test]
fn products() {
    let linear = |rows, bias| {
        let shape = if rows == 1 { Shape::new(&[4]) } else { Shape::new(&[rows, 4]) };
        Layer::Linear(Linear { rows, in_features: 5, out_features: 4, bias, shape })
    };
    check(linear(1, true), &[Input::Numbers(vec![5])], 1.0);
    check(linear(3, false), &[Input::Numbers(vec![3, 5])], 1.0);
    for transposed in [false, true] {
        let shape = Shape::new(&[3, 4]);
        let tied = Layer::Tied(Tied { rows: 3, in_features: 5, out_features: 4, transposed, shape });
        check(tied, &[Input::Numbers(vec![3, 5])], 1.0);
    }
}

#[test]
fn normalisations() {
    for affine in [true, false] {
        let norm = BatchNorm2d { num_features: 2, size: [5, 6], eps: 1e-5, momentum: 0.1, affine };
        check(Layer::BatchNorm2d(norm), &map(2), 1.0);
        for bias in [affine, false] {
            let shape = Shape::new(&[3, 6]);
            let norm = LayerNorm { rows: 3, features: 6, eps: 1e-5, affine, bias, shape };
            check(Layer::LayerNorm(norm), &[Input::Numbers(vec![3, 6])], 1.0);
        }
    }
}

#[test]
fn poolings() {
    let (channels, input) = (2, [5, 6]);
    let pool = |kernel_size, stride, padding, dilation, output| {
        Layer::MaxPool2d(MaxPool2d { channels, kernel_size, stride, padding, dilation, input, output })
    };
    check(pool([2, 2], [2, 2], [0, 0], [1, 1], [2, 3]), &map(2), 1.0);
    // Windows that overlap, and with `ceil_mode` one that reaches beyond the padding.
    check(pool([3, 3], [2, 1], [1, 0], [1, 2], [3, 2]), &map(2), 1.0);
    check(pool([2, 3], [2, 2], [0, 1], [1, 1], [3, 4]), &map(2), 1.0);
    for count_include_pad in [true, false] {
        let pool = AvgPool2d {
            channels,
            kernel_size: [3, 2],
            stride: [2, 2],
            padding: [1, 1],
            count_include_pad,
            input,
            output: [3, 4],
        };
        check(Layer::AvgPool2d(pool), &map(2), 1.0);
    }
    check(Layer::AdaptiveAvgPool2d(AdaptiveAvgPool2d { channels, input, output: [3, 4] }), &map(2), 1.0);
    check(Layer::GlobalAvgPool(GlobalAvgPool { channels, input }), &map(2), 1.0);
    check(Layer::Upsample(Upsample { channels, scale_factor: [2, 3], input }), &map(2), 1.0);
}

#[test]
fn functions_of_one_number() {
    let shape = Shape::new(&[2, 9]);
    let input = [Input::Numbers(vec![2, 9])];
    check(Layer::Relu(Relu { shape, inplace: false }), &input, 1.0);
    check(Layer::Relu6(Relu6 { shape, inplace: false }), &input, 5.5);
    check(Layer::LeakyRelu(LeakyRelu { shape, inplace: false, negative_slope: 0.2 }), &input, 1.0);
    check(Layer::Gelu(Gelu { shape, tanh: false }), &input, 2.0);
    check(Layer::Gelu(Gelu { shape, tanh: true }), &input, 2.0);
    check(Layer::Silu(Silu { shape }), &input, 2.0);
    check(Layer::Sigmoid(Sigmoid { shape }), &input, 2.0);
    check(Layer::Tanh(Tanh { shape }), &input, 1.0);
    check(Layer::Dropout(Dropout { shape, inplace: false, p: 0.4 }), &input, 1.0);
    check(Layer::Softmax(Softmax { shape, outer: 2, classes: 9, inner: 1 }), &input, 1.0);
    let shape = Shape::new(&[3, 2, 35]);
    let softmax = Softmax { shape, outer: 1, classes: 3, inner: 70 };
    check(Layer::Softmax(softmax), &[Input::Numbers(vec![3, 2, 35])], 1.0);
}

#[test]
fn tables() {
    let embedding = Embedding { num_embeddings: 5, embedding_dim: 3, tokens: 4 };
    check(Layer::Embedding(embedding), &[Input::Tokens(vec![0, 3, 3, 1, 4, 3, 0, 1])], 1.0);
    let positions = PositionEmbedding { positions: 5, embedding_dim: 3, steps: 4 };
    check(Layer::PositionEmbedding(positions), &[Input::Tokens(vec![0; 8])], 1.0);
}

#[test]
fn attention() {
    for dropout in [0.0, 0.3] {
        let layer = CausalAttention { heads: 2, steps: 4, features: 4, dropout };
        check(Layer::CausalAttention(layer), &[Input::Numbers(vec![4, 12])], 1.0);
    }
    // More rows than are worked on together.
    let layer = Layer::CausalAttention(CausalAttention { heads: 1, steps: 70, features: 1, dropout: 0.1 });
    let options = Options { batch: 1, ..Options::default() };
    OneLayer::new(&layer, &[Input::Numbers(vec![70, 3])], options).check_gradients("long attention");
}

#[test]
fn joins() {
    let shape = Shape::new(&[2, 6]);
    let two = [Input::Numbers(vec![2, 6]), Input::Numbers(vec![2, 6])];
    check(Layer::Mul(Mul { shape }), &two, 1.0);
    let sum = Layer::Add(Add { branches: 3, shape });
    let inputs = [Input::Numbers(vec![2, 6]), Input::Shared(vec![2, 6]), Input::Numbers(vec![2, 6])];
    let found = OneLayer::new(&sum, &inputs, Options::default()).results();
    let values: Vec<Vec<f32>> =
        [(24, 0), (12, 7), (24, 14)].map(|(length, seed)| common::numbers(length, seed, 1.0)).to_vec();
    let expected: Vec<f64> =
        (0..24).map(|i| f64::from(values[0][i]) + f64::from(values[1][i % 12]) + f64::from(values[2][i])).collect();
    common::assert_close(&found[0], &expected, 1e-6);
    let in_place = OneLayer::new(&sum, &inputs, Options { forward_in_place: true, ..Options::default() }).results();
    common::assert_close(&in_place[0], &expected, 1e-6);
    for (outer, dims) in [(1, [[1, 2, 3], [4, 2, 3]]), (3, [[3, 2, 1], [3, 5, 1]])] {
        let shapes: Vec<Vec<u64>> =
            dims.iter().map(|d| if outer == 1 { d.to_vec() } else { d[..2].to_vec() }).collect();
        let parts = shapes.iter().map(|d| d.iter().product::<u64>() / outer).collect();
        let mut shape = shapes[0].clone();
        shape[usize::from(outer > 1)] += shapes[1][usize::from(outer > 1)];
        let layer = Layer::Concat(Concat { outer, parts, shape: Shape::new(&shape) });
        check(layer, &shapes.into_iter().map(Input::Numbers).collect::<Vec<_>>(), 1.0);
    }
}

/// Maps that are unfolded in several blocks, batches that are summed in one part and in many: a convolution without bias is
/// linear in its weight and in its input, so that both products with their gradients are the loss.
#[test]
fn large_convolutions() {
    let (size, kernel_size, padding) = ([30, 30], [5, 5], [2, 2]);
    let conv = Conv2d {
        in_channels: 64,
        out_channels: 2,
        kernel_size,
        stride: [1, 1],
        padding,
        dilation: [1, 1],
        groups: 1,
        bias: false,
        input: size,
        output: size,
    };
    for batch in [1, 20] {
        for accumulate in [false, true] {
            let options = Options { batch, accumulate, ..Options::default() };
            let input = Input::Numbers(vec![64, 30, 30]);
            let mut net = OneLayer::new(&Layer::Conv2d(conv.clone()), &[input], options);
            // Without a mean of 0, for otherwise a constant that is missing from a gradient would not show.
            for id in [net.inputs[0], net.parameters[0]] {
                let shifted: Vec<f32> = net.get(id).iter().map(|x| x + 0.25).collect();
                net.set(id, &shifted);
            }
            let loss = f64::from(net.run().unwrap());
            let scale: f64 = net.get(net.output).iter().map(|&y| f64::from(y).abs()).sum();
            for (id, gradient) in net.gradients() {
                let pairs = net.get(id).into_iter().zip(net.get(gradient));
                let product: f64 = pairs.map(|(x, dx)| f64::from(x) * f64::from(dx - net.before)).sum();
                assert!((product - loss).abs() < 1e-6 * scale, "batch {batch}, tensor {id}: {product} {loss}");
            }
        }
    }
}

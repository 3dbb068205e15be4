//! Every layer and loss against PyTorch: output and all gradients, to 1e-5.
//!
//! The expected tensors in `truth/ops` were computed by PyTorch 2.15 in float64 from float32 inputs and rounded to
//! float32. A loss that multiplies the output with a given tensor makes any gradient of the output reachable.

mod harness;

use gpumem_core::Update;
use gpumem_core::graph::{Graph, NodeId, Type};
use gpumem_core::lower::{Term, Training};
use gpumem_core::program::Measure;
use gpumem_core::shape::Shape;
use gpumem_core::train::optim::{Optimizer, Sgd};
use harness::graphs::{chain, join};
use harness::{Loaded, Truth, assert_close};

const TOLERANCE: f64 = 1e-5;

/// Learning rate 0: gradients are computed, parameters stay.
const STAY: Optimizer = Optimizer::Sgd(Sgd { lr: 0.0, ..Sgd::DEFAULT });

fn training(loss: &[Term]) -> Training<'_> {
    Training {
        loss,
        moments: 0,
        update: Update::Separate,
        skips_overflow: false,
        input_gradient: true,
        descent: gpumem_core::train::Descent::PLAIN,
    }
}

/// The inputs of a file as inputs of a graph.
fn inputs(graph: &mut Graph, truth: &Truth, names: &[&str]) -> Vec<NodeId> {
    names
        .iter()
        .map(|name| {
            let shape = Shape::new(&truth.shape(&format!("input.{name}"))[1..]);
            graph.input(if *name == "idx" { Type::indices(shape) } else { Type::numbers(shape) }).unwrap()
        })
        .collect()
}

/// One layer: forward against `output`, backward against every `grad_*`, running statistics against `buffer_after.*`.
fn check_layer(file: &str, text: &str, names: &[&str]) {
    let truth = Truth::read(&format!("ops/{file}.safetensors"));
    let batch = truth.shape(&format!("input.{}", names[0]))[0];
    let mut graph = Graph::default();
    let nodes = inputs(&mut graph, &truth, names);
    let output = if let [node] = nodes[..] { chain(&mut graph, node, text) } else { join(&mut graph, &nodes, text) };
    let path = graph.rows[0].path.clone();
    let mut loaded = Loaded::new(&graph, output, training(&[Term::DOT]), batch, STAY);
    let input = |index: usize| if index == 0 { "input".to_string() } else { format!("input{index}") };
    for (index, name) in names.iter().enumerate() {
        loaded.set(&input(index), truth.words(&format!("input.{name}")));
    }
    for name in truth.names() {
        if let Some(parameter) = name.strip_prefix("param.") {
            loaded.set(&format!("{path}.{parameter}"), truth.words(name));
        }
        if let Some(buffer) = name.strip_prefix("buffer.").filter(|name| name.starts_with("running")) {
            loaded.set(&format!("{path}.{buffer}"), truth.words(name));
        }
    }
    loaded.set("target", truth.words("grad_output"));
    let loss = loaded.step().unwrap();
    let terms = truth.floats("output").into_iter().zip(truth.floats("grad_output"));
    let (expected, scale) = terms.fold((0.0, 0.0), |(sum, scale): (f64, f64), (y, dy)| {
        (sum + f64::from(y) * f64::from(dy), scale + (f64::from(y) * f64::from(dy)).abs())
    });
    assert!((f64::from(loss) - expected).abs() <= TOLERANCE * scale, "{file}: loss {loss}, expected {expected}");

    for name in truth.names() {
        if let Some(parameter) = name.strip_prefix("grad_param.") {
            let found = loaded.get(&format!("{path}.{parameter}.gradient")).unwrap();
            assert_close(&format!("{file} {name}"), &found, &truth.floats(name), TOLERANCE);
        }
        if let Some(wanted) = name.strip_prefix("grad_input.") {
            let index = names.iter().position(|name| *name == wanted).unwrap();
            // Branches of a sum get one gradient, which has the first input's name.
            let found = loaded.get(&format!("{}.gradient", input(index))).or_else(|| loaded.get("input.gradient"));
            assert_close(&format!("{file} {name}"), &found.unwrap(), &truth.floats(name), TOLERANCE);
        }
        if let Some(buffer) = name.strip_prefix("buffer_after.running") {
            let found = loaded.get(&format!("{path}.running{buffer}")).unwrap();
            assert_close(&format!("{file} {name}"), &found, &truth.floats(name), TOLERANCE);
        }
    }
    check_output(&truth, &graph, output, &path, names, batch, file);
}

/// The output against the expected one: their mean squared difference is the loss.
fn check_output(truth: &Truth, graph: &Graph, output: NodeId, path: &str, names: &[&str], batch: u64, file: &str) {
    let training = Training { skips_overflow: false, input_gradient: true, ..training(&[Term::MSE]) };
    let mut loaded = Loaded::new(graph, output, training, batch, STAY);
    for (index, name) in names.iter().enumerate() {
        let input = if index == 0 { "input".to_string() } else { format!("input{index}") };
        loaded.set(&input, truth.words(&format!("input.{name}")));
    }
    for name in truth.names() {
        if let Some(parameter) = name.strip_prefix("param.") {
            loaded.set(&format!("{path}.{parameter}"), truth.words(name));
        }
    }
    let expected = truth.floats("output");
    loaded.set("target", truth.words("output"));
    let loss = loaded.step().unwrap();
    let scale = expected.iter().map(|y| f64::from(y * y)).sum::<f64>() / expected.len() as f64;
    assert!(f64::from(loss) <= TOLERANCE * TOLERANCE * scale.max(1e-30), "{file}: mean squared difference {loss:e}");
}

/// Axes in another order, and then fewer of them.
#[test]
fn permute_and_reshape() {
    let truth = Truth::read("ops/086_permute_reshape.safetensors");
    let mut graph = Graph::default();
    let x = inputs(&mut graph, &truth, &["x"])[0];
    let output = chain(&mut graph, x, "Permute([0; 2; 1; 3]) | Reshape([5; 12])");
    let mut loaded = Loaded::new(&graph, output, training(&[Term::DOT]), 2, STAY);
    loaded.set("input", truth.words("input.x"));
    loaded.set("target", truth.words("grad_output"));
    loaded.step().unwrap();
    // Nothing is computed: all are the very numbers.
    assert_eq!(loaded.get("input.gradient").unwrap(), truth.floats("grad_input.x"));
    let mut loaded = Loaded::new(&graph, output, training(&[Term::MSE]), 2, STAY);
    loaded.set("input", truth.words("input.x"));
    loaded.set("target", truth.words("output"));
    assert_eq!(loaded.step().unwrap(), 0.0);
}

/// Two matrices, which are one sample.
#[test]
fn mat_mul() {
    let truth = Truth::read("ops/084_matmul_2d.safetensors");
    let mut graph = Graph::default();
    let shape = |name: &str| Type::numbers(Shape::new(truth.shape(&format!("input.{name}"))));
    let nodes = ["a", "b"].map(|name| graph.input(shape(name)).unwrap());
    let output = join(&mut graph, &nodes, "MatMul");
    for term in [Term::DOT, Term::MSE] {
        let terms = [term];
        let mut loaded = Loaded::new(&graph, output, training(&terms), 1, STAY);
        loaded.set("input", truth.words("input.a"));
        loaded.set("input1", truth.words("input.b"));
        if terms == [Term::MSE] {
            loaded.set("target", truth.words("output"));
            let largest = truth.floats("output").into_iter().fold(0.0_f32, |largest, y| largest.max(y.abs()));
            assert!(f64::from(loaded.step().unwrap().sqrt()) <= TOLERANCE * f64::from(largest));
            continue;
        }
        loaded.set("target", truth.words("grad_output"));
        loaded.step().unwrap();
        for (ours, theirs) in [("input.gradient", "grad_input.a"), ("input1.gradient", "grad_input.b")] {
            assert_close(theirs, &loaded.get(ours).unwrap(), &truth.floats(theirs), TOLERANCE);
        }
    }
}

/// Sines of parts of a map: what is added to a map has no gradient.
#[test]
fn positions_as_parts_of_a_map() {
    let truth = Truth::read("ops/105_positions_fourier.safetensors");
    let mut graph = Graph::default();
    let x = inputs(&mut graph, &truth, &["x"])[0];
    let positions = chain(&mut graph, x, "SinusoidalPositions(rows_first = true, interleaved = true, parts = true)");
    let output = join(&mut graph, &[x, positions], "Add");
    check_output(&truth, &graph, output, "", &["x"], 2, "105_positions_fourier");
}

/// The numbers of a table, and one number everywhere.
#[test]
fn constants() {
    let mut graph = Graph::default();
    let x = graph.input(Type::numbers(Shape::new(&[2, 3]))).unwrap();
    let table = chain(&mut graph, x, "Constant([0.5; -1; 2; 0.25; 1; -3.5], shape = [2; 3])");
    let one = chain(&mut graph, x, "Constant(0.125, shape = [2; 3])");
    let product = join(&mut graph, &[x, table], "Mul");
    let output = join(&mut graph, &[product, one], "Add");
    let mut loaded = Loaded::new(&graph, output, training(&[Term::MSE]), 2, STAY);
    let x: Vec<f32> = (0..12).map(|i| i as f32 - 4.0).collect();
    let table = [0.5, -1.0, 2.0, 0.25, 1.0, -3.5];
    let expected: Vec<u32> = (0..12).map(|i| (x[i] * table[i % 6] + 0.125).to_bits()).collect();
    loaded.set("input", &x.iter().map(|x| x.to_bits()).collect::<Vec<_>>());
    loaded.set("target", &expected);
    assert_eq!(loaded.step().unwrap(), 0.0);
}

/// XCiT's attention of channels: rows of length 1, and a learned temperature for each head, which is a factor of its queries.
#[test]
fn attention_with_a_learned_temperature() {
    let truth = Truth::read("ops/214_xca_temperature.safetensors");
    let mut graph = Graph::default();
    let x = inputs(&mut graph, &truth, &["x"])[0];
    let qkv = chain(&mut graph, x, "Linear(24)");
    let unit = "RmsNorm(5, eps = 0.0, elementwise_affine = false) | Affine(0.4472135954999579)";
    let heads = "Transpose(1, 2) | Reshape([2; 4; 5])";
    let q = format!("Slice(0, 8, dim = 2) | {heads} | {unit} | Scale(shape = [2; 1; 1])");
    let k = format!("Slice(8, 16, dim = 2) | {heads} | {unit}");
    let v = format!("Slice(16, dim = 2) | {heads}");
    let parts = [q, k, v].map(|text| chain(&mut graph, qkv, &text));
    let attended = join(&mut graph, &parts, "Attention(scale = 1.0)");
    let output = chain(&mut graph, attended, "Reshape([8; 5]) | Transpose(1, 2) | Linear(8)");
    let paths = |kind: &str| -> Vec<String> {
        graph.rows.iter().filter(|row| row.kind == kind).map(|row| row.path.clone()).collect()
    };
    let (linear, scale) = (paths("Linear"), paths("Scale"));
    let names = [
        (format!("{}.weight", linear[0]), "qkv.weight"),
        (format!("{}.bias", linear[0]), "qkv.bias"),
        (format!("{}.weight", linear[1]), "proj.weight"),
        (format!("{}.bias", linear[1]), "proj.bias"),
        (format!("{}.weight", scale[0]), "temperature"),
    ];
    for (loss, target) in [(Term::DOT, "grad_output"), (Term::MSE, "output")] {
        let terms = [loss];
        let mut loaded = Loaded::new(&graph, output, training(&terms), 2, STAY);
        loaded.set("input", truth.words("input.x"));
        names.iter().for_each(|(ours, theirs)| loaded.set(ours, truth.words(&format!("param.{theirs}"))));
        loaded.set("target", truth.words(target));
        let loss = loaded.step().unwrap();
        if target == "output" {
            assert!(f64::from(loss) <= TOLERANCE * TOLERANCE, "mean squared difference {loss:e}");
            continue;
        }
        for (ours, theirs) in &names {
            let found = loaded.get(&format!("{ours}.gradient")).unwrap();
            assert_close(theirs, &found, &truth.floats(&format!("grad_param.{theirs}")), TOLERANCE);
        }
        assert_close("x", &loaded.get("input.gradient").unwrap(), &truth.floats("grad_input.x"), TOLERANCE);
    }
}

macro_rules! layers {
    ($($name:ident: $file:literal, $text:literal, $inputs:expr;)*) => {
        $(#[test] fn $name() { check_layer($file, $text, &$inputs); })*
    };
}

layers! {
    conv2d: "000_conv2d_3x3_pad1_bias", "Conv2d(4, 3, padding = 1)", ["x"];
    conv2d_groups: "002_conv2d_groups2", "Conv2d(6, 3, padding = 1, groups = 2)", ["x"];
    conv2d_dilation: "004_conv2d_dilation2", "Conv2d(3, 3, padding = 2, dilation = 2)", ["x"];
    conv2d_1x1_stride: "006_conv2d_1x1_stride2", "Conv2d(3, 1, stride = 2)", ["x"];
    conv_transpose2d: "010_convtranspose2d_k2_s2", "ConvTranspose2d(3, 2, stride = 2)", ["x"];
    linear: "012_linear_bias", "Linear(5)", ["x"];
    linear_of_a_transposed_weight: "linear_transposed", "Linear(5, transposed = true)", ["x"];
    batch_norm2d: "014_batchnorm2d_train", "BatchNorm2d", ["x"];
    inplace_abn: "220_inplace_abn", "InplaceAbn", ["x"];
    inplace_abn_of_steep_slopes: "221_inplace_abn_slope", "InplaceAbn(eps = 0.01, momentum = 0.25, activation_param = 0.3)", ["x"];
    layer_norm: "018_layernorm_last", "LayerNorm", ["x"];
    group_norm: "020_groupnorm_2groups", "GroupNorm(2)", ["x"];
    rms_norm: "022_rmsnorm_affine", "RmsNorm(eps = 1e-6)", ["x"];
    max_pool2d: "024_maxpool2d_k2", "MaxPool2d(2)", ["x"];
    avg_pool2d: "026_avgpool2d_k2", "AvgPool2d(2)", ["x"];
    adaptive_avg_pool2d: "028_adaptive_avgpool2d_6x5_from_13x11", "AdaptiveAvgPool2d([6; 5])", ["x"];
    global_avg_pool: "030_global_avgpool_mean_dims", "GlobalAvgPool", ["x"];
    relu: "032_relu", "Relu", ["x"];
    gelu: "034_gelu_exact", "Gelu", ["x"];
    silu: "036_silu", "Silu", ["x"];
    tanh: "038_tanh", "Tanh", ["x"];
    log_softmax: "040_log_softmax_dim1", "LogSoftmax(1)", ["x"];
    hardswish: "042_hardswish", "Hardswish", ["x"];
    relu6: "046_relu6", "Relu6", ["x"];
    dropout_of_nothing: "062_dropout_p0_train", "Dropout(0.0)", ["x"];
    embedding: "048_embedding_repeated_indices", "Embedding(10, 6)", ["idx"];
    add: "064_add_same_shape", "Add", ["a", "b"];
    maximum: "maximum", "Maximum", ["a", "b"];
    minimum: "minimum", "Minimum", ["a", "b"];
    expand: "expand", "Expand(-1, 3, 4)", ["x"];
    expand_to_more: "expand_to_more", "Expand(3, 2, 5)", ["x"];
    nearest_exact_size: "nearest_exact_size", "Upsample(size = [7; 4], mode = \"nearest-exact\")", ["x"];
    nearest_exact_factor: "nearest_exact_factor", "Upsample([1.7; 0.6], mode = \"nearest-exact\")", ["x"];
    nearest_exact_same: "nearest_exact_same", "Upsample(1.15, mode = \"nearest-exact\")", ["x"];
    nearest_exact_whole: "nearest_exact_whole", "Upsample(3, mode = \"nearest-exact\")", ["x"];
    nearest_exact_signal: "nearest_exact_signal", "Upsample(size = 11, mode = \"nearest-exact\")", ["x"];
    concat: "066_concat_dim1", "Concat", ["a", "b", "c"];
    multi_head_attention: "054_mha_self_batch_first", "MultiHeadAttention(2)", ["x"];
    attention: "050_sdpa_full", "Attention", ["q", "k", "v"];
    attention_to_others: "052_sdpa_cross_scale", "Attention(scale = 0.25)", ["q", "k", "v"];
    selective_scan: "selective_scan", "SelectiveScan", ["x", "delta", "b", "c"];
    selective_scan_of_one_state: "selective_scan_of_one_state", "SelectiveScan", ["x", "delta", "b", "c"];
    step_sizes: "step_sizes", "StepSizes(6)", ["x"];
    conv1d: "008_conv1d_k3_pad1", "Conv1d(4, 3, padding = 1)", ["x"];
    batch_norm1d: "016_batchnorm1d_train_2d_input", "BatchNorm1d", ["x"];
    elu: "044_elu", "Elu(0.8)", ["x"];
    l2_norm: "100_l2_norm_dim1", "L2Norm", ["x"];
    l2_norm_of_rows: "101_l2_norm_last_eps", "L2Norm(-1, eps = 0.5)", ["x"];
    positions_without_padding: "102_roberta_positions", "PositionEmbedding(9, 4, padding_idx = 1)", ["idx"];
    rotary_of_a_map: "103_rotary_embedding_cat", "Rotary(2, size = [3; 2], before = 1, interleaved = true)", ["x"];
    take: "104_take_along_dim", "Take", ["x", "idx"];
    upsample: "068_upsample_nearest_x2", "Upsample(2)", ["x"];
    conv3d: "volumes_conv", "Conv3d(3, 3, padding = 1)", ["x"];
    conv3d_groups: "volumes_conv_groups", "Conv3d(6, [2; 3; 1], stride = [1; 2; 3], padding = [1; 2; 0], dilation = [2; 1; 1], groups = 2)", ["x"];
    conv3d_depthwise: "volumes_conv_depthwise", "Conv3d(3, [3; 2; 2], padding = \"same\", groups = 3, bias = false)", ["x"];
    conv_transpose3d: "volumes_conv_transpose", "ConvTranspose3d(6, [3; 2; 2], stride = [2; 1; 3], padding = [1; 0; 1], output_padding = [1; 0; 2], groups = 2)", ["x"];
    max_pool3d: "volumes_max_pool", "MaxPool3d(3, 2, padding = 1)", ["x"];
    max_pool3d_dilation: "volumes_max_pool_dilation", "MaxPool3d([2; 3; 2], [1; 2; 1], padding = [1; 1; 0], dilation = [2; 1; 2], ceil_mode = true)", ["x"];
    avg_pool3d: "volumes_avg_pool", "AvgPool3d([3; 2; 3], 2, padding = [1; 1; 0], ceil_mode = true)", ["x"];
    avg_pool3d_inside: "volumes_avg_pool_inside", "AvgPool3d([3; 2; 3], 2, padding = 1, ceil_mode = true, count_include_pad = false)", ["x"];
    adaptive_avg_pool3d: "volumes_adaptive_avg_pool", "AdaptiveAvgPool3d([3; 2; 5])", ["x"];
    adaptive_max_pool3d: "volumes_adaptive_max_pool", "AdaptiveMaxPool3d([3; 2; 5])", ["x"];
    batch_norm3d: "volumes_batch_norm", "BatchNorm3d", ["x"];
    instance_norm3d: "volumes_instance_norm", "InstanceNorm3d(affine = true)", ["x"];
    scaled_std_conv2d: "200_scaled_std_conv2d", "Conv2d(6, 3, padding = 1, groups = 2, standardized = true, gamma = 1.7881393432617188, eps = 1e-5)", ["x"];
    std_conv2d: "202_std_conv2d", "Conv2d(5, 3, stride = 2, padding = 1, standardized = true)", ["x"];
    weight_norm_of_linear: "204_weight_norm_linear", "Linear(5, weight_norm = true)", ["x"];
    weight_norm_of_conv1d: "206_weight_norm_conv1d_dim2", "Conv1d(6, 4, padding = 2, groups = 2, weight_norm = 2)", ["x"];
    weight_norm_of_conv_transpose2d: "208_weight_norm_conv_transpose2d", "ConvTranspose2d(4, [3; 2], stride = 2, weight_norm = true)", ["x"];
    weight_norm_by_its_older_names: "209_weight_norm_linear_dim1", "Linear(5, weight_norm = 1, weight_norm_names = \"weight_g\")", ["x"];
    multi_head_attention_of_normalised_heads: "210_attention_qk_norm", "MultiHeadAttention(3, qk_norm = \"LayerNorm\")", ["x"];
    causal_attention_of_normalised_heads: "212_qwen3_attention", "CausalSelfAttention(4, kv_heads = 2, bias = false, rotary = 10000.0, qk_norm = \"RmsNorm\")", ["x"];
    upsample_bilinear: "070_upsample_bilinear_size_align", "Upsample(size = [8; 9], mode = \"bilinear\", align_corners = true)", ["x"];
}

/// A loss on a network that is nothing but a sum with zeros: the gradient of its first input is the loss's gradient.
fn check_loss(file: &str, loss: &[Term]) {
    let truth = Truth::read(&format!("ops/{file}.safetensors"));
    let batch = truth.shape("input.x")[0];
    let mut graph = Graph::default();
    let x = inputs(&mut graph, &truth, &["x"])[0];
    let zeros = inputs(&mut graph, &truth, &["x"])[0];
    let output = join(&mut graph, &[x, zeros], "Add");
    let mut loaded = Loaded::new(&graph, output, training(loss), batch, STAY);
    loaded.set("input", truth.words("input.x"));
    loaded.set("input1", &vec![0; truth.words("input.x").len()]);
    loaded.set("target", truth.words("input.target"));
    let found = loaded.step().unwrap();
    assert_close(&format!("{file} output"), &[found], &truth.floats("output"), TOLERANCE);
    let found = loaded.get("input.gradient").unwrap();
    assert_close(&format!("{file} gradient"), &found, &truth.floats("grad_input.x"), TOLERANCE);
}

#[test]
fn cross_entropy() {
    check_loss("072_cross_entropy_mean", &[Term::CROSS_ENTROPY]);
}

#[test]
fn cross_entropy_of_pixels() {
    check_loss("074_cross_entropy_pixelwise", &[Term::CROSS_ENTROPY]);
}

#[test]
fn mse() {
    check_loss("076_mse_mean", &[Term::MSE]);
}

#[test]
fn bce_with_logits() {
    check_loss("078_bce_with_logits_mean", &[Term::of(Measure::BceWithLogits)]);
}

#[test]
fn l1() {
    check_loss("080_l1_mean", &[Term::of(Measure::L1)]);
}

/// The file's loss is behind a log-softmax.
#[test]
fn nll() {
    let truth = Truth::read("ops/082_nll_mean.safetensors");
    let mut graph = Graph::default();
    let x = inputs(&mut graph, &truth, &["x"])[0];
    let output = chain(&mut graph, x, "LogSoftmax");
    let batch = truth.shape("input.x")[0];
    let mut loaded = Loaded::new(&graph, output, training(&[Term::of(Measure::Nll)]), batch, STAY);
    loaded.set("input", truth.words("input.x"));
    loaded.set("target", truth.words("input.target"));
    assert_close("loss", &[loaded.step().unwrap()], &truth.floats("output"), TOLERANCE);
    assert_close("gradient", &loaded.get("input.gradient").unwrap(), &truth.floats("grad_input.x"), TOLERANCE);
}

#[test]
fn the_row_of_padding_begins_with_0_and_stays() {
    let tokens = vec![3, 0, 1, 3];
    let mut graph = Graph::default();
    let input = graph.input(Type::indices(Shape::new(&[4]))).unwrap();
    let output = chain(&mut graph, input, "Embedding(4, 3, padding_idx = -1)");
    let optimizer = Optimizer::Sgd(Sgd { lr: 0.5, ..Sgd::DEFAULT });
    let mut net = Loaded::new(&graph, output, training(&[Term::MSE]), 1, optimizer);
    net.set("input", &tokens);
    net.set("target", &[1.0f32.to_bits(); 12]);
    let name = format!("{}.weight", graph.rows[0].path);
    let before = net.get(&name).unwrap();
    net.step().unwrap();
    let after = net.get(&name).unwrap();
    assert_eq!(before[9..], [0.0; 3]);
    assert_eq!(after[9..], [0.0; 3]);
    assert_ne!(before[..6], after[..6]);
    assert_eq!(before[6..9], after[6..9], "a token that is not there");
}

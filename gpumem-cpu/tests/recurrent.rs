//! Recurrent layers against PyTorch's numbers, and against its formulas in double precision.

mod harness;

use gpumem_core::Update;
use gpumem_core::graph::Graph;
use gpumem_core::lower::{Term, Training};
use gpumem_core::train::optim::{Optimizer, Sgd};
use harness::filled::{fill, words};
use harness::graphs::{layer, numbers};
use harness::{Loaded, Truth, assert_close};

const TOLERANCE: f64 = 1e-5;

/// Numbers of a tensor, by its name.
type Tensors = std::collections::BTreeMap<String, Vec<f64>>;

#[derive(Clone, Copy, PartialEq)]
enum Cell {
    Lstm,
    Gru,
    Tanh,
    Relu,
}

/// What PyTorch's documentation says of a layer, step by step for one sample.
#[derive(Clone, Copy)]
struct Reference {
    cell: Cell,
    steps: usize,
    width: usize,
    hidden: usize,
    layers: usize,
    bias: bool,
    bidirectional: bool,
    /// Outputs of a direction, where its units are mapped to fewer.
    projected: Option<usize>,
}

impl Reference {
    fn gates(&self) -> usize {
        match self.cell {
            Cell::Lstm => 4,
            Cell::Gru => 3,
            Cell::Tanh | Cell::Relu => 1,
        }
    }

    fn suffixes(&self) -> &'static [&'static str] {
        if self.bidirectional { &["", "_reverse"] } else { &[""] }
    }

    /// What a direction of a layer puts out at each step.
    fn outputs(&self) -> usize {
        self.projected.unwrap_or(self.hidden)
    }

    /// Names and shapes of the parameters, in PyTorch's order.
    fn parameters(&self) -> Vec<(String, Vec<usize>)> {
        let mut all = Vec::new();
        let rows = self.gates() * self.hidden;
        for index in 0..self.layers {
            let width = if index == 0 { self.width } else { self.suffixes().len() * self.outputs() };
            for suffix in self.suffixes() {
                all.push((format!("weight_ih_l{index}{suffix}"), vec![rows, width]));
                all.push((format!("weight_hh_l{index}{suffix}"), vec![rows, self.outputs()]));
                if self.bias {
                    all.push((format!("bias_ih_l{index}{suffix}"), vec![rows]));
                    all.push((format!("bias_hh_l{index}{suffix}"), vec![rows]));
                }
                if let Some(outputs) = self.projected {
                    all.push((format!("weight_hr_l{index}{suffix}"), vec![outputs, self.hidden]));
                }
            }
        }
        all
    }

    /// Output of one sample `[T, D]`; `first` is the state before the first step, 0 if it is empty.
    fn forward(&self, parameters: &Tensors, x: &[f64], first: &[f64]) -> Vec<f64> {
        let (mut x, mut width) = (x.to_vec(), self.width);
        let (sides, outputs) = (self.suffixes().len(), self.outputs());
        for index in 0..self.layers {
            let mut y = vec![0.0; self.steps * sides * outputs];
            for (side, suffix) in self.suffixes().iter().enumerate() {
                let of = |kind: &str| parameters.get(&format!("{kind}_l{index}{suffix}"));
                let (mut h, mut c, mut units) = (vec![0.0; outputs], vec![0.0; self.hidden], vec![0.0; self.hidden]);
                h[..first.len()].copy_from_slice(first);
                for step in 0..self.steps {
                    let t = if side == 1 { self.steps - 1 - step } else { step };
                    let mapped = |from: &[f64], weight: &[f64], bias: Option<&Vec<f64>>, row: usize| {
                        let terms = from.iter().zip(&weight[row * from.len()..]).map(|(x, w)| x * w);
                        terms.sum::<f64>() + bias.map_or(0.0, |bias| bias[row])
                    };
                    let arriving = &x[t * width..][..width];
                    let before = h.clone();
                    let p = |row| mapped(arriving, of("weight_ih").unwrap(), of("bias_ih"), row);
                    let s = |row| mapped(&before, of("weight_hh").unwrap(), of("bias_hh"), row);
                    for j in 0..self.hidden {
                        let row = |gate: usize| gate * self.hidden + j;
                        let sum = |gate: usize| p(row(gate)) + s(row(gate));
                        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
                        units[j] = match self.cell {
                            Cell::Lstm => {
                                c[j] = sigmoid(sum(1)) * c[j] + sigmoid(sum(0)) * sum(2).tanh();
                                sigmoid(sum(3)) * c[j].tanh()
                            }
                            Cell::Gru => {
                                let (r, z) = (sigmoid(sum(0)), sigmoid(sum(1)));
                                let n = (p(row(2)) + r * s(row(2))).tanh();
                                (1.0 - z) * n + z * before[j]
                            }
                            Cell::Tanh => sum(0).tanh(),
                            Cell::Relu => sum(0).max(0.0),
                        };
                    }
                    h = match of("weight_hr") {
                        Some(weight) => (0..outputs).map(|row| mapped(&units, weight, None, row)).collect(),
                        None => units.clone(),
                    };
                    y[(t * sides + side) * outputs..][..outputs].copy_from_slice(&h);
                }
            }
            (x, width) = (y, sides * outputs);
        }
        x
    }
}

/// Numbers within `scale`, other ones for each seed.
fn drawn(count: usize, seed: u64, scale: f64) -> Vec<f64> {
    let number = |i: usize| ((((i as u64 + 1) * 7919 + seed * 104_729) % 10_007) as f64 / 10_007.0 - 0.5) * 2.0 * scale;
    // As the network gets them.
    (0..count).map(|i| f64::from(number(i) as f32)).collect()
}

fn bits(values: &[f64]) -> Vec<u32> {
    values.iter().map(|&value| (value as f32).to_bits()).collect()
}

fn floats(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&value| value as f32).collect()
}

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

/// A layer on sequences `[T, D]` with these parameters and this input.
fn loaded(
    text: &str,
    [steps, width]: [usize; 2],
    batch: u64,
    loss: &[Term],
    set: &[(String, Vec<u32>)],
) -> (Loaded, String) {
    let mut graph = Graph::default();
    let x = graph.input(numbers(&[steps as u64, width as u64])).unwrap();
    let output = layer(&mut graph, x, text);
    let stay = Optimizer::Sgd(Sgd { lr: 0.0, ..Sgd::DEFAULT });
    let mut loaded = Loaded::new(&graph, output, training(loss), batch, stay);
    let path = graph.rows[0].path.clone();
    for (name, words) in set {
        let is_parameter = name.contains("_l");
        loaded.set(&if is_parameter { format!("{path}.{name}") } else { name.clone() }, words);
    }
    (loaded, path)
}

/// Output and all gradients of a layer against a reference, whose gradients are differences in double precision.
fn check(text: &str, it: Reference) {
    let batch = 2;
    let mut parameters = Tensors::new();
    for (seed, (name, shape)) in it.parameters().into_iter().enumerate() {
        parameters.insert(name, drawn(shape.iter().product(), seed as u64, 0.7));
    }
    let x = drawn(batch * it.steps * it.width, 91, 1.5);
    let output = |parameters: &Tensors, x: &[f64]| -> Vec<f64> {
        x.chunks_exact(it.steps * it.width).flat_map(|x| it.forward(parameters, x, &[])).collect()
    };
    let y = output(&parameters, &x);
    let dy = drawn(y.len(), 57, 1.0);
    let loss =
        |parameters: &Tensors, x: &[f64]| -> f64 { output(parameters, x).iter().zip(&dy).map(|(y, dy)| y * dy).sum() };
    let step = 1e-5;
    let mut set: Vec<(String, Vec<u32>)> =
        parameters.iter().map(|(name, values)| (name.clone(), bits(values))).collect();
    set.push(("input".into(), bits(&x)));
    let targets = |words: Vec<u32>| [&set[..], &[("target".into(), words)]].concat();
    // The mean squared difference from what is expected.
    let (mut found, _) = loaded(text, [it.steps, it.width], batch as u64, &[Term::MSE], &targets(bits(&y)));
    let scale = y.iter().map(|y| y * y).sum::<f64>() / y.len() as f64;
    let error = f64::from(found.step().unwrap());
    assert!(error <= TOLERANCE * TOLERANCE * scale, "{text}: mean squared difference {error:e}");
    let evaluated = f64::from(found.evaluate().unwrap());
    assert!(evaluated <= TOLERANCE * TOLERANCE * scale, "{text} without training: {evaluated:e}");

    let (mut found, path) = loaded(text, [it.steps, it.width], batch as u64, &[Term::DOT], &targets(bits(&dy)));
    found.step().unwrap();
    for name in parameters.keys() {
        let mut expected = Vec::new();
        for index in 0..parameters[name].len() {
            let at = |by: f64| {
                let mut moved = parameters.clone();
                moved.get_mut(name).unwrap()[index] += by;
                loss(&moved, &x)
            };
            expected.push((at(step) - at(-step)) / (2.0 * step));
        }
        let gradient = found.get(&format!("{path}.{name}.gradient")).unwrap();
        assert_close(&format!("{text} {name}"), &gradient, &floats(&expected), TOLERANCE);
    }
    let at = |index: usize, by: f64| {
        let mut moved = x.clone();
        moved[index] += by;
        loss(&parameters, &moved)
    };
    let expected: Vec<f64> = (0..x.len()).map(|index| (at(index, step) - at(index, -step)) / (2.0 * step)).collect();
    assert_close(&format!("{text} input"), &found.get("input.gradient").unwrap(), &floats(&expected), TOLERANCE);
}

const SMALL: Reference = Reference {
    cell: Cell::Lstm,
    steps: 4,
    width: 3,
    hidden: 5,
    layers: 1,
    bias: true,
    bidirectional: false,
    projected: None,
};

#[test]
fn layers_are_what_the_documentation_says() {
    for (name, nonlinearity, cell) in [
        ("Lstm", "", Cell::Lstm),
        ("Gru", "", Cell::Gru),
        ("Rnn", "", Cell::Tanh),
        ("Rnn", ", nonlinearity = \"relu\"", Cell::Relu),
    ] {
        for (layers, bidirectional) in [(1, false), (2, false), (1, true), (3, true)] {
            for bias in [true, false] {
                let options =
                    format!("layers = {layers}, bias = {bias}, bidirectional = {bidirectional}{nonlinearity}");
                let it = Reference { cell, layers, bias, bidirectional, ..SMALL };
                check(&format!("{name}(5, {options})"), it);
                check(&format!("{name}(5, {options}, cudnn = true)"), it);
            }
        }
        // One step, and one unit.
        check(&format!("{name}(1{nonlinearity})"), Reference { cell, hidden: 1, ..SMALL });
        check(&format!("{name}(5{nonlinearity})"), Reference { cell, steps: 1, ..SMALL });
    }
}

/// The memory is another one, and every bit the same.
#[test]
fn the_memory_of_cudnn_changes_no_number() {
    let all = |text: &str, it: Reference| -> Vec<(String, Vec<u32>)> {
        let mut set = Vec::new();
        for (seed, (name, shape)) in it.parameters().into_iter().enumerate() {
            set.push((name, bits(&drawn(shape.iter().product(), seed as u64, 0.7))));
        }
        let mut names: Vec<String> = set.iter().map(|(name, _)| format!("lstm0.{name}.gradient")).collect();
        set.push(("input".into(), bits(&drawn(2 * 4 * 3, 91, 1.5))));
        let width = it.projected.unwrap_or(it.hidden) * if it.bidirectional { 2 } else { 1 };
        set.push(("target".into(), bits(&drawn(2 * 4 * width, 57, 1.0))));
        let (mut found, path) = loaded(text, [4, 3], 2, &[Term::DOT], &set);
        let mut all = vec![("loss".into(), vec![found.step().unwrap().to_bits()])];
        names.push("input.gradient".into());
        for name in names {
            let name = name.replace("lstm0", &path);
            let words: Vec<u32> = found.get(&name).unwrap().iter().map(|value| value.to_bits()).collect();
            assert!(words.iter().any(|&word| word != 0), "{text}: {name} is 0");
            all.push((name, words));
        }
        all.push(("evaluated".into(), vec![found.evaluate().unwrap().to_bits()]));
        all
    };
    for (name, cell, projected) in [
        ("Lstm(5", Cell::Lstm, None),
        ("Lstm(5, proj_size = 3", Cell::Lstm, Some(3)),
        ("Gru(5", Cell::Gru, None),
        ("Rnn(5", Cell::Tanh, None),
    ] {
        for (bias, bidirectional) in [(true, false), (false, false), (true, true), (false, true)] {
            let layer = format!("{name}, bias = {bias}, layers = 2, bidirectional = {bidirectional}");
            let it = Reference { cell, bias, layers: 2, bidirectional, projected, ..SMALL };
            assert_eq!(all(&format!("{layer}, cudnn = true)"), it), all(&format!("{layer})"), it), "{layer}");
        }
    }
}

/// Threads take parts of the samples.
#[test]
fn any_number_of_threads_computes_the_same_bits() {
    let bits_of = |text: &str, threads: usize| -> Vec<Vec<u32>> {
        let mut graph = Graph::default();
        let x = graph.input(numbers(&[24, 7])).unwrap();
        let output = layer(&mut graph, x, text);
        let stay = Optimizer::Sgd(Sgd { lr: 0.0, ..Sgd::DEFAULT });
        let mut loaded = Loaded::with_threads(&graph, output, Some(training(&[Term::DOT])), 33, stay, threads);
        let parameters = fill(&mut loaded);
        let losses = [loaded.step().unwrap(), loaded.evaluate().unwrap()];
        let names = parameters.iter().map(String::as_str).chain(["input"]);
        let gradients = names.map(|name| words(&loaded.get(&format!("{name}.gradient")).unwrap()));
        gradients.chain([words(&losses)]).collect()
    };
    for text in [
        "Lstm(48)",
        "Lstm(48, cudnn = true, layers = 2, bidirectional = true)",
        "Lstm(48, proj_size = 24)",
        "Gru(48)",
        "Gru(48, bidirectional = true)",
        "Rnn(48)",
        "Rnn(48, nonlinearity = \"relu\", bias = false)",
    ] {
        let one = bits_of(text, 1);
        assert!(one.iter().flatten().any(|&word| word != 0), "{text}");
        for threads in [2, 3] {
            assert_eq!(bits_of(text, threads), one, "{text} on {threads} threads");
        }
    }
}

#[test]
fn projections_are_what_the_documentation_says() {
    for (layers, bidirectional) in [(1, false), (2, false), (1, true), (3, true)] {
        for (bias, size) in [(true, 2), (false, 4)] {
            let options =
                format!("proj_size = {size}, layers = {layers}, bias = {bias}, bidirectional = {bidirectional}");
            let it = Reference { layers, bias, bidirectional, projected: Some(size), ..SMALL };
            check(&format!("Lstm(5, {options})"), it);
            check(&format!("Lstm(5, {options}, cudnn = true)"), it);
        }
    }
    check("Lstm(2, proj_size = 1)", Reference { hidden: 2, projected: Some(1), ..SMALL });
    check("Lstm(5, proj_size = 3)", Reference { steps: 1, projected: Some(3), ..SMALL });
    check("Lstm(5, proj_size = 0)", SMALL);
}

/// Steps and samples of `[T, B, D]` the other way round.
fn batch_first(words: &[u32], shape: &[u64]) -> Vec<u32> {
    let [steps, batch, width] = [shape[0], shape[1], shape[2]].map(|size| size as usize);
    let at = |sample: usize, step: usize| words[(step * batch + sample) * width..][..width].to_vec();
    (0..batch).flat_map(|sample| (0..steps).flat_map(move |step| at(sample, step)).collect::<Vec<u32>>()).collect()
}

/// Output and all gradients of a layer against a file whose sequences are `[T, B, D]`.
fn check_golden(file: &str, text: &str) {
    let truth = Truth::read(&format!("ops/{file}.safetensors"));
    let shape = truth.shape("input.x").to_vec();
    let parameters = truth.names().filter_map(|name| name.strip_prefix("param."));
    let words = |name: &str| batch_first(truth.words(name), truth.shape(name));
    let expected = |name: &str| words(name).into_iter().map(f32::from_bits).collect::<Vec<f32>>();
    let mut set: Vec<(String, Vec<u32>)> =
        parameters.map(|name| (name.to_string(), truth.words(&format!("param.{name}")).to_vec())).collect();
    let count = set.len();
    set.push(("input".into(), words("input.x")));
    let sizes = [shape[0], shape[2]].map(|size| size as usize);
    let targets = |name: &str| [&set[..], &[("target".into(), words(name))]].concat();
    let (mut found, _) = loaded(text, sizes, shape[1], &[Term::MSE], &targets("output"));
    let y = expected("output");
    let scale = y.iter().map(|y| f64::from(y * y)).sum::<f64>() / y.len() as f64;
    let error = f64::from(found.step().unwrap());
    assert!(error <= TOLERANCE * TOLERANCE * scale, "{file}: mean squared difference {error:e}");

    let (mut found, path) = loaded(text, sizes, shape[1], &[Term::DOT], &targets("grad_output"));
    found.step().unwrap();
    for (name, _) in &set[..count] {
        let gradient = found.get(&format!("{path}.{name}.gradient")).unwrap();
        assert_close(&format!("{file} {name}"), &gradient, &truth.floats(&format!("grad_param.{name}")), TOLERANCE);
    }
    let gradient = found.get("input.gradient").unwrap();
    assert_close(&format!("{file} input"), &gradient, &expected("grad_input.x"), TOLERANCE);
}

#[test]
fn lstm_against_pytorch() {
    check_golden("056_lstm_1layer", "Lstm(6)");
    check_golden("056_lstm_1layer", "Lstm(6, cudnn = true)");
}

#[test]
fn both_directions_against_pytorch() {
    check_golden("060_lstm_bidirectional", "Lstm(4, bidirectional = true)");
    check_golden("060_lstm_bidirectional", "Lstm(4, bidirectional = true, cudnn = true)");
}

/// The file's GRU begins with a state of its own, as the reference can and the layer cannot: that the reference is PyTorch's.
#[test]
fn the_reference_is_pytorch() {
    let files = [
        ("056_lstm_1layer", Cell::Lstm, false),
        ("058_gru_1layer_h0", Cell::Gru, false),
        ("060_lstm_bidirectional", Cell::Lstm, true),
    ];
    for (file, cell, bidirectional) in files {
        let truth = Truth::read(&format!("ops/{file}.safetensors"));
        let [steps, batch, width] = [0, 1, 2].map(|axis| truth.shape("input.x")[axis] as usize);
        let hidden = truth.shape("param.weight_hh_l0")[1] as usize;
        let it = Reference { cell, steps, width, hidden, bidirectional, ..SMALL };
        let wide = |words: &[u32]| words.iter().map(|&word| f64::from(f32::from_bits(word))).collect::<Vec<f64>>();
        let named = it.parameters().into_iter().map(|(name, _)| name);
        let parameters: Tensors =
            named.map(|name| (name.clone(), wide(truth.words(&format!("param.{name}"))))).collect();
        let x = wide(&batch_first(truth.words("input.x"), truth.shape("input.x")));
        let first = if cell == Cell::Gru { wide(truth.words("input.h0")) } else { Vec::new() };
        let state = |sample: usize| if first.is_empty() { &[] } else { &first[sample * hidden..][..hidden] };
        let samples = x.chunks_exact(steps * width).enumerate();
        let found: Vec<f64> = samples.flat_map(|(index, x)| it.forward(&parameters, x, state(index))).collect();
        let expected: Vec<u32> = batch_first(truth.words("output"), truth.shape("output"));
        assert_eq!(found.len(), batch * steps * hidden * if bidirectional { 2 } else { 1 });
        let expected: Vec<f32> = expected.into_iter().map(f32::from_bits).collect();
        assert_close(file, &floats(&found), &expected, 1e-7);
    }
}

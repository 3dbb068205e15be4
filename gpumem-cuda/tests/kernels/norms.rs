use crate::host::harness::graphs::{again, chain, join, layer, numbers, plan};
use crate::host::{
    CAPABILITY, FEW, Format, Products, Simulated, compare, harness, is_apart, kernels, kernels_in, not_a_number, spread,
};
use crate::{check, check_formats, check_mixed, check_narrow, gradients};
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, Training, lower};
use gpumem_core::memory::budget::Line;
use gpumem_core::operation::Operations;
use gpumem_core::program::{Class, Program, StateWord};
use gpumem_core::run::device::{Device, Job, Runner};
use gpumem_core::{Half, Precision};
use gpumem_cpu::Cpu;
use gpumem_cuda::Kernel;

/// A chain of layers on one input.
fn along(dims: &'static [u64], layers: &'static str) -> impl Fn(&mut Graph) -> NodeId {
    move |graph| {
        let input = graph.input(numbers(dims)).unwrap();
        chain(graph, input, layers)
    }
}

/// The same layer, with the same parameters, twice in a row: gradients are added to gradients.
fn twice(dims: &'static [u64], text: &'static str) -> impl Fn(&mut Graph) -> NodeId {
    move |graph| {
        let input = graph.input(numbers(dims)).unwrap();
        let once = layer(graph, input, text);
        again(graph, once, text, 0)
    }
}

/// Two layers that read the same value, which is in the sum too: gradients of the input are added up.
fn shared(dims: &'static [u64], layers: [&'static str; 2]) -> impl Fn(&mut Graph) -> NodeId {
    move |graph| {
        let input = graph.input(numbers(dims)).unwrap();
        let read = layers.map(|text| layer(graph, input, text));
        let sum = join(graph, &read, "Add");
        join(graph, &[input, sum], "Add")
    }
}

#[test]
fn batch_norm() {
    // The second one's gradient may be overwritten, and is.
    check(
        "small",
        3,
        along(&[3, 7, 5], "BatchNorm2d(affine = false) | Relu | BatchNorm2d(eps = 0.01, momentum = 0.25)"),
    );
    check("whole packs, beyond a block", 3, along(&[2, 48, 50], "BatchNorm2d"));
    check("single elements, beyond a block", 2, along(&[2, 43, 53], "BatchNorm2d"));
    check_narrow("small", 2, along(&[2, 3, 5], "BatchNorm2d"));
}

/// Statistics are exact where the mean is many deviations away from 0: a difference of two sums would be off by 1e-3.
#[test]
fn norms_far_from_zero() {
    let (training, optimizer) = gradients();
    for (dims, norm) in [
        (&[3u64, 48, 50][..], "BatchNorm2d"),
        (&[3, 7, 5], "InplaceAbn"),
        (&[4, 7, 5], "GroupNorm(2)"),
        (&[5, 36], "LayerNorm"),
    ] {
        let mut graph = Graph::default();
        let input = graph.input(numbers(dims)).unwrap();
        let output = chain(&mut graph, input, &format!("Affine(0.0625, 1) | {norm}(eps = 1e-9)").replace(")(", ", "));
        compare(norm, &graph, output, training, 3, optimizer, 1, 5, 3e-5);
    }
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn batch_norm_of_further_shapes() {
    check("packs of 2", 2, along(&[3, 5, 6], "BatchNorm2d"));
    check("one element", 1, along(&[5, 1, 1], "BatchNorm2d"));
    check_narrow("whole packs", 2, along(&[2, 6, 4], "BatchNorm2d"));
}

#[test]
fn batch_norm_adds_gradients() {
    check("parameters", 2, twice(&[3, 4, 5], "BatchNorm2d"));
    check("input", 2, shared(&[3, 4, 5], ["BatchNorm2d", "BatchNorm2d(affine = false)"]));
}

#[test]
fn batch_norm_that_is_undone() {
    check(
        "small",
        3,
        along(&[3, 7, 5], "InplaceAbn(affine = false) | Tanh | InplaceAbn(eps = 0.01, activation_param = 0.25)"),
    );
    check("in parts", 3, along(&[2, 48, 50], "InplaceAbn"));
    check("parameters", 2, twice(&[3, 4, 5], "InplaceAbn"));
    check("input", 2, shared(&[3, 4, 5], ["InplaceAbn", "InplaceAbn(affine = false)"]));
    check_narrow("small", 2, along(&[2, 3, 5], "InplaceAbn(activation_param = 0.5)"));
}

/// The kernels of a training step.
fn entries(dims: &'static [u64], layers: &'static str, batch: u64) -> Vec<Kernel> {
    let mut graph = Graph::default();
    let output = along(dims, layers)(&mut graph);
    let (training, optimizer) = gradients();
    let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
    kernels_in(&harness::compile(&program, batch), batch, Precision::F32, optimizer)
}

/// The number that a constant of a kernel has in these launches.
fn constant(kernels: &[Kernel], entry: &str, name: &str) -> String {
    let kernel = kernels.iter().find(|kernel| kernel.entry == entry).unwrap_or_else(|| panic!("no {entry}"));
    kernel.constants.iter().find(|(known, _)| *known == name).unwrap().1.clone()
}

#[test]
fn batch_norm_in_parts() {
    // 1800 packs of 4: three parts of 600; 4558 single elements: eight parts, the last one shorter.
    for (dims, batch, parts) in [(&[2, 48, 50][..], 3, "3"), (&[2, 43, 53], 2, "8")] {
        let kernels = entries(dims, "BatchNorm2d", batch);
        for entry in ["batch_norm_statistics", "batch_norm_apply_parts", "batch_norm_sums", "batch_norm_input"] {
            assert_eq!(constant(&kernels, entry, "PARTS"), parts, "{entry}");
        }
    }
    check("gradients added", 3, twice(&[2, 48, 50], "BatchNorm2d"));
    check("input added", 2, shared(&[2, 43, 53], ["BatchNorm2d", "BatchNorm2d(affine = false)"]));
    check_narrow("whole packs", 2, along(&[2, 64, 66], "BatchNorm2d"));
}

#[test]
fn layer_norm_in_parts() {
    let kernels = entries(&[401, 37], "LayerNorm", 3);
    for entry in ["normalize_parameters", "normalize_sum"] {
        assert_eq!(constant(&kernels, entry, "PARTS"), "4", "{entry}");
    }
    check("more columns than a block", 3, along(&[401, 37], "LayerNorm"));
    check("gradients added", 3, twice(&[401, 13], "LayerNorm"));
    check_narrow("no bias", 2, along(&[301, 25], "LayerNorm(bias = false)"));
}

/// A card whose blocks do not wait for each other.
const OLDER: Format = (Precision::F32, (7, 5));

/// The kernels of row norms that a chain of layers launches in this format, each with its parts.
fn row_norms(
    dims: &'static [u64],
    layers: &'static str,
    batch: u64,
    (precision, capability): Format,
) -> Vec<(&'static str, String)> {
    let mut graph = Graph::default();
    let output = along(dims, layers)(&mut graph);
    let (training, optimizer) = gradients();
    let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
    let placed = harness::compile(&program, batch);
    let steps = Products::Own.steps(&placed, batch, (precision, capability), optimizer);
    let all = kernels(&steps).into_iter().filter(|kernel| kernel.file == "normalize.cu");
    all.map(|kernel| (kernel.entry, constant(std::slice::from_ref(&kernel), kernel.entry, "PARTS"))).collect()
}

/// The launches of a forward pass and of these gradients, each in parts.
fn launches(backward: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    let forward = ("normalize", "1");
    [&[forward], backward].concat().into_iter().map(|(entry, parts)| (entry, parts.to_string())).collect()
}

#[test]
fn all_gradients_of_layer_norm_in_one_pass() {
    let two = launches(&[("normalize_backward", "37"), ("normalize_sum", "37")]);
    let one = launches(&[("normalize_gradients", "37")]);
    let few = launches(&[("normalize_gradients", "2")]);
    let parts = |format| row_norms(&[401, 36], "LayerNorm", 3, format).into_iter().map(in_one_part).collect::<Vec<_>>();
    let in_one = |expected: Vec<_>| if is_apart() { two.clone() } else { expected };
    assert_eq!(parts((Precision::F32, CAPABILITY)), in_one(one));
    assert_eq!(parts((Precision::F32, FEW)), in_one(few));
    assert_eq!(parts(OLDER), two);
    check("lanes without a pack", 3, along(&[401, 36], "LayerNorm"));
    check("several packs a lane", 1, along(&[67, 1020], "LayerNorm(bias = false)"));
    check("gradients of parameters added", 2, twice(&[33, 12], "LayerNorm"));
    check("gradients of the input added", 2, shared(&[33, 12], ["LayerNorm", "LayerNorm(bias = false)"]));
    check("a mean square", 2, along(&[67, 20], "RmsNorm"));
    check_narrow("whole packs", 2, along(&[301, 264], "LayerNorm(bias = false)"));
    for card in [FEW, OLDER.1] {
        let formats = [(Precision::F32, card), (Precision::Bf16, card)].map(|format| (format, 0..1));
        check_formats("on other cards", &formats, 2, along(&[301, 264], "LayerNorm"));
    }
}

/// The forward pass has the parts of a division that it does not use.
fn in_one_part((entry, parts): (&'static str, String)) -> (&'static str, String) {
    (entry, if entry == "normalize" { "1".to_string() } else { parts })
}

/// Blocks take rows of more than 1024 elements in turns, if enough of them wait for each other.
#[test]
fn all_gradients_of_wide_rows_in_one_pass() {
    let apart = launches(&[("normalize_parameters", "1"), ("normalize_input", "1")]);
    let one = launches(&[("normalize_gradients", "2")]);
    let found = |dims, format| row_norms(dims, "LayerNorm", 3, format).into_iter().map(in_one_part).collect::<Vec<_>>();
    // Seven rows are enough for two multiprocessors, and not for 132.
    assert_eq!(found(&[7, 1032], (Precision::F32, FEW)), if is_apart() { apart.clone() } else { one });
    assert_eq!(found(&[7, 1032], (Precision::F32, CAPABILITY)), apart);
    assert_eq!(found(&[7, 1032], OLDER), apart);
    // Single elements, and more of them than a block has sums for.
    assert_eq!(found(&[7, 1033], (Precision::F32, FEW)), apart);
    assert_eq!(found(&[1, 8196], (Precision::F32, FEW)), apart);
    let formats = [Precision::F32, Precision::Bf16, Precision::F16, Precision::Mixed(Half::Bf16)];
    let formats = formats.map(|precision| ((precision, FEW), 0..3));
    check_formats("lanes without a pack", &formats, 3, along(&[7, 1032], "LayerNorm"));
    check_formats("several packs a thread", &formats[..1], 1, along(&[3, 4100], "LayerNorm"));
    check_formats("a mean square", &formats[..2], 2, along(&[3, 1544], "RmsNorm"));
    check_formats("gradients of parameters added", &formats[..2], 2, twice(&[3, 1032], "LayerNorm"));
    let both = shared(&[3, 1032], ["LayerNorm", "LayerNorm(bias = false)"]);
    check_formats("gradients of the input added", &formats[..2], 2, both);
}

/// The gradients that a step leaves on a card of so many multiprocessors.
fn gradients_on(
    multiprocessors: u32,
    (norm, dims): (&'static str, &'static [u64]),
    (precision, capability): Format,
    change: impl Fn(&str, &str) -> String,
) -> Vec<u32> {
    const BATCH: u64 = 2;
    let mut graph = Graph::default();
    let output = twice(dims, norm)(&mut graph);
    let (training, optimizer) = gradients();
    let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
    let compiled = plan(&program, BATCH, precision);
    let placed = gpumem_core::memory::place::place(&compiled).unwrap();
    let steps = Products::Own.steps_on(&placed, BATCH, (precision, capability), optimizer, multiprocessors);
    let is_one = kernels(&steps).iter().any(|kernel| kernel.entry == "normalize_gradients");
    assert_eq!(is_one, multiprocessors > 0, "{norm}");
    let arena = compiled.budget[Line::Arena];
    let mut simulated = Simulated::with_steps(placed, steps, BATCH, arena, precision, 0);
    simulated.change(change);
    for (id, tensor) in program.tensors.iter().enumerate() {
        let count = tensor.elements(BATCH).unwrap() as usize;
        match tensor.class {
            Class::Input | Class::Target | Class::Parameter => simulated.write(id, &spread(count, id + 1)),
            Class::State => {
                let mut words = vec![0; count];
                words[StateWord::LossScale as usize] = 1f32.to_bits();
                simulated.write(id, &words);
            }
            _ => {}
        }
    }
    simulated.step();
    let kept = (0..program.tensors.len()).filter(|&id| program.tensors[id].class == Class::Gradient);
    kept.flat_map(|id| simulated.read(id)).collect()
}

/// One launch adds up its parts in the order of the two launches that it replaces, and waits for all of them.
#[test]
fn gradients_of_row_norms_have_the_bits_of_two_launches() {
    if std::env::var_os("GPUMEM_SKIP_HOST").is_some() || is_apart() {
        return;
    }
    let unchanged = |_: &str, text: &str| text.to_string();
    for precision in [Precision::F32, Precision::Bf16, Precision::F16, Precision::Mixed(Half::F16)] {
        for norm in ["LayerNorm", "RmsNorm"] {
            let of =
                |multiprocessors| gradients_on(multiprocessors, (norm, &[83, 40]), (precision, CAPABILITY), unchanged);
            let two = of(0);
            let numbers: Vec<f32> = two.iter().map(|&bits| f32::from_bits(bits)).collect();
            assert!(numbers.iter().all(|x| x.is_finite()) && numbers.iter().any(|x| *x != 0.0), "{numbers:?}");
            assert_eq!(of(132), two, "{norm} in {precision:?}");
        }
    }
    let (before, barrier) = ("gradients_of_part(dy, x, weight, saved, dx, partial);", "\n    wait_for_grid(state);");
    let rushed = |_: &str, text: &str| text.replace(&format!("{before}{barrier}"), before);
    let format = (Precision::F32, CAPABILITY);
    let [right, wrong] = [
        gradients_on(132, ("LayerNorm", &[83, 40]), format, unchanged),
        gradients_on(132, ("LayerNorm", &[83, 40]), format, rushed),
    ];
    assert_ne!(wrong, right, "a deleted barrier is not seen");
}

#[test]
fn batch_norm_far_from_zero() {
    // By one block a channel, and in parts.
    for dims in [[1, 24, 25], [1, 64, 66]] {
        let mut graph = Graph::default();
        let input = graph.input(numbers(&dims)).unwrap();
        let output = layer(&mut graph, input, "BatchNorm2d");
        let options = Options { training: Some(gradients().0) };
        // A thousand and more deviations.
        let shift = |value: u32| (f32::from_bits(value) + 1000.0).to_bits();
        forward(&graph, output, &options, 2, shift, 1e-3);
    }
}

#[test]
fn norms_of_inference() {
    // The second of each overwrites what the first made.
    let maps = "BatchNorm2d | BatchNorm2d(affine = false)";
    for (dims, layers) in
        [(&[3u64, 7, 5][..], maps), (&[5, 13], "LayerNorm | LayerNorm"), (&[2, 1033], "Relu | LayerNorm")]
    {
        let mut graph = Graph::default();
        let input = graph.input(numbers(dims)).unwrap();
        let output = chain(&mut graph, input, layers);
        forward(&graph, output, &Options { training: None }, 3, |value| value, 1e-5);
    }
}

/// Runs a program on the CPU backend and on the kernels, and compares its result and its running statistics.
pub fn forward(
    graph: &Graph,
    output: NodeId,
    options: &Options,
    batch: u64,
    input: impl Fn(u32) -> u32,
    tolerance: f64,
) {
    forward_program(lower(graph, &[output], options).unwrap(), batch, input, tolerance);
}

/// The same for a program whose tensors lie as they lie.
pub fn forward_program(program: Program, batch: u64, input: impl Fn(u32) -> u32, tolerance: f64) {
    if std::env::var_os("GPUMEM_SKIP_HOST").is_some() {
        return;
    }
    let placed = harness::compile(&program, batch);
    let lengths = program.tensors.iter().map(|tensor| tensor.elements(batch).unwrap() as usize);
    let arena = lengths.zip(&placed.offsets).map(|(length, offset)| offset + length as u64 * 4).max().unwrap();
    let (arena, optimizer) = (arena.next_multiple_of(256), gradients().1);
    let train = program.training.then(|| placed.clone());
    let job = Job {
        name: "test",
        arena,
        reserve: 0,
        batch,
        precision: Precision::F32,
        train,
        evaluation: None,
        served: None,
        others: Vec::new(),
        infer: placed.clone(),
        optimizer,
        tf32: false,
        deterministic: false,
        settings: 0,
        operations: &Operations::NONE,
    };
    let mut reference = Cpu::with_threads(1).unwrap().load(job).unwrap();
    let mut simulated =
        Simulated::new(placed.clone(), batch, arena, optimizer, (Precision::F32, crate::host::CAPABILITY), 0);
    for (id, tensor) in program.tensors.iter().enumerate() {
        let count = tensor.elements(batch).unwrap() as usize;
        let words: Vec<u32> = match tensor.class {
            Class::Input => spread(count, 1).into_iter().map(&input).collect(),
            Class::Parameter | Class::Target => spread(count, id),
            Class::Buffer => (0..count).map(|index| (0.5 + index as f32 / 4.0).to_bits()).collect(),
            Class::State => vec![0; count],
            _ => continue,
        };
        simulated.write(id, &words);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        reference.write(placed.offsets[id], &bytes).unwrap();
    }
    if program.training { reference.train() } else { reference.infer() }.unwrap();
    simulated.step();
    let kept = program.of_class(Class::Buffer).chain(program.results.iter().copied());
    for id in kept.map(|id| id as usize) {
        let mut bytes = vec![0; program.tensors[id].elements(batch).unwrap() as usize * 4];
        reference.read(placed.offsets[id], &mut bytes).unwrap();
        let expected: Vec<f32> =
            bytes.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect();
        let found: Vec<f32> = simulated.read(id).into_iter().map(f32::from_bits).collect();
        harness::assert_close(&program.tensor_name(&program.tensors[id]), &found, &expected, tolerance);
    }
}

#[test]
fn norms_of_the_first_layer_have_no_input_gradient() {
    for (dims, name) in [(&[3u64, 2, 5][..], "BatchNorm2d"), (&[5, 13], "LayerNorm")] {
        let mut graph = Graph::default();
        let input = graph.input(numbers(dims)).unwrap();
        let output = layer(&mut graph, input, name);
        let (training, optimizer) = gradients();
        let training = Training { skips_overflow: false, input_gradient: false, ..training };
        compare(name, &graph, output, training, 3, optimizer, 1, 5, 1e-5);
    }
}

#[test]
fn layer_norm() {
    check("small", 3, along(&[5, 13], "LayerNorm(eps = 0.01) | Relu | LayerNorm(bias = false)"));
    check("no parameters", 3, along(&[7, 36], "Relu | LayerNorm(elementwise_affine = false)"));
    check("a block a row", 2, along(&[3, 1037], "LayerNorm"));
    check_narrow("small", 2, along(&[3, 13], "LayerNorm"));
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn layer_norm_of_further_shapes() {
    check("a block a row, whole packs", 1, along(&[2, 4612], "LayerNorm"));
    check("many rows", 3, along(&[201, 5], "LayerNorm"));
    check("vectors", 11, along(&[20], "LayerNorm"));
    check_narrow("whole packs", 1, along(&[3, 24], "LayerNorm"));
}

#[test]
fn rms_norm() {
    check("small", 3, along(&[5, 13], "RmsNorm(eps = 0.01) | Relu | RmsNorm(elementwise_affine = false)"));
    check("a block a row", 2, along(&[3, 1037], "RmsNorm"));
    check("parts", 3, along(&[401, 36], "RmsNorm"));
    check("parameters added", 2, twice(&[5, 13], "RmsNorm"));
    check("input added", 2, shared(&[5, 13], ["RmsNorm", "RmsNorm(elementwise_affine = false)"]));
    check_narrow("whole packs", 1, along(&[3, 24], "RmsNorm"));
}

#[test]
fn group_norm() {
    check("maps", 3, along(&[6, 5, 3], "Relu | GroupNorm(3)"));
    check("no parameters", 2, along(&[4, 3, 3], "Relu | GroupNorm(2, affine = false)"));
    check("one group, whole packs", 2, along(&[4, 6, 6], "GroupNorm(1)"));
    check("a block a row", 2, along(&[6, 27, 23], "GroupNorm(2)"));
    check("vectors", 5, along(&[12], "GroupNorm(4)"));
    check_narrow("maps", 2, along(&[4, 4, 4], "GroupNorm(2)"));
}

#[test]
fn group_norm_adds_gradients() {
    check("parameters", 2, twice(&[6, 5, 3], "GroupNorm(3)"));
    check("input", 2, shared(&[6, 5, 3], ["GroupNorm(3)", "GroupNorm(2, affine = false)"]));
}

#[test]
fn group_norm_in_parts() {
    // 4 parameters of 4 x 1369 elements: a part for two samples.
    let kernels = entries(&[4, 37, 37], "GroupNorm(2)", 4);
    for entry in ["normalize_parameters", "normalize_sum"] {
        assert_eq!(constant(&kernels, entry, "PARTS"), "2", "{entry}");
    }
    check("parts", 4, along(&[4, 37, 37], "GroupNorm(2)"));
}

#[test]
fn layer_norm_adds_gradients() {
    check("parameters", 2, twice(&[5, 13], "LayerNorm"));
    check("input", 2, shared(&[5, 13], ["LayerNorm", "LayerNorm(bias = false)"]));
    check("input, a block a row", 1, shared(&[2, 1032], ["LayerNorm", "LayerNorm(elementwise_affine = false)"]));
}

#[test]
fn softmax() {
    check("rows", 3, along(&[7, 13], "Softmax"));
    check("whole packs, in place", 3, along(&[9, 36], "LayerNorm | Softmax"));
    check("a block a row", 2, along(&[2, 1033], "Softmax"));
    check("a block a row, whole packs", 1, along(&[2, 4612], "Softmax"));
    check("channels of a map", 3, along(&[11, 7, 5], "Softmax"));
    check_narrow("whole packs", 2, along(&[2, 24], "Softmax"));
    check("logarithms of rows", 3, along(&[7, 13], "LogSoftmax"));
    check("logarithms of whole packs, in place", 3, along(&[9, 36], "LayerNorm | LogSoftmax"));
    check("logarithms, a block a row", 2, along(&[2, 1033], "LogSoftmax"));
    check("logarithms of channels of a map", 3, along(&[11, 7, 5], "LogSoftmax"));
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn softmax_of_further_shapes() {
    check("rows of a map", 2, along(&[3, 7, 5], "Softmax(2)"));
    check("columns of a map", 2, along(&[3, 7, 5], "Softmax(dim = -1)"));
    check_narrow("rows", 1, along(&[7, 13], "Softmax"));
    check_narrow("channels of a map", 2, along(&[11, 3, 2], "Softmax"));
    check_narrow("logarithms of rows", 1, along(&[7, 13], "LogSoftmax"));
    check_narrow("logarithms of channels of a map", 2, along(&[11, 3, 2], "LogSoftmax"));
}

#[test]
fn softmax_adds_gradients() {
    check("rows", 2, shared(&[5, 13], ["Softmax(2)", "Softmax(1)"]));
    check("a block a row", 1, shared(&[2, 1032], ["Softmax(2)", "Softmax(1)"]));
    check("logarithms", 2, shared(&[5, 13], ["LogSoftmax(2)", "LogSoftmax(1)"]));
}

/// A vector that has a NaN is NaN as a whole, as the gradient of the weights behind it shows, and so is its gradient; the others are numbers.
#[test]
fn a_vector_that_is_not_a_number() {
    let (training, optimizer) = gradients();
    for (layers, own) in [
        ("L2Norm(-1) | Flatten | Linear(2, bias = false)", &[0, 1, 2, 3, 4, 5, 6][..]),
        ("L2Norm(1) | Flatten | Linear(2, bias = false)", &[0, 7, 14]),
    ] {
        let mut graph = Graph::default();
        let output = along(&[3, 7], layers)(&mut graph);
        for (name, is_nan) in not_a_number(&graph, output, training, optimizer, Class::Input) {
            let is_own = |at: usize| match name.strip_suffix("gradient") {
                Some("input.") => own.contains(&at),
                // For each of both outputs.
                Some(_) => own.contains(&(at % 21)),
                None => is_nan[at],
            };
            assert!(is_nan.iter().enumerate().all(|(at, &is_nan)| is_nan == is_own(at)), "{layers}: {name} {is_nan:?}");
        }
    }
}

/// Parameters of 32 bits beside numbers of 16.
#[test]
fn parameters_of_mixed_precision() {
    check_mixed("groups", 2, along(&[4, 3, 5], "GroupNorm(2)"));
    check_mixed("in place", 2, along(&[2, 3, 5], "InplaceAbn(activation_param = 0.5)"));
    check_mixed("rows", 2, along(&[3, 24], "RmsNorm"));
}

//! Networks on the CPU backend and on the kernels: what they leave is compared, tensor by tensor.

use super::tested::{OnCpu, Tested, everyone, without_chains};
use super::{
    CAPABILITY, Case, Format, beginning, chains, corrections, filled, harness, is_apart, job, narrow, prepare_programs,
    widen,
};
use gpumem_core::Precision;
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, Training, lower};
use gpumem_core::program::{Class, Program, StateWord, Tensor};
use gpumem_core::train::Schedule;
use gpumem_core::train::optim::{AdamW8bit, Optimizer};

/// Runs `steps` training steps of a network on the CPU backend and on the kernels, in all three orders of warps, and compares
/// the loss and every tensor that outlives the step, or lives until its end.
#[expect(clippy::too_many_arguments, reason = "each caller varies others of them")]
pub fn compare(
    what: &str,
    graph: &Graph,
    output: NodeId,
    training: Training,
    batch: u64,
    optimizer: Optimizer,
    steps: usize,
    classes: u32,
    tolerance: f64,
) {
    let case = (what, graph, output, training, batch, optimizer);
    compare_in((Precision::F32, CAPABILITY), 0..3, case, steps, classes, tolerance);
}

/// As [`compare`], with the kernels in another number format. The CPU backend stays with f32, on the same rounded numbers.
pub fn compare_in(
    (precision, capability): Format,
    orders: std::ops::Range<i32>,
    (what, graph, output, training, batch, optimizer): Case<'_>,
    steps: usize,
    classes: u32,
    tolerance: f64,
) {
    let program = lower(graph, &[output], &Options { training: Some(training) }).unwrap();
    prepare_programs(&[(precision, capability)], std::slice::from_ref(&program), batch, optimizer);
    let run = Run { batch, optimizer, steps, classes, tolerance, reference: Reference::Cpu };
    compare_programs((precision, capability), orders, what, [&program, &program], run);
}

/// The words of the state that are numbers of a step: its learning rate, with which the CPU backend does without, and what gradients are
/// multiplied with, for which it adds up in another order.
fn of_descent(
    (label, tolerance): (&str, f64),
    (program, optimizer, step): (&Program, Optimizer, u64),
    found: &[u32],
    expected: &mut [u32],
) {
    let schedule = program.descent.schedule;
    if schedule != Schedule::PLAIN {
        let lr = f64::from(optimizer.lr() as f32);
        expected[StateWord::Rate as usize] = (schedule.rate(lr, step) as f32).to_bits();
    }
    for (word, tolerance) in
        [(StateWord::Rate as usize, 1e-6), (StateWord::Clip as usize, tolerance), (StateWord::Norm as usize, tolerance)]
    {
        let [now, there] = [found[word], expected[word]].map(|word| f64::from(f32::from_bits(word)));
        assert!((now - there).abs() <= tolerance * there.abs(), "{label}: word {word} is {now:e}, not {there:e}");
        expected[word] = found[word];
    }
}

/// The words of the state that a card alone counts: losses that it has sent, one a step, and the turns of blocks that wait for each other.
fn of_card(label: &str, step: u64, found: &[u32], expected: &mut [u32]) {
    let (losses, blocks) = (StateWord::Losses as usize, StateWord::Blocks as usize);
    assert!(found[losses] == 0 || u64::from(found[losses]) == step + 1, "{label}: {} losses", found[losses]);
    expected[losses] = found[losses];
    expected[blocks] |= found[blocks] & 1 << 31;
}

/// Compares forward passes that keep a cache, each so many steps behind the beginning.
pub fn compare_cached(what: &str, program: &Program, format: Format, befores: &[u64], classes: u32, tolerance: f64) {
    let (batch, optimizer) = (2, Optimizer::Sgd(gpumem_core::train::optim::Sgd::DEFAULT));
    prepare_programs(&[format], std::slice::from_ref(program), batch, optimizer);
    if !filled::capabilities().is_empty() {
        return filled::fill(&job(program, batch, format.0, optimizer), format.1);
    }
    let mut reference = OnCpu::boxed(job(program, batch, Precision::F32, optimizer));
    let job = job(program, batch, format.0, optimizer);
    for (who, mut tested) in everyone(&job, format.1, 0..3).into_iter().chain(without_chains(&job, format.1)) {
        for (&before, at_hand) in befores.iter().zip(1..) {
            for (id, tensor) in program.tensors.iter().enumerate() {
                let Some(mut words) = beginning(program, id, batch, classes, optimizer) else { continue };
                if tensor.class == Class::State {
                    words[StateWord::Step as usize] = before as u32;
                    // Some steps of a chunk, and more than it has.
                    words[StateWord::AT_HAND] = at_hand;
                }
                tested.put(id, &words);
                reference.put(id, &tested.get(id));
            }
            reference.step();
            tested.step();
            let last = program.operations.len() as u32 - 1;
            let lives = |tensor: &Tensor| tensor.class != Class::Transient || tensor.last == last;
            let lasts = |tensor: &Tensor| lives(tensor) && tensor.part != gpumem_core::program::Part::Workspace;
            let floats = |words: &[u32]| words.iter().map(|&word| f32::from_bits(word)).collect::<Vec<f32>>();
            for (id, tensor) in program.tensors.iter().enumerate().filter(|(_, tensor)| lasts(tensor)) {
                let (found, expected) = (tested.get(id), reference.get(id));
                let label = format!("{what}, {who}, {before} steps behind: {}", program.tensor_name(tensor));
                if matches!(tensor.role, gpumem_core::Role::Index | gpumem_core::Role::State) {
                    assert_eq!(found, expected, "{label}");
                } else {
                    harness::assert_close(&label, &floats(&found), &floats(&expected), tolerance);
                }
            }
        }
    }
}

/// Tensors after one step of a program, as one runner of the kernels leaves them.
pub struct Left {
    pub who: String,
    /// Tensors that were asked for.
    pub found: Vec<Vec<f32>>,
    /// Numbers that were given, rounded to the number format.
    pub given: Vec<Vec<f32>>,
    /// Tolerance for this runner, if the tolerance that was asked for is that of sums in the project's own kernels.
    pub tolerance: f64,
}

/// Runs one step with these numbers in tensors of these names.
pub fn run_with(
    program: &Program,
    (format, orders): (Format, std::ops::Range<i32>),
    (batch, optimizer, tolerance): (u64, Optimizer, f64),
    given: &[(&str, &[f32])],
    wanted: &[usize],
) -> Vec<Left> {
    prepare_programs(&[format], std::slice::from_ref(program), batch, optimizer);
    let job = job(program, batch, format.0, optimizer);
    if !filled::capabilities().is_empty() {
        filled::fill(&job, format.1);
        return Vec::new();
    }
    let floats = |words: Vec<u32>| words.into_iter().map(f32::from_bits).collect::<Vec<f32>>();
    let run = |(who, mut tested): (String, Box<dyn Tested>)| {
        for id in 0..program.tensors.len() {
            if let Some(words) = beginning(program, id, batch, 1, optimizer) {
                tested.put(id, &words);
            }
        }
        let mut rounded = Vec::new();
        for (name, numbers) in given {
            let id = program.tensors.iter().position(|tensor| tensor.name == *name);
            let id = id.unwrap_or_else(|| panic!("nothing is called {name}"));
            tested.put(id, &numbers.iter().map(|number| number.to_bits()).collect::<Vec<u32>>());
            rounded.push(floats(tested.get(id)));
        }
        tested.step();
        let found = wanted.iter().map(|&id| floats(tested.get(id))).collect();
        let tolerance = tested.allowed(tolerance);
        Left { who, found, given: rounded, tolerance }
    };
    everyone(&job, format.1, orders).into_iter().map(run).collect()
}

/// What the kernels are compared with.
pub enum Reference {
    /// The CPU backend, in f32.
    Cpu,
    /// The kernels themselves, in the same number format.
    Kernels,
}

/// How two programs are compared.
pub struct Run {
    pub batch: u64,
    pub optimizer: Optimizer,
    pub steps: usize,
    pub classes: u32,
    pub tolerance: f64,
    pub reference: Reference,
}

/// As [`compare_in`], with a program for the reference and one for the kernels, which differ in layouts alone.
pub fn compare_programs(
    (precision, capability): Format,
    orders: std::ops::Range<i32>,
    what: &str,
    [program, arranged]: [&Program; 2],
    Run { batch, optimizer, steps, classes, tolerance, reference }: Run,
) {
    if !filled::capabilities().is_empty() {
        return filled::fill(&job(arranged, batch, precision, optimizer), capability);
    }
    let job_of_kernels = job(arranged, batch, precision, optimizer);
    // The same bits are as good as another run beside the reference. The sanitizers look at addresses, for which one run is enough.
    let one_by_one = if is_apart() {
        without_chains(&job_of_kernels, capability)
    } else {
        chains::same_bits(what, arranged, batch, (precision, capability), classes, optimizer);
        None
    };
    let mut reference = match reference {
        Reference::Cpu => OnCpu::boxed(job(program, batch, Precision::F32, optimizer)),
        Reference::Kernels => {
            match everyone(&job(program, batch, precision, optimizer), capability, 0..1).into_iter().next() {
                Some((_, first)) => first,
                // Kernels of another card, without the shim.
                None => return,
            }
        }
    };
    let last = program.operations.len() as u32 - 1;
    for (who, mut tested) in everyone(&job_of_kernels, capability, orders).into_iter().chain(one_by_one) {
        let tolerance = tested.allowed(tolerance);
        for id in 0..program.tensors.len() {
            if let Some(mut words) = beginning(program, id, batch, classes, optimizer) {
                // A gradient may be what it is compared with, which has 32 bits: rounding to 16 is not what is looked at.
                let is_target = program.tensors[id].class == Class::Target;
                if is_target && program.tensors[id].role == gpumem_core::Role::Statistic {
                    words.iter_mut().for_each(|word| *word = rounded(precision, *word));
                }
                tested.put(id, &words);
                // Rounded to what the kernels got.
                reference.put(id, &tested.get(id));
            }
        }
        for step in 0..steps {
            // Of a batch that is split, all parts have the same numbers.
            for part in 0..program.descent.micro_batches - 1 {
                reference.accumulate(part);
                tested.accumulate(part);
            }
            reference.step();
            tested.step();
            for (id, tensor) in program.tensors.iter().enumerate() {
                // A copy of running statistics has gaps, in which there is nothing.
                let is_read = tensor.last == last && tensor.part != gpumem_core::program::Part::Saved;
                if tensor.class == Class::Transient && !is_read {
                    continue;
                }
                let (found, mut expected) = (tested.get(id), reference.get(id));
                let label = format!("{what}, {who}, step {step}: {}", program.tensor_name(tensor));
                if matches!(tensor.role, gpumem_core::Role::Index | gpumem_core::Role::State) {
                    if tensor.class == Class::State && precision.scales_loss() {
                        expected[StateWord::GoodSteps as usize] = step as u32 + 1;
                    }
                    if tensor.class == Class::State {
                        let at = StateWord::Corrections as usize;
                        expected[at..at + 2].copy_from_slice(&corrections(optimizer, step as u64));
                        of_descent((&label, tolerance), (program, optimizer, step as u64), &found, &mut expected);
                        of_card(&label, step as u64, &found, &mut expected);
                    }
                    assert_eq!(found, expected, "{label}");
                    continue;
                }
                if tensor.role.coding().is_some() {
                    assert_eq!(found, expected, "{label}");
                    continue;
                }
                if tensor.role == gpumem_core::Role::Code {
                    assert_codes(&label, (precision, tolerance), &found, &expected);
                    continue;
                }
                let floats = |words: &[u32]| words.iter().map(|&word| f32::from_bits(word)).collect::<Vec<f32>>();
                harness::assert_close(&label, &floats(&found), &floats(&expected), tolerance);
            }
        }
    }
}

/// A number as memory has it in the network's format.
fn rounded(precision: Precision, word: u32) -> u32 {
    if precision == Precision::F32 { word } else { widen(precision, narrow(precision, word)) }
}

/// Which elements are NaN after a step in f32 in which the first number of the input or the target is: by the kernels the same as by the CPU
/// backend. Those of everything that lasts, by name.
pub fn not_a_number(
    graph: &Graph,
    output: NodeId,
    training: Training<'_>,
    optimizer: Optimizer,
    class: Class,
) -> Vec<(String, Vec<bool>)> {
    let (batch, format) = (2, (Precision::F32, CAPABILITY));
    let program = lower(graph, &[output], &Options { training: Some(training) }).unwrap();
    prepare_programs(&[format], std::slice::from_ref(&program), batch, optimizer);
    if !filled::capabilities().is_empty() {
        filled::fill(&job(&program, batch, format.0, optimizer), format.1);
        return Vec::new();
    }
    let mut all = vec![("the CPU backend".to_string(), OnCpu::boxed(job(&program, batch, format.0, optimizer)))];
    let job = job(&program, batch, format.0, optimizer);
    all.extend(everyone(&job, format.1, 0..1).into_iter().chain(without_chains(&job, format.1)));
    let last = program.operations.len() as u32 - 1;
    let mut found = Vec::new();
    for (who, mut tested) in all {
        for (id, tensor) in program.tensors.iter().enumerate() {
            let Some(mut words) = beginning(&program, id, batch, 5, optimizer) else { continue };
            if tensor.class == class {
                words[0] = f32::NAN.to_bits();
            }
            tested.put(id, &words);
        }
        tested.step();
        let lasting =
            program.tensors.iter().enumerate().filter(|(_, it)| it.class != Class::Transient || it.last == last);
        let lasting = lasting.filter(|(_, it)| !matches!(it.role, gpumem_core::Role::Index | gpumem_core::Role::State));
        let is_nan = |id: usize, tested: &mut Box<dyn Tested>| -> Vec<bool> {
            tested.get(id).into_iter().map(|word| f32::from_bits(word).is_nan()).collect()
        };
        let now: Vec<(String, Vec<bool>)> =
            lasting.map(|(id, it)| (program.tensor_name(it), is_nan(id, &mut tested))).collect();
        if found.is_empty() {
            found = now;
        } else {
            assert_eq!(now, found, "{who}");
        }
    }
    found
}

/// Codes are of the nearest entry of a map: where gradients differ by rounding, a few elements are nearer to the entry beside it. In formats
/// of 16 bits these are many, and where a gradient is small beside its terms several entries lie between: what codes stand for differs by no
/// more than numbers do, and an entry.
fn assert_codes(label: &str, (precision, tolerance): (Precision, f64), found: &[u32], expected: &[u32]) {
    let map = AdamW8bit::MAPS[usize::from(label.ends_with("moment1"))];
    let entry = 0.9 / 64.0 + 1e-6;
    let apart = |found: u32, expected: u32| f64::from(map.decode(found as u8) - map.decode(expected as u8)).abs();
    let mut others = 0;
    for (&found, &expected) in found.iter().zip(expected).filter(|(found, expected)| found != expected) {
        assert!(apart(found, expected) <= entry + tolerance, "{label}: code {found} is not {expected}");
        others += 1;
    }
    assert!(precision != Precision::F32 || 50 * others <= found.len(), "{label}: {others} of {} codes", found.len());
}

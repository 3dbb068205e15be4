//! Random networks: lifetimes, in-place operations and accumulation must not change what is computed.
//!
//! Memory that holds no living tensor is filled with NaN after every operation, so a lifetime that is too short shows. The
//! same network with fused and with separate updates has two different plans and must end in the same bits. Gradients are
//! compared with differences of the loss, which know nothing of how the backward pass is cut into operations.

mod harness;

use gpumem_core::graph::{Graph, Lora, NodeId, Source};
use gpumem_core::lower::{Options, Sizes, Term, Training, lower, lower_for};
use gpumem_core::memory::tables::Workspaces;
use gpumem_core::number::Coding;
use gpumem_core::program::{Op, Program, StateWord};
use gpumem_core::train::Descent;
use gpumem_core::train::optim::{Optimizer, Sgd};
use gpumem_core::{Precision, Update};
use gpumem_cpu::Cpu;
use harness::Loaded;
use harness::filled::{fill, spread, trained, words};
use harness::graphs::random::{BATCH, Choice, KINDS, network};
use harness::graphs::{chain, in_eval, join, layer, numbers};
use proptest::prelude::*;

/// A step with one state a parameter.
const PLAIN: Training<'static> = Training {
    loss: &[Term::CROSS_ENTROPY],
    moments: 1,
    update: Update::Fused,
    skips_overflow: false,
    input_gradient: false,
    descent: Descent::PLAIN,
};

fn choices(most: usize) -> impl Strategy<Value = Vec<Choice>> {
    prop::collection::vec((0..KINDS, 0usize..20, 0usize..20), 1..most)
}

/// The bits of three losses, and of all parameters after them.
fn train(graph: &Graph, output: NodeId, update: Update, threads: usize) -> (Vec<u32>, Vec<Vec<u32>>) {
    let training = Training { update, ..PLAIN };
    trained(&lower(graph, &[output], &Options { training: Some(training) }).unwrap(), threads)
}

/// The loss at the same point of the random sequence as every other call.
fn loss(loaded: &mut Loaded) -> f64 {
    let mut state = [0; StateWord::COUNT];
    state[StateWord::Seed as usize] = 5;
    loaded.set("state", &state);
    f64::from(loaded.step().unwrap())
}

/// The derivative of the loss where the tensor called `name` moves along `direction`: central differences of two widths,
/// combined such that the term of third order drops out.
fn slope(loaded: &mut Loaded, name: &str, direction: &[f32], width: f32) -> f64 {
    let values = loaded.get(name).unwrap();
    let mut at = |step: f32| {
        let moved: Vec<f32> = values.iter().zip(direction).map(|(x, d)| x + step * d).collect();
        loaded.set(name, &words(&moved));
        loss(loaded)
    };
    let mut difference = |step: f32| (at(step) - at(-step)) / f64::from(2.0 * step);
    let (wide, narrow) = (difference(width), difference(width / 2.0));
    loaded.set(name, &words(&values));
    (4.0 * narrow - wide) / 3.0
}

fn norm(values: &[f32]) -> f64 {
    values.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt()
}

/// Compares the gradient of every parameter and of the image with slopes of the loss: along the gradient itself, where a
/// part too much or too little shows, and along another direction.
fn check_gradients(graph: &Graph, output: NodeId) {
    let training = Training { moments: 0, update: Update::Separate, input_gradient: true, ..PLAIN };
    let stay = Optimizer::Sgd(Sgd { lr: 0.0, ..Sgd::DEFAULT });
    let mut loaded = Loaded::new(graph, output, training, BATCH, stay);
    let mut names = fill(&mut loaded);
    let tensors = &loaded.train.program.tensors;
    names.retain(|name| tensors.iter().any(|tensor| tensor.name == *name && tensor.trained));
    names.push("input".into());
    let height = loss(&mut loaded);
    let gradients: Vec<Vec<f32>> = names.iter().map(|name| loaded.get(&format!("{name}.gradient")).unwrap()).collect();
    for (name, gradient) in names.iter().zip(gradients) {
        let length = norm(&gradient);
        assert!(length.is_finite(), "gradient of {name}: {gradient:?}");
        let unit = |values: &[f32], length: f64| -> Vec<f32> {
            values.iter().map(|&x| (f64::from(x) / length.max(1e-30)) as f32).collect()
        };
        let other = spread(gradient.len(), 3);
        for direction in [unit(&gradient, length), unit(&other, norm(&other))] {
            let found: f64 = gradient.iter().zip(&direction).map(|(&g, &d)| f64::from(g) * f64::from(d)).sum();
            // Narrow steps where the loss is curved; not only those, for rounding blurs them where it is flat.
            let widths = [2e-2, 4e-3, 2e-3, 1e-3, 8e-4, 4e-4, 2e-4].map(|width| width / length.max(1.0) as f32);
            // What rounding of a large loss makes of the widest step.
            let rounding = 2.0 * f64::from(f32::EPSILON) * height.abs() / f64::from(widths[0]);
            let near = 5e-4 * length.max(1.0) + rounding;
            let mut slopes = Vec::new();
            let is_slope = widths.into_iter().any(|width| {
                let slope = slope(&mut loaded, name, &direction, width);
                slopes.push(slope);
                (found - slope).abs() <= 5e-3 * slope.abs() + near
            });
            assert!(is_slope, "{name}: gradient {found}, slope {slopes:?}\n{}", loaded.train.program);
        }
    }
}

/// Whether a forward pass computes the same in training and without it.
fn same_in_inference(graph: &Graph) -> bool {
    graph.nodes.iter().all(|node| match &node.source {
        Source::Op { op: Op::BatchNorm(_) | Op::InplaceNorm(_) | Op::Mask(_) | Op::SpectralNorm(_), .. } => false,
        Source::Op { op: Op::Attention(attention), .. } => attention.dropout == 0.0,
        _ => true,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn plans_do_not_change_what_is_computed(choices in choices(24)) {
        let (graph, output) = network(&choices, true);
        let fused = train(&graph, output, Update::Fused, 1);
        prop_assert_eq!(&fused, &train(&graph, output, Update::Separate, 2));
    }

    /// Whatever order needs least, gradients are the same but for the order of sums, and nothing dies too early.
    #[test]
    fn orders_do_not_change_what_is_computed(choices in choices(24)) {
        let (graph, output) = network(&choices, true);
        let options = Options { training: Some(PLAIN) };
        let setting = Sizes::new(BATCH, Precision::F32, Workspaces { product: 0, convolution: 0 });
        let ordered = lower_for(&graph, &[output], &options, &setting).unwrap();
        let (losses, found) = trained(&ordered, 2);
        let (expected_losses, expected) = train(&graph, output, Update::Fused, 2);
        for (found, expected) in found.iter().chain([&losses]).zip(expected.iter().chain([&expected_losses])) {
            let value = |bits: &u32| f32::from_bits(*bits);
            let most = expected.iter().map(|bits| value(bits).abs()).fold(0.0, f32::max);
            for (found, expected) in found.iter().map(value).zip(expected.iter().map(value)) {
                prop_assert!((found - expected).abs() <= 1e-4 * most + 1e-6, "{found} {expected} {most}\n{ordered}");
            }
        }
    }

    #[test]
    fn gradients_are_slopes_of_the_loss(choices in choices(12)) {
        let (graph, output) = network(&choices, false);
        check_gradients(&graph, output);
    }

    /// A validation loss is that of the forward pass without training, and changes nothing.
    #[test]
    fn evaluation_is_the_loss_of_inference(choices in choices(24)) {
        let (graph, output) = network(&choices, true);
        let sgd = Optimizer::Sgd(Sgd { lr: 1e-4, momentum: 0.9, ..Sgd::DEFAULT });
        let mut loaded = Loaded::new(&graph, output, PLAIN, BATCH, sgd);
        fill(&mut loaded);
        // Running statistics that are not those of the batch.
        loaded.step().unwrap();
        fill(&mut loaded);
        let carried = loaded.carried();
        let found = f64::from(loaded.evaluate().unwrap());
        prop_assert_eq!(loaded.carried(), carried.clone());
        let mut inference = Loaded::with_threads(&graph, output, None, BATCH, sgd, 2);
        fill(&mut inference);
        for (name, words) in carried {
            if inference.get(&name).is_some() {
                inference.set(&name, &words);
            }
        }
        let expected = cross_entropy(&inference.infer().unwrap());
        prop_assert!((found - expected).abs() <= 1e-5 * (1.0 + expected.abs()), "{} {}", found, expected);
    }

    /// The two programs work in place at different places.
    #[test]
    fn inference_computes_what_training_does(mut choices in choices(24)) {
        choices.retain(|choice| same_in_inference(&network(&[*choice], true).0));
        prop_assume!(!choices.is_empty());
        let (graph, output) = network(&choices, true);
        let stay = Optimizer::Sgd(Sgd { lr: 0.0, ..Sgd::DEFAULT });
        let training = Training { loss: &[Term::MSE], moments: 0, ..PLAIN };
        let mut loaded = Loaded::new(&graph, output, training, BATCH, stay);
        fill(&mut loaded);
        let target = loaded.get("target").unwrap();
        let found = f64::from(loaded.step().unwrap());
        let mut loaded = Loaded::with_threads(&graph, output, None, BATCH, stay, 2);
        fill(&mut loaded);
        let result = loaded.infer().unwrap();
        let squares: f64 = result.iter().zip(&target).map(|(y, t)| f64::from(y - t) * f64::from(y - t)).sum();
        let expected = squares / target.len() as f64;
        prop_assert!((found - expected).abs() <= 1e-5 * expected.abs(), "{} {}", found, expected);
    }
}

/// A network with frozen uses of parameters, detached views and, if it `rests`, all layers in `eval`. `None` where nothing is trained.
fn with_modes(choices: &[Choice], stopped: &[bool], rests: bool) -> Option<(Graph, NodeId)> {
    let (mut graph, output) = network(choices, true);
    let may_stop = |source: &Source| matches!(source, Source::Parameter(_) | Source::View(_));
    let places = graph.nodes.iter_mut().filter(|node| may_stop(&node.source));
    places.zip(stopped.iter().cycle()).for_each(|(node, &stopped)| node.detached = stopped);
    if rests {
        in_eval(&mut graph);
    }
    graph.differentiable(false)[output].then_some((graph, output))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Uses of parameters that are frozen, and views that are detached, wherever they are, in training and in `eval`.
    #[test]
    fn modes_are_planned_as_all_else(
        choices in choices(24),
        stopped in prop::collection::vec(any::<bool>(), 64),
        rests in any::<bool>(),
    ) {
        let Some((graph, output)) = with_modes(&choices, &stopped, rests) else { return Ok(()) };
        let expected = train(&graph, output, Update::Fused, 1);
        prop_assert_eq!(&expected, &train(&graph, output, Update::Separate, 2));
        let setting = Sizes::new(BATCH, Precision::F32, Workspaces { product: 0, convolution: 0 });
        let ordered = lower_for(&graph, &[output], &Options { training: Some(PLAIN) }, &setting).unwrap();
        let (losses, found) = trained(&ordered, 2);
        for (found, expected) in found.iter().chain([&losses]).zip(expected.1.iter().chain([&expected.0])) {
            let value = |bits: &u32| f32::from_bits(*bits);
            let most = expected.iter().map(|bits| value(bits).abs()).fold(0.0, f32::max);
            for (found, expected) in found.iter().map(value).zip(expected.iter().map(value)) {
                prop_assert!((found - expected).abs() <= 1e-4 * most + 1e-6, "{found} {expected} {most}\n{ordered}");
            }
        }
    }

    /// In `eval` gradients are slopes of the loss, which is that of validation, and statistics rest.
    #[test]
    fn what_rests_trains_as_it_infers(choices in choices(12)) {
        let (mut graph, output) = network(&choices, false);
        in_eval(&mut graph);
        check_gradients(&graph, output);
        let is_undone = |source: &Source| matches!(source, Source::Op { op: Op::InplaceNorm(_), .. });
        prop_assume!(!graph.nodes.iter().any(|node| is_undone(&node.source)));
        let sgd = Optimizer::Sgd(Sgd { lr: 1e-4, ..Sgd::DEFAULT });
        let mut loaded = Loaded::new(&graph, output, Training { moments: 0, ..PLAIN }, BATCH, sgd);
        fill(&mut loaded);
        let statistics = |loaded: &mut Loaded| -> Vec<Vec<f32>> {
            // Statistics in a branch that the output does not read are left out of the program.
            graph.buffers.iter().filter_map(|buffer| loaded.get(&buffer.name)).collect()
        };
        let (before, expected) = (statistics(&mut loaded), f64::from(loaded.evaluate().unwrap()));
        let found = f64::from(loaded.step().unwrap());
        prop_assert!((found - expected).abs() <= 1e-5 * (1.0 + expected.abs()), "{} {}", found, expected);
        prop_assert_eq!(statistics(&mut loaded), before);
    }
}

/// A network all of whose linear maps have adapters, and nothing else is trained.
fn adapted(choices: &[Choice], kinked: bool, base: Option<Coding>) -> (Graph, NodeId) {
    let (mut graph, output) = network(choices, kinked);
    let lora = Lora { rank: 2, alpha: 3.0, targets: Vec::new(), base, rows: 0..graph.rows.len() };
    let places = graph.adapt(&[lora]);
    (graph, places[output])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn adapters_are_planned_as_all_else(choices in choices(24)) {
        let (graph, output) = adapted(&choices, true, None);
        let fused = train(&graph, output, Update::Fused, 1);
        prop_assert_eq!(&fused, &train(&graph, output, Update::Separate, 2));
    }

    #[test]
    fn gradients_of_adapters_are_slopes_of_the_loss(choices in choices(12), base in prop::option::of(prop::sample::select(&Coding::ALL[..]))) {
        let (graph, output) = adapted(&choices, false, base);
        let trained: Vec<&str> = graph.trained_parameters().map(|it| it.name.as_str()).collect();
        prop_assert!(trained.len() >= 2 && trained.iter().all(|name| name.contains("lora_")), "{:?}", trained);
        check_gradients(&graph, output);
    }

    /// A network with weights in codes is that of the numbers that these say, to the bit, and it is planned as all else.
    #[test]
    fn weights_in_codes_are_what_they_say(choices in choices(24), coding in prop::sample::select(&Coding::ALL[..])) {
        let lowered = |base, update| {
            let (graph, output) = adapted(&choices, true, base);
            let training = Training { update, ..PLAIN };
            lower(&graph, &[output], &Options { training: Some(training) }).unwrap()
        };
        let (coded, plain) = (lowered(Some(coding), Update::Fused), lowered(None, Update::Fused));
        let names = coded.tensors.iter().filter(|tensor| tensor.role == coding.role()).map(|tensor| tensor.name.clone());
        let names: Vec<String> = names.collect();
        prop_assert!(!names.is_empty());
        prop_assert_eq!(trained(&coded, 1), trained(&lowered(Some(coding), Update::Separate), 2));
        let losses = |program: &Program| {
            let sgd = Optimizer::Sgd(Sgd { lr: 1e-4, momentum: 0.9, ..Sgd::DEFAULT });
            let mut loaded = Loaded::of(&Cpu::with_threads(2).unwrap().with_poison(true), program, BATCH, sgd).unwrap();
            fill(&mut loaded);
            for name in names.iter().filter(|_| std::ptr::eq(program, &plain)) {
                let values = loaded.get(name).unwrap();
                let (codes, scales) = coding.quantize(&values);
                let mut said = vec![0.0; values.len()];
                coding.dequantize(&codes, &scales, &mut said);
                loaded.set(name, &words(&said));
            }
            let losses: Vec<u32> = (0..3).map(|_| loaded.step().unwrap().to_bits()).collect();
            let adapters = program.tensors.iter().filter(|tensor| tensor.trained).map(|tensor| loaded.get(&tensor.name));
            (losses, adapters.map(|values| words(&values.unwrap())).collect::<Vec<_>>())
        };
        prop_assert_eq!(losses(&coded), losses(&plain));
    }
}

/// Mean cross entropy of the rows of `logits` at the classes that `fill` gives.
fn cross_entropy(logits: &[f32]) -> f64 {
    let classes = logits.len() / BATCH as usize;
    let terms = logits.chunks_exact(classes).zip([0, 3, 1]).map(|(row, class)| {
        let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = row.iter().map(|&x| (f64::from(x) - f64::from(most)).exp()).sum();
        sum.ln() + f64::from(most) - f64::from(row[class])
    });
    terms.sum::<f64>() / BATCH as f64
}

/// A rectifier in front of a pooling is computed after it. With a second reader, though one that nothing depends on, it
/// stays where it is.
#[test]
fn pooling_first_changes_no_bit() {
    for rectifier in ["Relu", "Relu(inplace = true)", "Relu6"] {
        for pool in
            ["MaxPool2d(2)", "MaxPool2d(3, 2, padding = 1)", "MaxPool2d(3, 1)", "MaxPool2d(2, 2, ceil_mode = true)"]
        {
            let run = |stays: bool, update| {
                let mut graph = Graph::default();
                let input = graph.input(numbers(&[2, 7, 6])).unwrap();
                let x = layer(&mut graph, input, "Conv2d(4, 3)");
                let rectified = layer(&mut graph, x, rectifier);
                let output = chain(&mut graph, rectified, &format!("{pool} | Conv2d(3, 2) | Flatten | Linear(4)"));
                if stays {
                    layer(&mut graph, rectified, "Flatten");
                }
                train(&graph, output, update, 2)
            };
            let first = run(false, Update::Fused);
            assert_eq!(first, run(true, Update::Fused), "{rectifier} and {pool}");
            assert_eq!(first, run(false, Update::Separate), "{rectifier} and {pool}");
        }
    }
}

/// Rectifiers in front of a concatenation that a gradient reads again are one behind it. With a second reader of one of them, though one that
/// nothing depends on, all stay where they are, and each keeps bits.
#[test]
fn joining_first_changes_no_bit() {
    for (rectifier, behind) in
        [("Relu", "Conv2d(3, 2)"), ("Relu(inplace = true)", "BatchNorm2d"), ("Relu6", "Conv2d(3, 1)")]
    {
        let lowered = |stays: bool| {
            let mut graph = Graph::default();
            let input = graph.input(numbers(&[2, 7, 6])).unwrap();
            let x = layer(&mut graph, input, "Conv2d(4, 3)");
            let branches = ["Conv2d(2, 1)", "Conv2d(3, 3, padding = 1)", "Conv2d(2, 1)"]
                .map(|text| chain(&mut graph, x, &format!("{text} | {rectifier}")));
            let joined = join(&mut graph, &branches, "Concat");
            let output = chain(&mut graph, joined, &format!("{behind} | Flatten | Linear(4)"));
            if stays {
                layer(&mut graph, branches[1], "Flatten");
            }
            lower(&graph, &[output], &Options { training: Some(PLAIN) }).unwrap()
        };
        let (program, apart) = (lowered(false), lowered(true));
        let rectifiers = |program: &Program| {
            let backward = program.operations.iter().filter_map(|operation| operation.backward());
            backward.filter(|op| matches!(op, Op::Pointwise(_) | Op::Rectifier(_))).count()
        };
        assert_eq!((rectifiers(&program), rectifiers(&apart)), (1, 3), "{program}");
        assert_eq!(trained(&program, 1), trained(&apart, 2), "{rectifier}, {behind}");
        // Of the joined ones not even bits.
        let kept = |program: &Program| program.kept_of_layers().iter().map(|kept| 4 * kept[1] + kept[5]).sum::<u64>();
        assert!(kept(&program) < kept(&apart), "{} {}", kept(&program), kept(&apart));
    }
}

/// A square of a window's mask, whose -100 leaves a loss of thousands.
#[test]
fn the_gradient_of_a_large_loss_is_its_slope() {
    let choices: Vec<Choice> = vec![(112, 4, 6), (52, 1, 0), (0, 0, 0), (63, 11, 8), (0, 0, 0), (21, 0, 0)];
    let (graph, output) = network(&choices, false);
    check_gradients(&graph, output);
}

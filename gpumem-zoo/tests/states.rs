//! Bytes of a parameter in training, to the byte: GPT-2 XL in mixed precision, updated at the end of the step or in it, with states of
//! 32 bits and of 8. The table in `docs/memory-model.md` is made here.
#![allow(missing_docs)]

use gpumem::{Half, Line, Network, Precision, Update};
use gpumem_core::Role;
use gpumem_core::lower::{Blueprint, tables};
use gpumem_core::memory::budget::{Budget, budget_at};
use gpumem_core::memory::refusal::Aim;
use gpumem_core::memory::tables::Workspaces;
use gpumem_core::program::{Class, Program};
use gpumem_core::train::optim::{AdamW, AdamW8bit, Optimizer};
use gpumem_zoo::gpt2::Gpt2Xl;
use std::fmt::Write as _;

const PRECISION: Precision = Precision::Mixed(Half::Bf16);

/// The training step of the zoo's network with another optimizer, and what it needs at a batch of one.
fn plan(optimizer: Optimizer, update: Update) -> (Program, Budget) {
    let mut blueprint = Blueprint::decode(Gpt2Xl::<1>::BLUEPRINT).unwrap();
    let steps = blueprint.training.as_mut().unwrap();
    (steps.moments, steps.update) = (optimizer.moments(), update);
    let program = blueprint.training(PRECISION).unwrap().unwrap();
    let workspaces = Workspaces::aimed(&Aim::at(&[]), gpumem::Train::DEFAULT.conv_workspace);
    let tables = tables(&program).leak().with_workspaces(workspaces);
    let budget = budget_at(&tables, 1, PRECISION).unwrap();
    (program, budget)
}

/// Elements of each parameter, and whether it is one of a normalisation layer, which is f32 and has no master copy.
fn parameters(program: &Program) -> Vec<(u64, bool)> {
    let parameters = program.tensors.iter().filter(|tensor| tensor.class == Class::Parameter);
    parameters.map(|tensor| (tensor.shape.elements().unwrap(), tensor.role == Role::Norm)).collect()
}

const LINES: [Line; 4] = [Line::Weights, Line::Master, Line::Gradients, Line::Optimizer];

#[test]
fn bytes_of_a_parameter() {
    let rules = [Optimizer::AdamW(AdamW::DEFAULT), Optimizer::AdamW8bit(AdamW8bit::DEFAULT)];
    let mut text = String::from(
        "| optimizer | update | weights | master | gradients | optimizer | sum | arena at batch 1 |\n\
         | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    let mut arenas = Vec::new();
    for optimizer in rules {
        for update in [Update::Separate, Update::Fused] {
            let (program, budget) = plan(optimizer, update);
            let parameters = parameters(&program);
            let sum = |each: &dyn Fn(u64, bool) -> u64| -> u64 {
                parameters.iter().map(|&(elements, is_norm)| each(elements, is_norm)).sum()
            };
            let all = sum(&|elements, _| elements);
            assert_eq!((all, sum(&|elements, is_norm| u64::from(is_norm) * elements)), (1_557_611_200, 97 * 2 * 1600));
            let held = u64::from(update == Update::Separate);
            let gradients = held * sum(&|elements, is_norm| elements * if is_norm { 4 } else { 2 });
            let states = match optimizer {
                Optimizer::AdamW(_) => 8 * all,
                // Two codes an element and two scales a block, or what a small parameter has in f32.
                _ => sum(&|elements, _| match elements {
                    ..4096 => 8 * elements,
                    _ => 2 * elements + 8 * elements.div_ceil(256),
                }),
            };
            let expected = [
                sum(&|elements, is_norm| elements * if is_norm { 4 } else { 2 }),
                sum(&|elements, is_norm| if is_norm { 0 } else { 4 * elements }),
                gradients,
                states,
            ];
            assert_eq!(LINES.map(|line| budget[line]), expected, "{optimizer:?}, {update:?}");
            let bytes: u64 = expected.iter().sum();
            if (optimizer, update) == (rules[0], Update::Separate) {
                // Of weights 2 + 4 + 2 + 8, of scales and shifts 4 + 0 + 4 + 8.
                assert_eq!(bytes, 16 * all);
            }
            let [weights, master, gradients, states] = expected.map(|bytes| bytes as f64 / all as f64);
            writeln!(
                text,
                "| `{}` | `{update:?}` | {weights:.2} | {master:.2} | {gradients:.2} | {states:.2} | {:.2} | {:.2} GiB |",
                optimizer.row().name,
                bytes as f64 / all as f64,
                budget[Line::Arena] as f64 / f64::from(1 << 30),
            )
            .unwrap();
            arenas.push((budget, bytes));
        }
    }
    // What fusing saves, of the gradients and of the arena: no gradient that lives inside the step makes it larger.
    for pair in arenas.chunks(2) {
        let [(separate, _), (fused, _)] = pair else { unreachable!() };
        let saved = separate[Line::Arena] - fused[Line::Arena];
        assert!(saved >= separate[Line::Gradients] * 9 / 10, "{saved} of {}", separate[Line::Gradients]);
    }
    let path = format!("{}/../docs/memory-model.md", env!("CARGO_MANIFEST_DIR"));
    let doc = std::fs::read_to_string(&path).unwrap();
    let (start, end) = ("<!-- states -->\n", "<!-- end of states -->");
    let (from, to) = (doc.find(start).unwrap() + start.len(), doc.find(end).unwrap());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{}{text}{}", &doc[..from], &doc[to..])).unwrap();
        return;
    }
    assert_eq!(&doc[from..to], text, "run `UPDATE_DOCS=1 cargo test -p gpumem-zoo --test states`");
}

//! `conv_norm` of `TRAIN`: convolutions that run as one with their normalisations, and when they do not.

mod common;

use common::{chain, join, layer, numbers, plan_within};
use gpumem_core::graph::Graph;
use gpumem_core::lower::{Blueprint, Sizes, Steps, Term};
use gpumem_core::memory::budget::Line;
use gpumem_core::memory::tables::Workspaces;
use gpumem_core::program::{Action, Op, Program};
use gpumem_core::train::{ConvNorm, Descent};
use gpumem_core::{Checkpoint, Precision, Update};

/// Two bottlenecks of 256 channels.
fn blueprint(conv_norm: ConvNorm) -> Blueprint {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[3, 16, 16])).unwrap();
    let mut x = chain(&mut graph, input, "Conv2d(256, 3, padding = 1, bias = false) | BatchNorm2d | Relu");
    for _ in 0..2 {
        let inner = "Conv2d(64, 1, bias = false) | BatchNorm2d | Relu | Conv2d(64, 3, padding = 1, bias = false) | BatchNorm2d | \
                     Relu | Conv2d(256, 1, bias = false) | BatchNorm2d";
        let made = chain(&mut graph, x, inner);
        let sum = join(&mut graph, &[made, x], "Add");
        x = layer(&mut graph, sum, "Relu");
    }
    let output = chain(&mut graph, x, "GlobalAvgPool | Linear(3)");
    let (loss, update, checkpoint, descent) = (vec![Term::MSE], Update::Fused, Checkpoint::None, Descent::PLAIN);
    let training = Some(Steps { loss, moments: 1, update, checkpoint, descent, conv_norm, ordered_at: None });
    Blueprint { graph, outputs: vec![output], training, cached: None, parts: Default::default() }
}

fn setting(batch: u64) -> Sizes {
    Sizes::new(batch, Precision::F32, Workspaces { product: 32 << 20, convolution: 256 << 20 })
}

fn fused(program: &Program) -> usize {
    let is_it = |action: &Action| matches!(action, Action::Run { op: Op::NormalizedConvolution(_), .. });
    program.operations.iter().filter(|operation| is_it(&operation.action)).count()
}

fn training(blueprint: &Blueprint) -> Program {
    blueprint.training(Precision::F32).unwrap().unwrap()
}

#[test]
fn separate_runs_both_one_after_the_other() {
    assert_eq!(fused(&training(&blueprint(ConvNorm::Fused))), 4);
    assert_eq!(fused(&training(&blueprint(ConvNorm::Separate))), 0);
}

/// Scratch memory of 8 MiB is more than what a sample saves, and less than what many do.
#[test]
fn they_are_one_where_a_step_needs_no_more() {
    let arena = |blueprint: &Blueprint, batch: u64| {
        let plan = plan_within(&training(blueprint), batch, Precision::F32, setting(batch).workspaces);
        plan.budget[Line::Arena]
    };
    for (batch, chosen) in [(1, ConvNorm::Separate), (256, ConvNorm::Fused)] {
        let mut settled = blueprint(ConvNorm::Fused);
        settled.settle_conv_norm(&setting(batch)).unwrap();
        assert_eq!(settled.training.as_ref().unwrap().conv_norm, chosen, "batch {batch}");
        let [one, apart] = ConvNorm::ALL.map(|conv_norm| arena(&blueprint(conv_norm), batch));
        assert_eq!(arena(&settled, batch), one.min(apart), "batch {batch}");
    }
    let mut separate = blueprint(ConvNorm::Separate);
    separate.settle_conv_norm(&setting(256)).unwrap();
    assert_eq!(separate, blueprint(ConvNorm::Separate));
}

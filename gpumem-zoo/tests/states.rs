//! Bytes of a parameter in training, to the byte: GPT-2 XL in mixed precision, updated at the end of the step or in it, with states of
//! 32 bits, of 8 and in host memory, and with adapters. The table in `docs/lab/memory-results.md` is made here.
#![allow(missing_docs)]

mod pages;

use gpumem::{Half, Line, Network, Offload, Precision, Update, network};
use gpumem_core::lower::{Blueprint, Fitted, Leaner, Sizes, tables};
use gpumem_core::memory::budget::{Budget, budget_at};
use gpumem_core::memory::tables::Workspaces;
use gpumem_core::memory::target_cards::TargetCards;
use gpumem_core::program::{Class, Program};
use gpumem_core::train::optim::{AdamW, AdamW8bit, Optimizer};
use gpumem_core::{Checkpoint, Role};
use gpumem_zoo::gpt2::Gpt2Xl;
use std::fmt::Write as _;

network! {
    /// GPT-2 XL with an adapter of rank 8 at every linear map.
    pub struct Tuned;

    use blocks gpumem_zoo::gpt2::gpt2_blocks;

    const TRAIN: Train = Train {
        batch: 1,
        optimizer: AdamW { lr: 2e-4 },
        loss: CrossEntropy,
        precision: Mixed(Bf16),
        update: Separate,
    };

    fn forward(tokens: Tokens<1024>) -> TokenLogits<1024, 50257> {
        let wte = Embedding(50257, 1600, name = "wte");
        lora(8, 16.0, [
            Add(wte, PositionEmbedding(1024, 1600, name = "wpe")),
            repeat(48, h(1600, 25)), LayerNorm(name = "ln_f"), Tied(wte),
        ])
    }
}

network! {
    /// The same, its linear maps in 4 bits.
    pub struct TunedInCodes;

    use blocks gpumem_zoo::gpt2::gpt2_blocks;

    const TRAIN: Train = Train {
        batch: 1,
        optimizer: AdamW { lr: 2e-4 },
        loss: CrossEntropy,
        precision: Mixed(Bf16),
    };

    fn forward(tokens: Tokens<1024>) -> TokenLogits<1024, 50257> {
        let wte = Embedding(50257, 1600, name = "wte");
        lora(8, 16.0, base = Nf4, [
            Add(wte, PositionEmbedding(1024, 1600, name = "wpe")),
            repeat(48, h(1600, 25)), LayerNorm(name = "ln_f"), Tied(wte),
        ])
    }
}

const PRECISION: Precision = Precision::Mixed(Half::Bf16);
const ADAM: Optimizer = Optimizer::AdamW(AdamW::DEFAULT);
const ADAM_IN_8_BITS: Optimizer = Optimizer::AdamW8bit(AdamW8bit::DEFAULT);

/// A way to train it.
struct Way {
    text: &'static str,
    blueprint: &'static [u8],
    optimizer: Optimizer,
    update: Update,
    offload: Offload,
}

const WAYS: [Way; 10] = [
    Way {
        text: "`AdamW`, `update: Separate`",
        blueprint: Gpt2Xl::<1>::BLUEPRINT,
        optimizer: ADAM,
        update: Update::Separate,
        offload: Offload::None,
    },
    Way {
        text: "`AdamW`",
        blueprint: Gpt2Xl::<1>::BLUEPRINT,
        optimizer: ADAM,
        update: Update::Fused,
        offload: Offload::None,
    },
    Way {
        text: "`AdamW8bit`, `update: Separate`",
        blueprint: Gpt2Xl::<1>::BLUEPRINT,
        optimizer: ADAM_IN_8_BITS,
        update: Update::Separate,
        offload: Offload::None,
    },
    Way {
        text: "`AdamW8bit`",
        blueprint: Gpt2Xl::<1>::BLUEPRINT,
        optimizer: ADAM_IN_8_BITS,
        update: Update::Fused,
        offload: Offload::None,
    },
    Way {
        text: "`AdamW`, `offload: OptimizerState`, `update: Separate`",
        blueprint: Gpt2Xl::<1>::BLUEPRINT,
        optimizer: ADAM,
        update: Update::Separate,
        offload: Offload::OptimizerState,
    },
    Way {
        text: "`AdamW`, `offload: OptimizerState`",
        blueprint: Gpt2Xl::<1>::BLUEPRINT,
        optimizer: ADAM,
        update: Update::Fused,
        offload: Offload::OptimizerState,
    },
    Way {
        text: "`lora(8, 16.0, ..)`, `AdamW`, `update: Separate`",
        blueprint: Tuned::BLUEPRINT,
        optimizer: ADAM,
        update: Update::Separate,
        offload: Offload::None,
    },
    Way {
        text: "`lora(8, 16.0, ..)`, `AdamW`",
        blueprint: Tuned::BLUEPRINT,
        optimizer: ADAM,
        update: Update::Fused,
        offload: Offload::None,
    },
    Way {
        text: "`lora(8, 16.0, base = Nf4, ..)`, `AdamW`, `update: Separate`",
        blueprint: TunedInCodes::BLUEPRINT,
        optimizer: ADAM,
        update: Update::Separate,
        offload: Offload::None,
    },
    Way {
        text: "`lora(8, 16.0, base = Nf4, ..)`, `AdamW`",
        blueprint: TunedInCodes::BLUEPRINT,
        optimizer: ADAM,
        update: Update::Fused,
        offload: Offload::None,
    },
];

impl Way {
    /// The training step at a batch of one, what it needs, and what it needs with the leanest recomputation.
    fn plan(&self) -> (Program, Budget, Leaner) {
        let mut blueprint = Blueprint::decode(self.blueprint).unwrap();
        blueprint.order_for(None);
        let steps = blueprint.training.as_mut().unwrap();
        (steps.moments, steps.update) = (self.optimizer.moments(), self.update);
        steps.descent.offload = self.offload;
        let workspaces = Workspaces::of(&TargetCards::at(&[]), gpumem::Train::DEFAULT.conv_workspace);
        let setting = Sizes::new(1, PRECISION, workspaces);
        let plain = blueprint.training_for(&setting).unwrap().unwrap();
        blueprint.training.as_mut().unwrap().checkpoint = Checkpoint::Auto;
        let Fitted { leaner, .. } = blueprint.fitted(&setting, |_| 0).unwrap().unwrap();
        let budget = budget_at(&tables(&plain).as_tables().with_workspaces(workspaces), 1, PRECISION).unwrap();
        (plain, budget, leaner.unwrap())
    }
}

/// A parameter: its elements, what it is, and whether it is trained.
struct Parameter {
    elements: u64,
    role: Role,
    is_trained: bool,
}

fn parameters(program: &Program) -> Vec<Parameter> {
    let parameters = || program.tensors.iter().filter(|tensor| tensor.class == Class::Parameter);
    let adapted = parameters().any(|tensor| tensor.name.contains(".lora_"));
    let parameter = |tensor: &gpumem_core::program::Tensor| Parameter {
        elements: tensor.shape.elements().unwrap(),
        role: tensor.role,
        is_trained: !adapted || tensor.name.contains(".lora_"),
    };
    parameters().map(parameter).collect()
}

/// Bytes of weights, master copies, gradients that are held, and states of the optimizer.
fn expected(way: &Way, parameter: &Parameter) -> [u64; 4] {
    let &Parameter { elements, role, is_trained } = parameter;
    let trained = u64::from(is_trained);
    // What belongs to a normalisation is f32 and has no master copy.
    let (stored, master) = match role {
        Role::Norm | Role::Scale => (4 * elements, 0),
        Role::Nf4 => (elements.div_ceil(2), 0),
        _ => (2 * elements, 4 * elements),
    };
    let states = match way.optimizer {
        // Two codes an element and two scales a block, or what a small parameter has in f32.
        Optimizer::AdamW8bit(_) if elements >= 4096 => 2 * elements + 8 * elements.div_ceil(256),
        _ => 8 * elements,
    };
    let held = u64::from(way.update == Update::Separate);
    let in_arena = u64::from(way.offload == Offload::None);
    [stored, in_arena * trained * master, trained * held * stored, in_arena * trained * states]
}

const LINES: [Line; 4] = [Line::Weights, Line::Master, Line::Gradients, Line::Optimizer];

#[test]
fn bytes_of_a_parameter() {
    let mut text = String::from(
        "| step | weights | master | gradients | optimizer | sum | GiB | arena at batch 1 | with the leanest recomputation |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    let mut budgets = Vec::new();
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    for way in &WAYS {
        let (program, budget, leaner) = way.plan();
        let parameters = parameters(&program);
        let sum = |is_it: fn(&Parameter) -> bool| -> u64 {
            parameters.iter().filter(|parameter| is_it(parameter)).map(|parameter| parameter.elements).sum()
        };
        let (all, norms) = (sum(|it| it.role != Role::Scale), sum(|it| it.role == Role::Norm));
        let adapters = sum(|it| it.is_trained);
        // An adapter of rank 8 has 8 numbers for each feature that goes in and each that comes out: of 16 widths in a layer.
        let adapters = if adapters == all { 0 } else { adapters };
        assert!(adapters == 0 || adapters == 48 * 16 * 1600 * 8, "{adapters}");
        assert_eq!((all - adapters, norms), (1_557_611_200, 97 * 2 * 1600));
        let lines = parameters.iter().map(|parameter| expected(way, parameter));
        let lines = lines.fold([0; 4], |sum, each| std::array::from_fn(|line| sum[line] + each[line]));
        assert_eq!(LINES.map(|line| budget[line]), lines, "{}", way.text);
        assert_eq!(LINES.map(|line| leaner.budget[line]), lines, "{}", way.text);
        let bytes: u64 = lines.iter().sum();
        // Master copies and two states of each parameter, with less than 256 bytes of padding behind each tensor.
        let host = if way.offload == Offload::None { 0 } else { 4 * (all - norms) + 8 * all };
        let padding = budget.host.checked_sub(host).unwrap();
        assert!(padding < 3 * 256 * parameters.len() as u64, "{}: {padding}", way.text);
        if (way.optimizer, way.update, way.offload, adapters) == (ADAM, Update::Separate, Offload::None, 0) {
            // Of weights 2 + 4 + 2 + 8, of scales and shifts 4 + 0 + 4 + 8.
            assert_eq!(bytes, 16 * all);
        }
        let each = (all - adapters) as f64;
        let [weights, master, gradients, states] = lines.map(|bytes| bytes as f64 / each);
        writeln!(
            text,
            "| {} | {weights:.2} | {master:.2} | {gradients:.2} | {states:.2} | {:.2} | {:.2} | {:.2} GiB | {:.2} GiB (+{} %) |",
            way.text,
            bytes as f64 / each,
            gib(bytes),
            gib(budget[Line::Arena]),
            gib(leaner.budget[Line::Arena]),
            leaner.more.unwrap()[1].div_ceil(10),
        )
        .unwrap();
        budgets.push(budget);
    }
    // What fusing saves, of the gradients and of the arena: no gradient that lives inside the step makes it larger.
    for pair in budgets.chunks(2) {
        let [separate, fused] = pair else { unreachable!() };
        let saved = separate[Line::Arena] - fused[Line::Arena];
        assert!(saved >= separate[Line::Gradients] * 9 / 10, "{saved} of {}", separate[Line::Gradients]);
    }
    pages::check("../docs/lab/memory-results.md", "states", &text);
}

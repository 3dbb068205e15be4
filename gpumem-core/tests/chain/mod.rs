//! A small chain of layers as `network!` would write it, for tests of budgets and refusals.

use gpumem_core::Role;
use gpumem_core::memory::tables::{Parameter, Paths, Size, Tables, Transient, Transients, Workspaces, life};
use gpumem_core::program::{Part, Phase};
use gpumem_core::train::Ranks;

/// Layers of the chain.
const LAYERS: u64 = 4;
/// Its transient tensors: output, gradient and weight gradient of each layer.
pub const TENSORS: usize = 3 * LAYERS as usize;
/// Its operations.
const OPERATIONS: usize = 3 * LAYERS as usize;

/// Each layer has an output that its backward pass reads. Forward 0..4, then backward and update of each layer from the
/// last to the first.
pub const fn step(chain: &'static Chain, parameters: &'static [Parameter]) -> Tables<'static> {
    Tables {
        operations: OPERATIONS as u64,
        transients: chain.transients(),
        parameters,
        buffers: &[[Role::State as u64, 2, 1]],
        batch: &[[Role::Activation as u64, 3 * 64 * 64], [Role::Index as u64, 1]],
        caches: &[],
        moments: 2,
        holds_gradients: false,
        training: true,
        operation_tags: &OPERATION_TAGS,
        transient_tags: &TRANSIENT_TAGS,
        paths: Paths { text: "stage[0].conv2d[0]stage[0].conv2d[1]stage[1].conv2d[0]head", ends: &[18, 36, 54, 58] },
        workspaces: Workspaces::UNLIMITED,
        micro_batches: 1,
        parts: 1,
        ranks: Ranks::ALONE,
        averages: false,
        offloads: false,
        wide_sums: false,
        parked: &[],
        step: "",
    }
}

/// The tensors of a chain as const evaluation reads them. Written without a thought: each tensor has a size of its own, and any
/// operation may be the peak.
pub struct Chain {
    sizes: [Size; TENSORS],
    lives: [u64; TENSORS],
    moments: [[u32; 2]; OPERATIONS],
    changes: [[i32; 2]; 2 * TENSORS],
}

impl Chain {
    /// `parameters` parameters a layer, `outputs` elements a sample and layer.
    pub const fn new(parameters: u64, outputs: u64) -> Chain {
        let tensors = transients(parameters, outputs);
        let mut chain = Chain {
            sizes: [[0; 6]; TENSORS],
            lives: [0; TENSORS],
            moments: [[0; 2]; OPERATIONS],
            changes: [[0; 2]; 2 * TENSORS],
        };
        let mut filled = 0;
        let mut operation = 0;
        while operation < OPERATIONS {
            let mut i = 0;
            while i < TENSORS {
                let [role, fixed, per_sample, gaps, first, last] = tensors[i];
                chain.sizes[i] = [role, fixed, per_sample, gaps, i as u64, 0];
                chain.lives[i] = life(i as u64, first, last);
                if first == operation as u64 || last + 1 == operation as u64 {
                    chain.changes[filled] = [i as i32, if first == operation as u64 { 1 } else { -1 }];
                    filled += 1;
                }
                i += 1;
            }
            chain.moments[operation] = [operation as u32, filled as u32];
            operation += 1;
        }
        chain
    }

    /// As tables have them.
    pub const fn transients(&'static self) -> Transients<'static> {
        let Chain { sizes, lives, moments, changes } = self;
        Transients { sizes, lives, moments, changes, orders: &[], below: &[] }
    }
}

const fn transients(parameters: u64, outputs: u64) -> [Transient; TENSORS] {
    let mut tensors = [[0; 6]; TENSORS];
    let mut layer = 0;
    while layer < LAYERS {
        let backward = LAYERS + 2 * (LAYERS - 1 - layer);
        let at = layer as usize * 3;
        tensors[at] = [Role::Activation as u64, 0, outputs, 0, layer, backward];
        let from = if layer + 1 == LAYERS { backward } else { backward - 2 };
        tensors[at + 1] = [Role::Activation as u64, 0, outputs, 0, from, backward];
        tensors[at + 2] = [Role::Weight as u64, parameters, 0, 0, backward, backward + 1];
        layer += 1;
    }
    tensors
}

/// `parameters` parameters a layer.
pub const fn parameters(parameters: u64) -> [Parameter; 1] {
    [[Role::Weight as u64, parameters, 1, LAYERS]; 1]
}

const OPERATION_TAGS: [u8; 4 * 3 * LAYERS as usize] = {
    let mut tags = [0; 4 * 3 * LAYERS as usize];
    let mut operation = 0;
    while operation < 3 * LAYERS {
        let (phase, layer) = if operation < LAYERS {
            (Phase::Forward, operation)
        } else {
            let back = operation - LAYERS;
            (if back.is_multiple_of(2) { Phase::Backward } else { Phase::Update }, LAYERS - 1 - back / 2)
        };
        tags[operation as usize * 4] = phase as u8;
        tags[operation as usize * 4 + 2] = layer as u8;
        operation += 1;
    }
    tags
};

const TRANSIENT_TAGS: [u8; 4 * TENSORS] = {
    let parts = [Part::Output, Part::OutputGradient, Part::ParameterGradient];
    let mut tags = [0; 4 * TENSORS];
    let mut tensor = 0;
    while tensor < TENSORS {
        tags[tensor * 4] = parts[tensor % 3] as u8;
        tags[tensor * 4 + 2] = (tensor / 3) as u8;
        tensor += 1;
    }
    tags
};

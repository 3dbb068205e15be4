//! A small chain of layers as `network!` would write it, for tests of budgets and refusals.

use gpumem_core::Role;
use gpumem_core::memory::tables::{Parameter, Tables, Transient, Workspaces};
use gpumem_core::program::{Part, Phase};

/// Layers of the chain.
const LAYERS: u64 = 4;
/// Its transient tensors: output, gradient and weight gradient of each layer.
pub const TENSORS: usize = 3 * LAYERS as usize;

/// Each layer has an output that its backward pass reads. Forward 0..4, then backward and update of each layer from the
/// last to the first.
pub const fn step(transients: &'static [Transient], parameters: &'static [Parameter]) -> Tables {
    Tables {
        operations: 3 * LAYERS,
        transients,
        parameters,
        buffers: &[[Role::State as u64, 2]],
        batch: &[[Role::Activation as u64, 3 * 64 * 64], [Role::Index as u64, 1]],
        moments: 2,
        holds_gradients: false,
        training: true,
        operation_tags: &OPERATION_TAGS,
        transient_tags: &TRANSIENT_TAGS,
        paths: &["stage[0].conv2d[0]", "stage[0].conv2d[1]", "stage[1].conv2d[0]", "head"],
        workspaces: Workspaces::UNLIMITED,
    }
}

/// `parameters` parameters a layer, `outputs` elements a sample and layer.
pub const fn transients(parameters: u64, outputs: u64) -> [Transient; TENSORS] {
    let mut tensors = [[0; 5]; TENSORS];
    let mut layer = 0;
    while layer < LAYERS {
        let backward = LAYERS + 2 * (LAYERS - 1 - layer);
        let at = layer as usize * 3;
        tensors[at] = [Role::Activation as u64, 0, outputs, layer, backward];
        let from = if layer + 1 == LAYERS { backward } else { backward - 2 };
        tensors[at + 1] = [Role::Activation as u64, 0, outputs, from, backward];
        tensors[at + 2] = [Role::Weight as u64, parameters, 0, backward, backward + 1];
        layer += 1;
    }
    tensors
}

/// `parameters` parameters a layer.
pub const fn parameters(parameters: u64) -> [Parameter; LAYERS as usize] {
    [[Role::Weight as u64, parameters, 1]; LAYERS as usize]
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

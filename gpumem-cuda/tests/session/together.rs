//! Launches whose blocks wait for each other.

use super::*;
use crate::host::card::on_a_simulated_card;
use gpumem_cuda::Kernel;
use std::collections::BTreeSet;

/// Each channel is in two blocks' hands.
const NETWORK: &str =
    "Conv2d(8, 3, padding = 1) | Conv2d(16, 3, padding = 1) | BatchNorm2d | Relu | AvgPool2d(16) | Flatten | Linear(5)";

/// Two launches of batch normalisation, forward and backward, where there are four if multiprocessors have no room for two blocks each.
#[test]
fn blocks_wait_for_each_other_if_all_of_them_run() {
    let (name, resident) = ("together::blocks_wait_for_each_other_if_all_of_them_run", "GPUMEM_SIMULATED_RESIDENT");
    let Ok(room) = std::env::var(resident) else {
        for room in ["0", "1", "2"] {
            assert!(!on_a_simulated_card(name, &[(resident, room)]));
        }
        return;
    };
    let optimizer = Optimizer::Sgd(Sgd { lr: 0.01, momentum: 0.9, ..Sgd::DEFAULT });
    let job = |precision| job_of(&[2, 64, 64], NETWORK, optimizer, precision);
    let (wide, narrow) = (job(Precision::F32), job(Precision::Bf16));
    let mut cpu = Cpu::with_threads(1).unwrap().load(wide.clone()).unwrap();
    let device = Cuda::new(0).unwrap().with_library(false).with_cudnn(false);
    let mut card = load_on(&device, &narrow).unwrap();
    begin(&wide, &mut cpu);
    begin(&narrow, &mut card);
    let all = |multiprocessors| -> BTreeSet<Kernel> {
        let mut programs = [narrow.train.clone().unwrap(), narrow.infer.clone()];
        order(&mut programs.iter_mut().collect::<Vec<_>>(), Precision::Bf16, CAPABILITY);
        let format = (Precision::Bf16, CAPABILITY);
        let steps = |placed| Products::Own.steps_on(placed, BATCH, format, optimizer, multiprocessors);
        programs.iter().flat_map(|placed| kernels(&steps(placed))).collect()
    };
    let [together, apart] = MULTIPROCESSORS.map(all);
    assert_eq!(together.iter().filter(|kernel| kernel.is_cooperative()).count(), 2);
    assert_eq!(apart.len(), together.len() + 2);
    assert_eq!(card.kernels(), if room == "2" { together.len() } else { apart.len() }, "room for {room}");
    for step in 0..3 {
        feed(&wide, &mut cpu, step);
        feed(&narrow, &mut card, step);
        cpu.train().unwrap();
        card.train().unwrap();
        let (found, expected) = (loss(&narrow, &mut card), loss(&wide, &mut cpu));
        assert!((found - expected).abs() < 2e-2 * expected.abs(), "step {step}: {found}, {expected}");
    }
}

/// One launch of the gradients of each row norm becomes two, which leave the same bits.
#[test]
fn grid_barriers_can_be_switched_off() {
    if !on_a_simulated_card("together::grid_barriers_can_be_switched_off", &[]) {
        return;
    }
    let optimizer = Optimizer::Sgd(Sgd { lr: 0.01, momentum: 0.9, ..Sgd::DEFAULT });
    let layers = "Linear(24) | LayerNorm | Linear(16) | RmsNorm | Flatten | Linear(5)";
    for precision in [Precision::F32, Precision::Bf16] {
        let job = job_of(&[40, 24], layers, optimizer, precision);
        let device = Cuda::new(0).unwrap().with_library(false).with_cudnn(false);
        let [(kernels, losses), (more, same)] = [true, false].map(|barriers| {
            let mut card = load_on(&device.clone().with_grid_barriers(barriers), &job).unwrap();
            let losses = losses_of_steps(&job, &mut card);
            (card.kernels(), losses.into_iter().map(f32::to_bits).collect::<Vec<_>>())
        });
        assert_eq!((more, same), (kernels + 2, losses), "{precision:?}");
    }
}

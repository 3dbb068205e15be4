//! tmp
#![allow(missing_docs)]
use gpumem::__private::memory::tables::Workspaces;
use gpumem::Line;
use gpumem::{Network, Precision};
use gpumem_core::lower::{Blueprint, Setting, tables};
use gpumem_core::memory::budget::budget_at;
use gpumem_core::program::Class;
use gpumem_zoo::densenet::DenseNet121;
use gpumem_zoo::resnet::{ResNet50, ResNet152};
use gpumem_zoo::unet::UNet;

fn show<N: Network>(torch: u64) {
    let blueprint = Blueprint::decode(N::BLUEPRINT).unwrap();
    for ws in [0u64, 1] {
        let setting =
            Setting::new(32, Precision::F32, Workspaces { product: (32 << 20) * ws, convolution: (256 << 20) * ws });
        let program = blueprint.training(setting.precision).unwrap().unwrap();
        let t = tables(&program).leak().with_workspaces(setting.workspaces);
        let arena = budget_at(&t, 32, setting.precision).unwrap()[Line::Arena];
        println!("{} ws {ws}: {arena} of {torch}: {:.4}", N::NAME, arena as f64 / torch as f64);
        if ws == 1 {
            continue;
        }
        let mut changes = vec![0i64; program.operations.len() + 1];
        let bytes = |t: &gpumem_core::program::Tensor| {
            let b = t.stored(32).unwrap() * t.role.bytes(setting.precision);
            setting.workspaces.cap(t.role, b) as i64
        };
        for t in program.tensors.iter().filter(|t| t.class == Class::Transient) {
            changes[t.first as usize] += bytes(t);
            changes[t.last as usize + 1] -= bytes(t);
        }
        let mut live = 0;
        let mut best = (0, 0);
        for (at, c) in changes.iter().enumerate() {
            live += c;
            if live > best.0 {
                best = (live, at);
            }
        }
        let op = &program.operations[best.1];
        println!(
            "  peak {} at {} of {}: row {} {:?}",
            best.0,
            best.1,
            program.operations.len(),
            program.paths.get(op.row as usize).map(|s| s.as_str()).unwrap_or(""),
            op.phase()
        );
        let mut alive: Vec<_> = program
            .tensors
            .iter()
            .filter(|t| t.class == Class::Transient && (t.first as usize) <= best.1 && t.last as usize >= best.1)
            .collect();
        alive.sort_by_key(|t| -bytes(t));
        for t in alive.iter().take(20) {
            println!(
                "    {:>12} {} {:?} {:?} {}..{}",
                bytes(t),
                program.paths.get(t.row as usize).map(|s| s.as_str()).unwrap_or(&t.name),
                t.part,
                t.shape,
                t.first,
                t.last
            );
        }
    }
}

#[test]
fn peaks() {
    for (name, blueprint, torch) in [
        ("r50", ResNet50::<32>::BLUEPRINT, 2987738000u64),
        ("r152", ResNet152::<32>::BLUEPRINT, 6194284224),
        ("unet", UNet::<32>::BLUEPRINT, 48600332976),
        ("dense", DenseNet121::<32>::BLUEPRINT, 4253006256),
    ] {
        let mut blueprint = Blueprint::decode(blueprint).unwrap();
        blueprint.training.as_mut().unwrap().checkpoint = gpumem::Checkpoint::Cheap;
        let setting = Setting::new(32, Precision::F32, Workspaces { product: 0, convolution: 0 });
        let start = std::time::Instant::now();
        let program = blueprint.trainings(&setting).unwrap().remove(0);
        let t = tables(&program).leak().with_workspaces(setting.workspaces);
        println!(
            "cheap {name} {:.4} in {:?}",
            budget_at(&t, 32, setting.precision).unwrap()[Line::Arena] as f64 / torch as f64,
            start.elapsed()
        );
    }
    show::<ResNet50<32>>(2987738000);
    show::<ResNet152<32>>(6194284224);
    show::<UNet<32>>(48600332976);
    show::<DenseNet121<32>>(4253006256);
}

//! How little memory a training step needs for so much more time: levels of recomputation of well-known networks.
//!
//! Time is a model: an operation takes as long as its floating-point operations or what it moves, whichever is longer, and a byte takes as
//! long as 25 of those in f32 and 150 in 16 bits.

mod pages;

use gpumem::__private::memory::tables::Workspaces;
use gpumem::__private::program::Program;
use gpumem::{Half, Network, Precision, network};
use gpumem_core::lower::{Blueprint, RecomputeLevel, Search, Sizes};
use gpumem_zoo::densenet::DenseNet121;
use gpumem_zoo::gpt2::{Gpt2, Gpt2Medium, Gpt2Xl};
use gpumem_zoo::mobilenet::MobileNetV2;
use gpumem_zoo::resnet::{ResNet18, ResNet50, ResNet152};
use gpumem_zoo::unet::UNet;
use gpumem_zoo::vgg::Vgg16;

const BF16: Precision = Precision::Mixed(Half::Bf16);

/// Extra time, in hundredths of a step.
const SHARES: [u64; 5] = [2, 5, 10, 20, 33];

/// As many levels as a table needs that tells one network from another, and not one demand from the next.
const FINE: usize = 40;

/// A network with what is known of it.
struct Case {
    name: &'static str,
    blueprint: &'static [u8],
    setting: Sizes,
    /// MiB of a step in which nothing is computed again, and hundredths of that at each of [`SHARES`], as a search of segments reached
    /// them that was compared with the best there is.
    known: (u64, [u64; 5]),
    /// The most labels times ways.
    steps: usize,
}

fn case<N: Network>(batch: u64, precision: Precision, known: (u64, [u64; 5]), steps: usize) -> Case {
    let workspaces = Workspaces { product: 32 << 20, convolution: 256 << 20 };
    let setting = Sizes { levels: FINE, ..Sizes::new(batch, precision, workspaces) };
    Case { name: N::NAME, blueprint: N::BLUEPRINT, setting, known, steps }
}

fn cases() -> [Case; 10] {
    const F32: Precision = Precision::F32;
    [
        case::<Vgg16<64>>(64, F32, (2991, [74, 61, 61, 61, 61]), 3_000),
        case::<ResNet18<128>>(128, F32, (2183, [80, 60, 45, 36, 36]), 25_000),
        case::<ResNet50<64>>(64, F32, (4996, [78, 62, 44, 25, 22]), 80_000),
        case::<ResNet152<64>>(64, F32, (10582, [82, 67, 45, 20, 16]), 160_000),
        case::<MobileNetV2<128>>(128, F32, (6553, [88, 69, 53, 33, 22]), 30_000),
        case::<UNet<8>>(8, F32, (10736, [75, 50, 41, 35, 31]), 280_000),
        case::<DenseNet121<64>>(64, F32, (7516, [90, 78, 63, 30, 18]), 190_000),
        case::<Gpt2<16>>(16, BF16, (6344, [83, 68, 51, 31, 28]), 45_000),
        case::<Gpt2Medium<8>>(8, BF16, (7106, [79, 62, 47, 21, 15]), 95_000),
        case::<Gpt2Xl<8>>(8, BF16, (20264, [71, 58, 45, 17, 8]), 140_000),
    ]
}

/// CPU time of this process, in milliseconds.
fn cpu() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0) / 1_000_000
}

fn search(case: &Case) -> Search {
    let before = cpu();
    let found = Blueprint::decode(case.blueprint).unwrap().levels(&case.setting).unwrap().unwrap();
    println!(
        "{}: {} ms, {} segments of {} kinds, {} measured, {} steps, {} emissions",
        case.name,
        cpu() - before,
        found.segments,
        found.kinds,
        found.measured,
        found.steps,
        found.emissions
    );
    found
}

/// The smallest peak of the levels that take no more than so many hundredths of a step longer.
fn least(found: &Search, share: u64) -> u64 {
    let is_within =
        |level: &&RecomputeLevel| u128::from(level.cost) * 100 <= u128::from(found.step_cost) * u128::from(share);
    found.levels.iter().filter(is_within).map(|level| level.peak).min().unwrap()
}

/// The most bytes alive at once in a step, from the lives of its tensors.
fn peak(program: &Program, setting: &Sizes) -> u64 {
    let mut changes = vec![0i64; program.operations.len() + 1];
    for tensor in program.transients().map(|id| program.tensor(id)) {
        let bytes = tensor.stored(setting.batch).unwrap() * tensor.role.bytes(setting.precision);
        let bytes = setting.workspaces.cap(tensor.role, bytes).next_multiple_of(256) as i64;
        changes[tensor.first as usize] += bytes;
        changes[tensor.last as usize + 1] -= bytes;
    }
    let mut live = 0;
    let alive = changes.into_iter().map(|change| {
        live += change;
        live
    });
    alive.max().unwrap() as u64
}

/// Hundredths of `whole`, rounded.
fn hundredths(part: u64, whole: u64) -> u64 {
    (part * 200 + whole) / (2 * whole)
}

#[test]
fn well_known_networks_need_little_for_little_time() {
    let mut table = String::from(
        "| network, batch, format | MiB | +2 % | +5 % | +10 % | +20 % | +33 % |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for case in cases() {
        let found = search(&case);
        assert!(found.steps <= case.steps, "{}: {} steps", case.name, found.steps);
        let plain = found.levels[0].peak;
        let format = if case.setting.precision == BF16 { "bf16" } else { "f32" };
        table += &format!("| `{}`, {}, {format} | {} |", case.name, case.setting.batch, plain >> 20);
        let (known_plain, known) = case.known;
        for (share, known) in SHARES.into_iter().zip(known) {
            let peak = least(&found, share);
            table += &format!(" {} |", hundredths(peak, plain));
            // Of the same step, as a step in which nothing is computed again needs less than it did there.
            let reached = hundredths(peak, known_plain << 20);
            assert!(reached <= known + 5, "{} at +{share} %: {reached} % and not {known} %", case.name);
        }
        table += "\n";
    }
    pages::check("README.md", "recomputation", &table);
}

#[test]
fn a_level_is_a_step_of_its_size() {
    for case in cases() {
        let blueprint = Blueprint::decode(case.blueprint).unwrap();
        let setting = Sizes { levels: 4, ..case.setting };
        let levels = blueprint.levels(&setting).unwrap().unwrap().levels;
        assert!(levels.len() > 2, "{}: {} levels", case.name, levels.len());
        for level in &levels {
            let program = blueprint.training_in_order(setting.precision, &level.order).unwrap().unwrap();
            assert_eq!(peak(&program, &setting), level.peak, "{}", case.name);
        }
    }
}

#[test]
fn what_multiplies_may_be_left_out() {
    for case in cases() {
        let setting = Sizes { only_cheap: true, levels: Sizes::LEVELS, ..case.setting };
        let found = Blueprint::decode(case.blueprint).unwrap().levels(&setting).unwrap().unwrap();
        assert!(found.levels.iter().all(|level| level.macs_again == 0), "{}", case.name);
        // VGG-16 has nothing else but activations in place.
        assert_eq!(found.levels.len() > 1, case.name != "Vgg16", "{}", case.name);
    }
}

macro_rules! uniform {
    ($name:ident, $layers:literal) => {
        network! {
            /// Layers that are all alike.
            pub struct $name;
            const TRAIN: Train = Train { batch: 8192, optimizer: Sgd { lr: 0.1 }, loss: Mse };
            fn forward(x: Features<1024>) -> Features<1024> {
                repeat($layers, [Linear(1024, bias = false), Tanh])
            }
        }
    };
}
uniform! { Uniform16, 16 }
uniform! { Uniform64, 64 }
uniform! { Uniform256, 256 }

/// One more forward pass in a chain of `n` layers brings what is held to `2 sqrt(n)` of them.
#[test]
fn a_chain_needs_twice_the_root_of_its_layers() {
    let workspaces = Workspaces { product: 0, convolution: 0 };
    let mut table = String::from(
        "| layers | nothing again | +5 % | +10 % | +20 % | +33 % | `2 sqrt(n)` |\n\
         | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    // Of one layer's values.
    const BYTES: u64 = 8192 * 1024 * 4;
    let chains = [(16u64, Uniform16::BLUEPRINT), (64, Uniform64::BLUEPRINT), (256, Uniform256::BLUEPRINT)];
    for (layers, blueprint) in chains {
        let setting = Sizes { levels: FINE, ..Sizes::new(8192, Precision::F32, workspaces) };
        let found = Blueprint::decode(blueprint).unwrap().levels(&setting).unwrap().unwrap();
        let law = 2 * layers.isqrt();
        table += &format!("| {layers} | {:.1} |", found.levels[0].peak as f64 / BYTES as f64);
        for share in [5, 10, 20, 33] {
            table += &format!(" {:.1} |", least(&found, share) as f64 / BYTES as f64);
        }
        table += &format!(" {law} |\n");
        // The gradients of two neighbours and of a weight are there beside what is held.
        assert!(least(&found, 34) <= (law + 3) * BYTES, "{layers} layers:\n{table}");
    }
    pages::check("README.md", "chain", &table);
}

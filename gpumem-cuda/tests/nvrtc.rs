//! The kernels through NVRTC, for every architecture that it knows, without a card.
//!
//! Which kernels: those that the other tests ran on the host, one set of constants for each entry point and each of its ways
//! to compute products, in every number format. The test does nothing where NVRTC is not installed, unless
//! `GPUMEM_REQUIRE_NVRTC` is set: `scripts/kernel-check` installs it.

use gpumem_cuda::compile::resources;
use gpumem_cuda::operations::tensor_core_terms;
use gpumem_cuda::{Kernel, SOURCES, preflight};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// Compute capabilities from Pascal to Blackwell.
const ARCHITECTURES: [(i32, i32); 9] = [(6, 1), (7, 0), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)];

/// Names and values, in the order of the file's header.
type Constants = Vec<(String, String)>;

/// The constants of a file, but for number format and tensor cores.
struct Instance {
    file: &'static str,
    /// Whether it uses tensor cores where there are some.
    tensor_cores: bool,
    constants: Constants,
}

impl Instance {
    /// As it would be compiled for a card in the format of which `real` is the constant; none where that card has it compiled
    /// as another instance.
    fn kernel(&self, real: u8, capability: (i32, i32)) -> Option<Kernel> {
        let terms = if self.tensor_cores { tensor_core_terms(real, capability) } else { 0 };
        if self.tensor_cores && terms == 0 {
            return None;
        }
        let kernel = Kernel::new(self.file, "all").with("REAL", real).with("TENSOR_CORES", terms);
        let with = |kernel: Kernel, (name, value): &(String, String)| kernel.with(String::leak(name.clone()), value);
        Some(self.constants.iter().fold(kernel, with))
    }
}

/// Kernels that were run on the host: a set of constants for each entry point and way to compute products. Files of which
/// entry points are compiled one at a time would not all be seen otherwise.
fn sample() -> Vec<Instance> {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels/instances");
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let lines: BTreeSet<String> = files
        .flat_map(|entry| std::fs::read_to_string(entry.path()).unwrap().lines().map(String::from).collect::<Vec<_>>())
        .collect();
    let mut chosen: BTreeMap<(&str, &str, bool), Constants> = BTreeMap::new();
    for line in &lines {
        let mut words = line.split(' ');
        let (Some(file), Some(entry)) = (words.next(), words.next()) else { continue };
        let Some((file, _)) = SOURCES.iter().find(|(known, _)| *known == file) else { continue };
        let (varied, constants): (Vec<_>, Vec<_>) = words
            .filter_map(|word| word.split_once('='))
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .partition(|(name, _)| name == "REAL" || name == "TENSOR_CORES");
        let tensor_cores = varied.iter().any(|(name, value)| name == "TENSOR_CORES" && value != "0");
        chosen.entry((file, entry, tensor_cores)).or_insert(constants);
    }
    // Several entry points of a file with the same constants are compiled together.
    let distinct: BTreeSet<(&str, bool, Constants)> =
        chosen.into_iter().map(|((file, _, tensor_cores), constants)| (file, tensor_cores, constants)).collect();
    distinct.into_iter().map(|(file, tensor_cores, constants)| Instance { file, tensor_cores, constants }).collect()
}

#[test]
fn kernels_compile_for_every_architecture_without_spills() {
    let required = std::env::var_os("GPUMEM_REQUIRE_NVRTC").is_some();
    let Some(version) = preflight::compiler() else {
        assert!(!required, "NVRTC was to be there");
        eprintln!("NVRTC is not installed: nothing was compiled");
        return;
    };
    let instances = sample();
    assert!(
        !required || !instances.is_empty(),
        "run the other tests of this crate first: they note down what they ran"
    );
    let known = |(major, minor): &(i32, i32)| {
        // CUDA 13 dropped what came before Turing; Blackwell came with CUDA 12.8.
        let oldest = if version.0 >= 13 { (7, 5) } else { (5, 0) };
        (*major, *minor) >= oldest && (*major < 10 || version >= (12, 8))
    };
    let work: Vec<(Kernel, (i32, i32))> = instances
        .iter()
        .flat_map(|instance| (0..3).map(move |real| (instance, real)))
        .flat_map(|(instance, real)| {
            ARCHITECTURES.into_iter().filter(known).map(move |at| (instance.kernel(real, at), at))
        })
        .filter_map(|(kernel, at)| Some((kernel?, at)))
        .collect();
    let (next, failures) = (Mutex::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let index = {
                        let mut next = next.lock().unwrap();
                        *next += 1;
                        *next - 1
                    };
                    let Some((kernel, capability)) = work.get(index) else { return };
                    let label =
                        format!("{} {:?} for sm_{}{}", kernel.file, kernel.constants, capability.0, capability.1);
                    match resources(kernel, *capability) {
                        Err(error) => failures.lock().unwrap().push(format!("{label}: {error}")),
                        Ok(log) => failures.lock().unwrap().extend(spills(&log).map(|line| format!("{label}: {line}"))),
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), work.len(), failures.join("\n"));
    println!("{} compiled with NVRTC {}.{}", work.len(), version.0, version.1);
}

/// Lines that speak of spilled registers, unless there are none.
fn spills(log: &str) -> impl Iterator<Item = &str> {
    log.lines().filter(|line| line.contains("spill") && !line.contains(" 0 bytes spill stores, 0 bytes spill loads"))
}

#[test]
fn spills_are_recognised() {
    let log = "ptxas info : Used 40 registers\n    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
               \n    8 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads";
    assert_eq!(spills(log).count(), 1);
}

//! The kernels through NVRTC, for every architecture that it knows, without a card.
//!
//! Which kernels: those that the other tests ran on the host, one set of constants for each entry point and each of its ways
//! to compute products, in every number format. The test does nothing where NVRTC is not installed, unless
//! `GPUMEM_REQUIRE_NVRTC` is set: `scripts/kernel-check` installs it.

#[path = "../../gpumem-core/tests/common/mod.rs"]
mod graphs;

use gpumem_core::error::Error;
use gpumem_core::graph::Graph;
use gpumem_core::lower::lower;
use gpumem_core::memory::place::place;
use gpumem_core::train::optim::{Optimizer, Sgd};
use gpumem_core::{Format, Precision};
use gpumem_cuda::cache::Cache;
use gpumem_cuda::compile::{compile_all, resources, target};
use gpumem_cuda::launch::type_name;
use gpumem_cuda::operations::{LaunchContext, tensor_core_terms};
use gpumem_cuda::program_calls::steps;
use gpumem_cuda::progress::Progress;
use gpumem_cuda::{Call, Kernel, SOURCES, preflight};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// Compute capabilities from Pascal to Blackwell, those together whose code hardly differs.
const ARCHITECTURES: [&[(i32, i32)]; 3] = [&[(7, 5)], &[(8, 0), (8, 6), (8, 9), (9, 0)], &[(10, 0), (12, 0)]];

/// The same for version 12: what later ones do not know, and two of the others for what uses tensor cores, which the first ones lack.
const OF_VERSION_12: [&[(i32, i32)]; 2] = [&[(6, 1), (7, 0)], &[(7, 5), (9, 0)]];

/// The number formats of activations, those together whose code hardly differs.
const FORMATS: [&[Format]; 2] = [&[Format::F32], &[Format::Bf16, Format::F16]];

/// The formats of 16 bits.
const HALVES: &[Format] = FORMATS[1];

/// The only card with warpgroup instructions.
const HOPPER: (i32, i32) = (9, 0);

/// Registers of each thread at the start of a kernel on warpgroup instructions: what 384 threads of a block can have, and `LAUNCH_REGISTERS` of
/// `attention_wgmma.cuh`.
const LAUNCH_REGISTERS: u32 = 168;

/// Names and values, in the order of the file's header.
type Constants = Vec<(String, String)>;

/// What a kernel that is compiled has been seen to do: its file, entry point, whether on tensor cores, with packs of elements and with
/// projections, and what its file has more of.
type Shown<'a> = (&'a str, &'a str, bool, bool, bool, Constants);

/// The constants of a file, but for number format and tensor cores.
struct Instance {
    file: &'static str,
    /// Whether it uses tensor cores where there are some.
    tensor_cores: bool,
    constants: Constants,
}

impl Instance {
    fn is_of_hopper(&self) -> bool {
        self.constants.iter().any(|(name, _)| name == "WGMMA")
    }

    /// As it would be compiled for a card in this format, with packs of 16 bytes at most; none where that card has it compiled as another
    /// instance.
    fn kernel(&self, format: Format, capability: (i32, i32)) -> Option<Kernel> {
        let terms = if self.tensor_cores { tensor_core_terms(format, capability) } else { 0 };
        if self.tensor_cores && terms == 0 {
            return None;
        }
        let kernel = Kernel::new(self.file, "all").with("REAL", type_name(format)).with("TENSOR_CORES", terms);
        let with = |kernel: Kernel, (name, value): &(String, String)| {
            let pack = value.parse::<u64>().ok().filter(|_| name == "PACK").map(|pack| pack.min(16 / format.bytes()));
            kernel.with(String::leak(name.clone()), pack.map_or(value.clone(), |pack| pack.to_string()))
        };
        Some(self.constants.iter().fold(kernel, with))
    }
}

/// Kernels that were run on the host: a set of constants for each entry point and way to compute products, with packs of elements and
/// without. Files of which entry points are compiled one at a time would not all be seen otherwise. Of chains there is one for each
/// count of tensors and of operations that draw, of recurrences one with a projection, of products with codes one for each coding and
/// order of the weight, and of attention on warpgroup instructions one for each size of heads, causal and not.
fn sample() -> Vec<Instance> {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels/instances");
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let lines: BTreeSet<String> = files
        .flat_map(|entry| std::fs::read_to_string(entry.path()).unwrap().lines().map(String::from).collect::<Vec<_>>())
        .collect();
    // What each set of constants shows.
    let mut shown: BTreeMap<(&str, bool, Constants), BTreeSet<Shown>> = BTreeMap::new();
    for line in &lines {
        let mut words = line.split(' ');
        let (Some(file), Some(entry)) = (words.next(), words.next()) else { continue };
        let Some((file, _)) = SOURCES.iter().find(|(known, _)| *known == file) else { continue };
        let (varied, constants): (Vec<_>, Vec<_>) = words
            .filter_map(|word| word.split_once('='))
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .partition(|(name, _)| name == "REAL" || name == "TENSOR_CORES");
        let tensor_cores = varied.iter().any(|(name, value)| name == "TENSOR_CORES" && value != "0");
        let packs = constants.iter().any(|(name, value)| name == "PACK" && value != "1");
        let number = |wanted: &str| constants.iter().find(|(name, _)| name == wanted).map(|(_, value)| value);
        let projects =
            matches!([number("HIDDEN"), number("OUTPUTS")], [Some(hidden), Some(outputs)] if hidden != outputs);
        let telling: &[&str] = match *file {
            "attention.cu" if number("WGMMA").is_some() => &["WGMMA", "HEAD", "CAUSAL"],
            "chain.cu" => &["INPUTS", "OUTPUTS", "DRAWS"],
            "coded_product.cu" => &["PACKED", "SCALE_WORDS", "B_TRANSPOSED"],
            _ => &[],
        };
        let told = constants.iter().filter(|(name, _)| telling.contains(&name.as_str())).cloned().collect();
        let shows = (*file, entry, tensor_cores, packs, projects, told);
        shown.entry((file, tensor_cores, constants)).or_default().insert(shows);
    }
    // All entry points of a file are compiled with its constants: those that show most of what is left come first.
    let mut left: BTreeSet<Shown> = shown.values().flatten().cloned().collect();
    let mut chosen = Vec::new();
    while !left.is_empty() {
        let of_left = |(_, shows): &(_, &BTreeSet<Shown>)| shows.intersection(&left).count();
        let (set, shows) = shown.iter().rev().max_by_key(of_left).unwrap();
        chosen.push(set.clone());
        left.retain(|it| !shows.contains(it));
    }
    chosen.into_iter().map(|(file, tensor_cores, constants)| Instance { file, tensor_cores, constants }).collect()
}

/// The version of NVRTC, if it is there.
fn compiler() -> Option<(i32, i32)> {
    let version = preflight::compiler();
    if version.is_none() {
        assert!(std::env::var_os("GPUMEM_REQUIRE_NVRTC").is_none(), "NVRTC was to be there");
        eprintln!("NVRTC is not installed: nothing was compiled");
    }
    version
}

/// A folder for a cache, empty.
fn cache(name: &str) -> (Cache, PathBuf) {
    let folder = std::env::temp_dir().join(format!("gpumem-nvrtc-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    (Cache::at(Some(folder.clone())), folder)
}

/// Kernels of three programs, one of them with two entry points and named twice.
fn some_kernels() -> Vec<Kernel> {
    let moving = |entry, count: u32| {
        Kernel::new("movement.cu", entry).with("REAL", "float").with("COUNT", count).with("BATCH", 3).with("ADD", 0)
    };
    vec![
        moving("copy", 8),
        Kernel::new("state.cu", "advance").with("REAL", "float"),
        moving("sum_batch", 9),
        moving("accumulate", 8),
        moving("copy", 8),
    ]
}

#[test]
fn kernels_are_compiled_once_in_their_order_and_kept() {
    if compiler().is_none() {
        return;
    }
    let (cache, folder) = cache("order");
    let kernels = some_kernels();
    let compiled = compile_all(&kernels, (9, 0), &cache, &Progress::silent()).unwrap();
    for (kernel, compiled) in kernels.iter().zip(&compiled) {
        assert_eq!(compiled.entry.to_str(), Ok(kernel.entry));
        // An ELF file with the entry point among its symbols.
        assert_eq!(&compiled.code[..4], b"\x7fELF");
        let name = kernel.entry.as_bytes();
        assert!(compiled.code.windows(name.len()).any(|part| part == name), "{}", kernel.entry);
    }
    assert_eq!(compiled[0], compiled[4]);
    assert_ne!(compiled[0].code, compiled[2].code);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 3, "entry points of one program share a file");
    let again = compile_all(&kernels, (9, 0), &cache, &Progress::silent()).unwrap();
    assert_eq!(again, compiled);
    // Another architecture is another program.
    let other = compile_all(&kernels[..1], (8, 0), &cache, &Progress::silent()).unwrap();
    assert_ne!(other[0].code, compiled[0].code);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_damaged_entry_of_the_cache_is_compiled_again() {
    if compiler().is_none() {
        return;
    }
    let (cache, folder) = cache("damaged");
    let kernels = some_kernels();
    let compiled = compile_all(&kernels, (9, 0), &cache, &Progress::silent()).unwrap();
    let files = || std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let whole: Vec<(PathBuf, Vec<u8>)> = files().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
    for (index, (path, bytes)) in whole.iter().enumerate() {
        let mut damaged = bytes.clone();
        match index {
            0 => damaged.truncate(bytes.len() / 2),
            1 => damaged[bytes.len() - 1] ^= 1,
            _ => damaged.clear(),
        }
        std::fs::write(path, damaged).unwrap();
    }
    assert_eq!(compile_all(&kernels, (9, 0), &cache, &Progress::silent()).unwrap(), compiled);
    for (path, bytes) in whole {
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "{} is whole again", path.display());
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn two_processes_compile_at_once_and_agree() {
    const NAME: &str = "two_processes_compile_at_once_and_agree";
    if compiler().is_none() {
        return;
    }
    let compile = |folder: PathBuf| {
        let cache = Cache::at(Some(folder));
        compile_all(&some_kernels(), (9, 0), &cache, &Progress::stderr("NVIDIA H200")).unwrap()
    };
    // This test starts itself twice.
    if let Some(folder) = std::env::var_os("GPUMEM_TEST_COMPILER") {
        compile(folder.into());
        return;
    }
    let (_, folder) = cache("processes");
    let start = |quiet| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([NAME, "--exact", "--nocapture"]).env("GPUMEM_TEST_COMPILER", &folder);
        command.env("GPUMEM_QUIET", quiet).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let outputs = [start("0"), start("1")].map(|process| process.wait_with_output().unwrap());
    let texts = outputs.map(|output| {
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{text}");
        text
    });
    assert!(!texts[1].contains("compil"), "{}", texts[1]);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 3, "nothing unfinished is left");
    let (own, own_folder) = cache("alone");
    let alone = compile_all(&some_kernels(), (9, 0), &own, &Progress::silent()).unwrap();
    assert_eq!(compile(folder.clone()), alone);
    // A third process finds everything in the cache, and has nothing to tell.
    let text = String::from_utf8(start("0").wait_with_output().unwrap().stderr).unwrap();
    assert!(!text.contains("compil"), "{text}");
    std::fs::remove_file(std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path()).unwrap();
    let text = String::from_utf8(start("0").wait_with_output().unwrap().stderr).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("compil")).collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert_eq!(lines[0], "compiling 1 kernel for NVIDIA H200 (sm_90)");
    assert!(lines[1].starts_with("compiled 1 kernel for NVIDIA H200 (sm_90) in "), "{text}");
    std::fs::remove_dir_all(folder).unwrap();
    std::fs::remove_dir_all(own_folder).unwrap();
}

#[test]
fn a_kernel_that_does_not_compile_is_named_with_its_log() {
    if compiler().is_none() {
        return;
    }
    let (cache, folder) = cache("failing");
    let mut kernels = some_kernels();
    kernels.insert(2, Kernel::new("movement.cu", "copy").with("REAL", "float").with("COUNT", "no_such_name"));
    let error = compile_all(&kernels, (9, 0), &cache, &Progress::silent()).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Device { .. }), "{text}");
    assert!(text.contains("kernel `copy` of `movement.cu` does not compile"), "{text}");
    assert!(text.contains("\"no_such_name\" is undefined"), "{text}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn old_cards_need_an_old_compiler() {
    let Some(version) = compiler() else { return };
    let pascal = target((6, 1));
    if version.0 < 13 {
        assert_eq!(pascal, Ok((6, 1)));
    } else {
        let text = pascal.unwrap_err().to_string();
        assert!(
            text.contains("NVRTC 13") && text.contains("install the package nvidia-cuda-nvrtc-cu12 (12.9)"),
            "{text}"
        );
    }
    assert_eq!(target((9, 0)), Ok((9, 0)));
    assert!(target((99, 0)).unwrap_err().to_string().contains("install a newer one"));
}

/// Returns the part of all kernels that is asked for, from 0 on, and the number of parts. `None` if all are.
fn part() -> Option<(usize, usize)> {
    let text = std::env::var("GPUMEM_NVRTC_PART").ok()?;
    let (part, parts) = text.split_once('/').expect("a part and a number of parts, as 0/2");
    Some((part.parse().unwrap(), parts.parse().unwrap()))
}

#[test]
fn kernels_compile_for_every_architecture_without_spills() {
    let Some(version) = compiler() else { return };
    let required = std::env::var_os("GPUMEM_REQUIRE_NVRTC").is_some();
    let (of_hopper, instances): (Vec<Instance>, Vec<Instance>) = sample().into_iter().partition(Instance::is_of_hopper);
    assert!(
        !required || !instances.is_empty(),
        "run the other tests of this crate first: they note down what they ran"
    );
    let groups: &[&[(i32, i32)]] = if version.0 >= 13 { &ARCHITECTURES } else { &OF_VERSION_12 };
    let mut work: Vec<(Kernel, (i32, i32))> = Vec::new();
    for instance in &of_hopper {
        work.extend(HALVES.iter().filter_map(|&format| Some((instance.kernel(format, HOPPER)?, HOPPER))));
    }
    // Those of a group take turns, from one instance to the next: formats, and architectures once all formats have been there.
    for (turn, instance) in instances.iter().enumerate() {
        for (group, formats) in FORMATS.iter().enumerate() {
            for (other, architectures) in groups.iter().enumerate() {
                if version.0 < 13 && other > 0 && !instance.tensor_cores {
                    continue;
                }
                let at = architectures[(turn / formats.len() + group) % architectures.len()];
                // Turing's tensor cores have one of both.
                let in_turn = (0..formats.len()).map(|next| formats[(turn + other + next) % formats.len()]);
                work.extend(in_turn.filter_map(|format| Some((instance.kernel(format, at)?, at))).next());
            }
        }
    }
    if let Some((part, parts)) = part() {
        work = work.into_iter().skip(part).step_by(parts).collect();
    }
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
                        Ok(log) => {
                            let lines = spills(&log).chain(waits(kernel, &log));
                            failures.lock().unwrap().extend(lines.map(|line| format!("{label}: {line}")));
                        }
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), work.len(), failures.join("\n"));
    println!("{} compiled with NVRTC {}.{}", work.len(), version.0, version.1);
}

/// A file of the user's, for every architecture and format, behind the constants of its layer.
#[test]
fn kernels_of_users_compile() {
    if compiler().is_none() {
        return;
    }
    let mut graph = Graph::default();
    let input = graph.input(graphs::numbers(&[5, 6])).unwrap();
    let output = graphs::layer(&mut graph, input, "Fold");
    let program = lower(&graph, &[output], &graphs::training(0)).unwrap();
    for (precision, capability) in [(Precision::F32, (8, 0)), (Precision::Bf16, (9, 0)), (Precision::F16, (7, 5))] {
        let placed = place(&graphs::plan(&program, 3, precision)).unwrap();
        let setting = LaunchContext {
            rank: 0,
            batch: 3,
            precision,
            optimizer: Optimizer::Sgd(Sgd::DEFAULT),
            capability,
            multiprocessors: 132,
            tf32: false,
            deterministic: false,
            library: false,
            cudnn: false,
            operations: &graphs::own::OPERATIONS,
        };
        let steps = steps(&placed, setting).unwrap();
        let calls = steps.iter().flat_map(|step| &step.calls);
        let own: Vec<Kernel> = calls
            .filter_map(|call| match call {
                Call::Kernel(launch) => Some(launch.kernel.clone()).filter(|kernel| kernel.file == "fold.cu"),
                _ => None,
            })
            .collect();
        assert_eq!(own.iter().map(|kernel| kernel.entry).collect::<Vec<_>>(), ["forward", "backward"]);
        for kernel in &own {
            resources(kernel, capability).unwrap_or_else(|error| panic!("{error}"));
        }
        // What is wrong is shown in the user's file.
        let text = own[0].source().unwrap().replace("tanhf(inner)", "tanhg(inner)");
        let error = resources(&own[0].clone().of(text), capability).unwrap_err().to_string();
        assert!(error.contains("fold.cu(") && error.contains("tanhg"), "{error}");
    }
}

/// Lines that speak of spilled registers, unless there are none, with the line before each, which names the kernel.
fn spills(log: &str) -> impl Iterator<Item = String> {
    let before = std::iter::once("").chain(log.lines());
    let spilled = |line: &str| line.contains("spill") && !line.contains(" 0 bytes spill stores, 0 bytes spill loads");
    before.zip(log.lines()).filter(move |(_, line)| spilled(line)).map(|(before, line)| format!("{before} {line}"))
}

/// Lines that say that products of warpgroups wait for each other, and of a kernel that has such, what begins with other registers than it counts on:
/// with fewer, its consumers would wait for more of them for ever.
fn waits<'l>(kernel: &Kernel, log: &'l str) -> impl Iterator<Item = String> + use<'l> {
    let begins = format!("Used {LAUNCH_REGISTERS} registers");
    let counts = kernel.is_of_one_architecture() && !log.contains(&begins);
    let serialised = log.lines().filter(|line| line.contains("serialized") || line.contains("setmaxnreg"));
    serialised.map(String::from).chain(counts.then(|| format!("other registers than {LAUNCH_REGISTERS}: {log}")))
}

#[test]
fn products_that_wait_for_each_other_are_recognised() {
    let [other, own] = [0, 1].map(|wgmma| Kernel::new("attention.cu", "all").with("WGMMA", wgmma));
    let log = "ptxas info : (C7512) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient register resources\n\
               ptxas info : Used 168 registers, used 1 barriers";
    assert_eq!(waits(&own, log).count(), 1);
    let [right, few] = [168, 160].map(|count| format!("ptxas info : Used {count} registers"));
    assert_eq!([waits(&own, &right).count(), waits(&own, &few).count(), waits(&other, &few).count()], [0, 1, 0]);
    assert_eq!(
        waits(&own, "ptxas info : setmaxnreg ignored to maintain minimum register requirements\nUsed 168 registers")
            .count(),
        1
    );
}

#[test]
fn spills_are_recognised() {
    let log = "ptxas info : Used 40 registers\n    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
               \n    8 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads";
    assert_eq!(spills(log).count(), 1);
}

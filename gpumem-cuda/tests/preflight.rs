//! Missing, old, damaged and badly matched libraries, and cards that cannot be used: each is an error that says what to do.
//!
//! Stand-ins for the libraries are compiled from C, and looked for by a second process, which starts with the environment
//! that a case needs. Nothing is tested on a machine that has any of the libraries where the loader or Python finds them.
#![cfg(unix)]

use gpumem_core::Precision;
use gpumem_core::memory::place::Placed;
use gpumem_core::operation::Operations;
use gpumem_core::program::Program;
use gpumem_core::run::device::{Device, Job};
use gpumem_core::train::optim::{Optimizer, Sgd};
use gpumem_cuda::{Cuda, RankId, preflight};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a second process does.
const PART: &str = "GPUMEM_TEST_PART";
const MIB: u64 = 1 << 20;

/// A folder with stand-ins, deleted at the end.
struct Machine {
    root: PathBuf,
    variables: Vec<(&'static str, String)>,
}

impl Machine {
    /// A machine without anything, or `None` where there is something that cannot be hidden.
    fn new(name: &str) -> Option<Machine> {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("machine-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(root.join("lib")).unwrap();
        let machine = Machine { root, variables: Vec::new() };
        let found = machine.prints("found");
        if found != "none" {
            eprintln!("nothing was tested, as this machine has {found}");
            return None;
        }
        Some(machine)
    }

    fn with(mut self, variable: &'static str, value: impl ToString) -> Machine {
        self.variables.push((variable, value.to_string()));
        self
    }

    /// A file in a folder below the machine's root; the loader finds those in `lib`.
    fn file(&self, folder: &str, name: &str) -> PathBuf {
        std::fs::create_dir_all(self.root.join(folder)).unwrap();
        self.root.join(folder).join(name)
    }

    /// Compiles a stand-in.
    fn library(self, folder: &str, name: &str, macros: &[&str]) -> Machine {
        let path = self.file(folder, name);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stand_ins/libraries.c");
        let done = Command::new("cc")
            .args(["-shared", "-fPIC", "-Wall", "-Werror", "-x", "c"])
            .args(macros.iter().map(|name| format!("-D{name}")))
            .args([source.as_os_str(), "-o".as_ref(), path.as_os_str()])
            .arg(format!("-Wl,-soname,{name}"))
            .status()
            .unwrap();
        assert!(done.success());
        self
    }

    fn text_file(self, folder: &str, name: &str) -> Machine {
        std::fs::write(self.file(folder, name), "this is no library").unwrap();
        self
    }

    fn driver(self) -> Machine {
        self.library("lib", "libcuda.so.1", &["DRIVER"])
    }

    /// Driver, NVRTC and cuBLASLt of CUDA 13 where the loader finds them.
    fn complete(self) -> Machine {
        self.driver().library("lib", "libnvrtc.so.13", &["COMPILER", "VERSION=1300"]).library(
            "lib",
            "libcublasLt.so.13",
            &["PRODUCTS", "VERSION=1300"],
        )
    }

    /// NVRTC and cuBLASLt as wheels of an environment, of both CUDA 12 and 13.
    fn wheels(self) -> Machine {
        let site = "venv/lib/python3.11/site-packages/nvidia";
        let environment = self.root.join("venv").display().to_string();
        self.with("VIRTUAL_ENV", environment)
            .library(&format!("{site}/cu13/lib"), "libnvrtc.so.13", &["COMPILER", "VERSION=1300"])
            .library(&format!("{site}/cu13/lib"), "libcublasLt.so.13", &["PRODUCTS", "VERSION=1300"])
            .library(&format!("{site}/cuda_nvrtc/lib"), "libnvrtc.so.12", &["COMPILER", "VERSION=1209"])
            .library(&format!("{site}/cublas/lib"), "libcublasLt.so.12", &["PRODUCTS", "VERSION=1209"])
            .library(&format!("{site}/cudnn/lib"), "libcudnn.so.9", &["CONVOLUTIONS", "VERSION=91002", "BUILT_FOR=13"])
    }

    /// What a process on this machine prints.
    fn prints(&self, part: &str) -> String {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["second_process", "--exact", "--nocapture"]).env(PART, part);
        for name in ["GPUMEM_CUDA", "VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES"] {
            command.env_remove(name);
        }
        command.env("HOME", self.root.join("home")).env("LD_LIBRARY_PATH", self.root.join("lib"));
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
        text.lines().filter_map(|line| line.strip_prefix("> ")).collect::<Vec<_>>().join("\n")
    }

    #[track_caller]
    fn says(&self, part: &str, expected: &[&str]) -> String {
        let text = self.prints(part);
        for expected in expected {
            assert!(text.contains(expected), "`{expected}` is not in:\n{text}");
        }
        text
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

fn say(text: impl ToString) {
    text.to_string().lines().for_each(|line| println!("> {line}"));
}

/// Runs in the second process only.
#[test]
fn second_process() {
    match std::env::var(PART).as_deref() {
        Ok("check") => match preflight::check() {
            Ok(()) => say("complete"),
            Err(error) => say(error),
        },
        Ok("found") => {
            let found = preflight::libraries().into_iter().find(|status| status.found.is_ok());
            say(found.map_or("none", |status| status.name));
        }
        Ok("list") => {
            for status in preflight::libraries() {
                match status.found {
                    Ok((version, place)) => say(format!("{}: {version} at {place}", status.name)),
                    Err(error) => say(format!("{}: {error}", status.name)),
                }
            }
        }
        Ok(ordinal) if ordinal.starts_with("card ") => match Cuda::new(ordinal[5..].parse().unwrap()) {
            Ok(card) => say(format!("{} {:?}", card.name().unwrap(), card.context_bytes())),
            Err(error) => say(error),
        },
        Ok("ranks") => match RankId::new() {
            Ok(id) => say(format!("{}", id.bytes()[127])),
            Err(error) => say(error),
        },
        Ok("load") => {
            let card = Cuda::new(0).unwrap();
            // Opened a second time, the context is there already: what it took is known all the same.
            assert_eq!(Cuda::new(0).unwrap().context_bytes(), card.context_bytes());
            let program = Program {
                training: false,
                moments: 0,
                holds_gradients: false,
                descent: gpumem_core::train::Descent::PLAIN,
                tensors: Vec::new(),
                operations: Vec::new(),
                paths: Vec::new(),
                results: vec![0],
            };
            let job = Job {
                name: "test",
                arena: 3000 * MIB,
                reserve: 512 * MIB,
                batch: 1,
                precision: Precision::F32,
                train: None,
                evaluation: None,
                served: None,
                others: Vec::new(),
                infer: Placed::new(program, Vec::new(), 1, Precision::F32),
                optimizer: Optimizer::Sgd(Sgd::DEFAULT),
                tf32: false,
                deterministic: false,
                settings: 0,
                operations: &Operations::NONE,
            };
            say(card.load(job).unwrap_err());
        }
        _ => {}
    }
}

#[test]
fn everything_that_is_missing_is_named_at_once() {
    let Some(machine) = Machine::new("nothing") else { return };
    let text = machine.says("check", &["an NVIDIA driver, version 535", "nvidia-cuda-nvrtc", "nvidia-cublas"]);
    assert_eq!(text.lines().count(), 3, "{text}");
    machine.says("list", &["cuDNN (libcudnn) 9.0 or newer is needed, but there is none", "nvidia-cudnn-cu13"]);
    machine.says("card 0", &["nvidia-cublas"]);
    let machine = machine.complete();
    assert_eq!(machine.prints("check"), "complete");
}

#[test]
fn old_libraries_are_named_with_their_version() {
    let Some(machine) = Machine::new("old") else { return };
    let machine = machine
        .driver()
        .with("FAKE_DRIVER", 11080)
        .library("lib", "libnvrtc.so.11", &["COMPILER", "VERSION=1108"])
        .library("lib", "libcublasLt.so.11", &["PRODUCTS", "VERSION=1111"]);
    machine.says(
        "check",
        &[
            "the NVIDIA driver (libcuda) with CUDA 12.2 or newer is needed, but version 11.8 (libcuda.so.1) was found",
            "NVRTC (libnvrtc) 12.2 or newer is needed, but version 11.8 (libnvrtc.so.11) was found; install",
            "cuBLASLt (libcublasLt) 12.2 or newer is needed, but version 11.11 (libcublasLt.so.11) was found; install",
        ],
    );
}

#[test]
fn damaged_files_are_errors() {
    let Some(machine) = Machine::new("damaged") else { return };
    let machine = machine
        .driver()
        .text_file("lib", "libcublasLt.so.13")
        .library("lib", "libnvrtc.so.13", &[])
        .text_file("more", "libcudnn.so.9")
        .text_file("lib", "libnvidia-ml.so.1");
    let more = machine.root.join("more").display().to_string();
    let machine = machine.with("GPUMEM_CUDA", more);
    machine.says(
        "check",
        &["libcublasLt.so.13, which cannot be opened (", "which has no function nvrtcVersion, was found"],
    );
    machine.says("list", &["libcudnn.so.9, which cannot be opened ("]);
    let machine = machine.text_file("lib", "libcuda.so.1");
    machine.says("check", &["libcuda.so.1, which cannot be opened ("]);
    let machine = machine.library("lib", "libcuda.so.1", &[]);
    machine.says("card 0", &["libcuda.so.1, which has no function cuInit, was found; install an NVIDIA driver"]);
}

/// Its functions are called by name, and one that is not there would be a panic.
#[test]
fn a_cudnn_that_lacks_a_function_is_not_used() {
    let Some(machine) = Machine::new("lacking") else { return };
    let macros = ["CONVOLUTIONS", "VERSION=91002", "BUILT_FOR=13", "LACKING"];
    let machine = machine.complete().library("lib", "libcudnn.so.9", &macros);
    let what = "libcudnn.so.9, which has no function cudnnConvolutionBiasActivationForward, was found; install";
    machine.says("list", &[what]);
    assert_eq!(machine.prints("check"), "complete", "it is optional");
}

#[test]
fn nccl_is_found_in_wheels() {
    let Some(machine) = Machine::new("ranks") else { return };
    let machine = machine.complete();
    machine.says(
        "ranks",
        &["NCCL (libnccl) 2.22 or newer is needed, but there is none", "the package nvidia-nccl-cu13 with pip"],
    );
    assert_eq!(machine.prints("check"), "complete", "one card needs none");
    let machine = machine.library("lib", "libnccl.so.2", &["EXCHANGES", "VERSION=22105"]);
    machine.says("ranks", &["but version 2.21 (libnccl.so.2) was found; install the package nvidia-nccl-cu13"]);
    let machine = machine.library("lib", "libnccl.so.2", &["EXCHANGES", "VERSION=23203", "LACKING"]);
    machine.says("ranks", &["libnccl.so.2, which has no function ncclGroupEnd, was found; install"]);
    let environment = machine.root.join("venv").display().to_string();
    let site = "venv/lib/python3.11/site-packages/nvidia/nccl/lib";
    let machine =
        machine.with("VIRTUAL_ENV", environment).library(site, "libnccl.so.2", &["EXCHANGES", "VERSION=22203"]);
    assert_eq!(machine.prints("ranks"), "7");
    machine.says("list", &["NCCL (libnccl): 2.22 at ", "site-packages/nvidia/nccl/lib/libnccl.so.2"]);
}

#[test]
fn libraries_match_the_driver() {
    let Some(machine) = Machine::new("match") else { return };
    let machine = machine.driver().wheels().with("FAKE_DRIVER", 13000);
    machine.says("list", &["libnvrtc.so.13", "libcublasLt.so.13", "cuDNN (libcudnn): 9.10 at"]);
    let machine = machine.with("FAKE_DRIVER", 12040);
    machine.says(
        "list",
        &[
            "NVRTC (libnvrtc): 12.9 at",
            "libnvrtc.so.12",
            "cuBLASLt (libcublasLt): 12.9 at",
            "libcublasLt.so.12",
            "9.0 or newer, for CUDA 12 as the driver is, is needed, but version 9.10 for CUDA 13 (",
            "install the package nvidia-cudnn-cu12",
        ],
    );
    assert_eq!(machine.prints("check"), "complete");
}

#[test]
fn a_library_that_hides_the_right_one_is_named() {
    let Some(machine) = Machine::new("hidden") else { return };
    let machine = machine
        .wheels()
        .driver()
        .with("FAKE_DRIVER", 12040)
        .library("lib", "libnvrtc.so.13", &["COMPILER", "VERSION=1300"])
        .library("lib", "libcublasLt.so.13", &["PRODUCTS", "VERSION=1300"]);
    // NVRTC is taken from where it fits; cuBLASLt is looked up by its name once more.
    let text = machine.says("check", &["version 13.0 (libcublasLt.so.13, which the loader finds before "]);
    assert!(!text.contains("NVRTC"), "{text}");
}

#[test]
fn named_folders_come_first_and_in_their_order() {
    let Some(machine) = Machine::new("named") else { return };
    let machine = machine
        .complete()
        .library("a", "libnvrtc.so.13", &["COMPILER", "VERSION=1301"])
        .library("b", "libnvrtc.so.13", &["COMPILER", "VERSION=1302"])
        .library("b", "libcublasLt.so.13", &["PRODUCTS", "VERSION=1302"]);
    let folders = ["missing", "a", "b"].map(|folder| machine.root.join(folder));
    let machine = machine.with("GPUMEM_CUDA", std::env::join_paths(folders).unwrap().to_str().unwrap());
    machine.says("list", &["NVRTC (libnvrtc): 13.1 at ", "/a/libnvrtc.so.13", "cuBLASLt (libcublasLt): 13.2 at "]);
}

#[test]
fn cards_that_are_not_there_are_explained() {
    let Some(machine) = Machine::new("cards") else { return };
    let machine = machine.complete();
    assert_eq!(machine.prints("card 0"), "Stand-in None");
    machine.says("card 1", &["there is no card number 1; CUDA sees 1 card, counted from 0"]);
    machine.says("card 18446744073709551615", &["there is no card number 18446744073709551615"]);
    let machine = machine.with("FAKE_INIT", 100).with("CUDA_VISIBLE_DEVICES", "");
    machine.says("card 0", &["there is no card among CUDA_VISIBLE_DEVICES, which is ``; unset it"]);
    let machine = machine.with("FAKE_INIT", 34);
    machine.says("card 0", &["the driver does not start (", "does `nvidia-smi` list a card?"]);
    let machine = machine.with("FAKE_INIT", 0).with("FAKE_COUNT", 0);
    machine.says("card 0", &["CUDA sees 0 cards, counted from 0; CUDA_VISIBLE_DEVICES is ``"]);
}

#[test]
fn old_cards_are_refused_with_what_helps() {
    let Some(machine) = Machine::new("capability") else { return };
    let machine = machine.complete().with("FAKE_CAPABILITY", 52);
    machine.says("card 0", &["the card has compute capability 5.2; cards from 6.0 (Pascal) on are supported"]);
    let machine = machine.with("FAKE_CAPABILITY", 61);
    machine.says("card 0", &["NVRTC 13.0 compiles for compute capability 7.5 to 12.0, but the card has 6.1; install the package nvidia-cuda-nvrtc-cu12 (12.9)"]);
    // Doing what the message says helps, although the loader finds the other one.
    let machine = machine.library("older", "libnvrtc.so.12", &["COMPILER", "VERSION=1209"]);
    let older = machine.root.join("older").display().to_string();
    let machine = machine.with("GPUMEM_CUDA", older);
    machine.says("card 0", &["Stand-in"]);
}

#[test]
fn short_memory_is_refused_with_who_holds_the_rest() {
    let Some(machine) = Machine::new("memory") else { return };
    // Without NVML nobody is named, and the context counts as the whole reserve: 3000 MiB would fit.
    let machine = machine.complete();
    assert_eq!(machine.prints("card 0"), "Stand-in None");
    let machine = machine.library("lib", "libnvidia-ml.so.1", &["MANAGEMENT"]);
    let machine = machine.with("FAKE_LIMIT", 1);
    assert_eq!(machine.prints("card 0"), format!("Stand-in Some({})", 400 * MIB), "limits that are refused");
    // 3000 MiB of arena and the 112 MiB of the reserve that the context has not taken, of 3072 MiB.
    assert_eq!(
        machine.prints("load"),
        "CUDA: 3.04 GiB are needed, 112.0 MiB of them beside the arena, by the rule for cards, but only 3.00 GiB are free: \
         python3 (process 5000001) holds 7.00 GiB, this process holds 400.0 MiB; free some, or train with a smaller batch"
    );
    let machine = machine.with("FAKE_LIMIT", 0);
    assert_eq!(
        machine.prints("card 0"),
        format!("Stand-in Some({})", 330 * MIB),
        "the stack's limit gives back 70 MiB"
    );
    machine.says("load", &["3.11 GiB are needed, 182.0 MiB of them beside the arena, by the rule for cards"]);
    // What a neighbour takes meanwhile is not this process's, where NVML can tell. Where it cannot, the smaller context that was
    // seen before leaves more to be taken.
    let machine = machine.with("FAKE_NEIGHBOUR", 1000);
    assert_eq!(machine.prints("card 0"), format!("Stand-in Some({})", 330 * MIB));
    let machine = machine.with("FAKE_PROCESSES", 0);
    assert_eq!(machine.prints("card 0"), format!("Stand-in Some({})", 1330 * MIB));
    machine.says("load", &["182.0 MiB of them beside the arena, by the rule for cards"]);
    let machine = machine.with("FAKE_PROCESSES", 100).with("FAKE_NEIGHBOUR", 0);
    machine.says("load", &["process 5000003 holds 7.00 GiB, ", "96 others hold 6"]);
    let machine = machine.with("FAKE_RETAIN", 2).with("FAKE_PROCESSES", 2);
    machine.says("card 0", &["200.0 MiB could not be allocated: python3 (process 5000001) holds 7.00 GiB"]);
    let machine = machine.with("FAKE_NVML", 9);
    assert_eq!(
        machine.prints("card 0"),
        "CUDA: 200.0 MiB could not be allocated; free some, or train with a smaller batch"
    );
}

//! What loading takes of a card beside the arena: limits of the context, figures that are kept, refusals by them.

use super::*;
use crate::host::card::{limits, on_a_simulated_card_with_cudnn};
use cudarc::driver::result;
use gpumem_core::error::Beside;
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;

/// A folder for compiled kernels and figures, deleted at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("measured-{name}-{}", std::process::id()));
        Folder(folder)
    }

    fn variable(&self) -> (&'static str, &str) {
        ("GPUMEM_CACHE", self.0.to_str().unwrap())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Takes memory until `rest` bytes are free.
fn take_all_but(card: &Cuda, rest: u64) {
    // Asking binds the context.
    let (free, _) = card.memory().unwrap();
    // SAFETY: the context is bound; the memory is used by nothing.
    unsafe { result::malloc_sync((free - rest) as usize) }.unwrap();
}

#[test]
fn a_new_context_has_the_least_limits() {
    let name = "measured::a_new_context_has_the_least_limits";
    let variable = "GPUMEM_SIMULATED_LEAST";
    if std::env::var_os(variable).is_none() {
        assert!(!on_a_simulated_card(name, &[(variable, "0")]));
        assert!(!on_a_simulated_card(name, &[(variable, "100")]));
        assert!(!on_a_simulated_card(name, &[(variable, "1000")]));
        assert!(!on_a_simulated_card(name, &[(variable, "none"), ("GPUMEM_SIMULATED_REFUSED", "cuCtxSetLimit")]));
        return;
    }
    let card = Cuda::new(0).unwrap();
    let expected = match std::env::var(variable).unwrap().as_str() {
        "0" => [0, 0, 0],
        "100" => [256, 4096, 4096],
        "1000" => [1024, 4096, 4096],
        // What a driver refuses stays as it was, and is no error.
        _ => [1024, 1 << 20, 8 << 20],
    };
    assert_eq!(limits(), expected);
    assert!(card.memory().is_ok());
}

/// Another's limits stay: only who makes the context may choose.
#[test]
fn a_context_of_others_keeps_its_limits() {
    let name = "measured::a_context_of_others_keeps_its_limits";
    if !on_a_simulated_card(name, &[]) {
        return;
    }
    result::init().unwrap();
    let theirs = cudarc::driver::CudaContext::new(0).unwrap();
    let _card = Cuda::new(0).unwrap();
    assert_eq!(limits(), [1024, 1 << 20, 8 << 20]);
    drop(theirs);
}

/// The first load of a process is measured; the next process refuses by that figure, and says so.
#[test]
fn a_network_that_was_measured_is_refused_by_its_figure() {
    let name = "measured::a_network_that_was_measured_is_refused_by_its_figure";
    let (part, takes) = ("GPUMEM_TEST_PART", ("GPUMEM_SIMULATED_TAKES", "1"));
    let Ok(part_now) = std::env::var(part) else {
        let folder = Folder::new("refused");
        for what in ["rule", "measure", "measured"] {
            assert!(!on_a_simulated_card(name, &[(part, what), takes, folder.variable()]));
        }
        return;
    };
    let job = Job { reserve: 512 * MIB, ..job(Precision::F32) };
    let card = Cuda::new(0).unwrap().with_cudnn(false);
    match part_now.as_str() {
        "measure" => drop(load_on(&card, &job).unwrap()),
        what => {
            take_all_but(&card, job.arena + MIB);
            let Error::Memory { needed, beside, free, .. } = (match load_on(&card, &job) {
                // Without NVML the rule counts nothing, as the context may be the whole reserve.
                Ok(_) => panic!("there was no room"),
                Err(error) if what == "rule" => {
                    assert!(!error.to_string().contains("as measured"), "{error}");
                    return;
                }
                Err(error) => {
                    assert!(error.to_string().contains(" of them beside the arena, as measured when"), "{error}");
                    error
                }
            }) else {
                panic!("another error")
            };
            let Some(Beside::Measured(bytes)) = beside else { panic!("{beside:?}") };
            assert_eq!((needed, free), (job.arena + bytes, Some(job.arena + MIB)));
            // A handle, several modules and kernels of the library, three graphs.
            assert!((30 * MIB..200 * MIB).contains(&bytes) && bytes.is_multiple_of(MIB), "{bytes}");
            assert_eq!(counts()[2], 0, "nothing was begun");
        }
    }
}

/// A second network in a process finds the libraries' kernels there, as does the first one after questions to them, and a neighbour
/// may be at work: none of this is believed.
#[test]
fn what_does_not_tell_is_not_kept() {
    let name = "measured::what_does_not_tell_is_not_kept";
    let (part, takes) = ("GPUMEM_TEST_PART", ("GPUMEM_SIMULATED_TAKES", "1"));
    let Ok(part_now) = std::env::var(part) else {
        for (what, neighbour) in [
            ("gives", "cuModuleLoadData:-100"),
            ("takes", "cuMemAlloc_v2:100"),
            ("second", ""),
            ("facts", ""),
            ("blocking", ""),
            ("alone", ""),
        ] {
            let folder = Folder::new(what);
            // Without graphs it takes less than it will with them.
            let blocking = ("GPUMEM_LAUNCH_BLOCKING", if what == "blocking" { "1" } else { "0" });
            let neighbour = ("GPUMEM_SIMULATED_NEIGHBOUR", neighbour);
            let variables = [(part, what), takes, folder.variable(), neighbour, blocking];
            assert!(!on_a_simulated_card(name, &variables));
        }
        return;
    };
    let job = job(Precision::F32);
    let card = Cuda::new(0).unwrap().with_cudnn(false);
    let folder = PathBuf::from(std::env::var_os("GPUMEM_CACHE").unwrap());
    let networks = || {
        let files = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
        let records = files.filter(|file| file.extension().is_some_and(|extension| extension == "measured"));
        let text = records.map(|file| String::from_utf8_lossy(&std::fs::read(file).unwrap()).into_owned());
        text.collect::<String>().lines().filter(|line| line.starts_with("network ")).count()
    };
    if part_now == "facts" {
        card.facts().unwrap();
    }
    drop(load_on(&card, &job).unwrap());
    match part_now.as_str() {
        "alone" => assert_eq!(networks(), 1),
        "second" => {
            let second = job_of(&[4], "Linear(5)", Optimizer::Sgd(Sgd::DEFAULT), Precision::F32);
            drop(load_on(&card, &second).unwrap());
            assert_eq!(networks(), 1);
            // Were the first one's figure the second one's, this would be refused by it.
            take_all_but(&card, second.arena + MIB);
            let error = load_on(&card, &second).unwrap_err();
            assert!(!error.to_string().contains("as measured"), "{error}");
        }
        _ => assert_eq!(networks(), 0),
    }
}

#[test]
fn a_figure_that_was_too_small_is_forgotten() {
    let name = "measured::a_figure_that_was_too_small_is_forgotten";
    let (part, takes) = ("GPUMEM_TEST_PART", ("GPUMEM_SIMULATED_TAKES", "1"));
    let Ok(part_now) = std::env::var(part) else {
        let folder = Folder::new("forgotten");
        let refused = ("GPUMEM_SIMULATED_REFUSED", "cuModuleLoadData");
        assert!(!on_a_simulated_card(name, &[(part, "measure"), takes, folder.variable()]));
        assert!(!on_a_simulated_card(name, &[(part, "fail"), takes, folder.variable(), refused]));
        assert!(!on_a_simulated_card(name, &[(part, "ask"), takes, folder.variable()]));
        return;
    };
    let job = job(Precision::F32);
    let card = Cuda::new(0).unwrap().with_cudnn(false);
    match part_now.as_str() {
        "measure" => drop(load_on(&card, &job).unwrap()),
        "fail" => assert!(load_on(&card, &job).unwrap_err().to_string().contains("loading kernel")),
        _ => {
            take_all_but(&card, job.arena - MIB.min(job.arena));
            let error = load_on(&card, &job).unwrap_err();
            assert!(!error.to_string().contains("as measured"), "{error}");
        }
    }
}

/// A row for the table, from a card that nobody knows, with both libraries.
#[test]
fn a_card_is_calibrated() {
    let name = "measured::a_card_is_calibrated";
    let part = "GPUMEM_TEST_PART";
    if std::env::var_os(part).is_none() {
        let folder = Folder::new("calibrated");
        let takes = ("GPUMEM_SIMULATED_TAKES", "1");
        assert!(!on_a_simulated_card_with_cudnn(name, &[(part, "calibrate"), takes, folder.variable()]));
        return;
    }
    let card = Cuda::new(0).unwrap();
    // Makes the probe's kernels known to the card; the load itself is calibration's.
    let job = gpumem_cuda::probe().unwrap();
    register_kernels(&job);
    let found = gpumem_cuda::calibrate(&card).unwrap();
    assert_eq!((found.name.as_str(), found.card, found.slug()), ("Simulated card", None, "simulated-card".into()));
    assert_eq!((found.usable, found.multiprocessors, found.capability), (4096 * MIB, 4, (8, 0)));
    assert_eq!((found.context, found.driver.as_deref()), (None, None), "there is no NVML");
    let probe = found.probe.unwrap();
    assert_eq!(probe.handles, 32 * MIB, "both libraries");
    assert_eq!((probe.graphs, probe.process), (3 * MIB, None));
    assert!(probe.trials >= 4 * MIB && probe.modules >= 2 * MIB, "{probe:?}");
    assert_eq!(found.most_beside, Some(probe.beside()));
    let row = found.to_string();
    assert!(row.starts_with("simulated-card,,Simulated card,,8.0,,4096,measured,"), "{row}");
    // A second time in the same process it reports what was measured.
    assert_eq!(gpumem_cuda::calibrate(&card).unwrap().probe, Some(probe));
    take_all_but(&card, 0);
    assert!(matches!(gpumem_cuda::calibrate(&card), Err(Error::Memory { .. })));
}

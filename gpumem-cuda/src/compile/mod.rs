//! Compilation of kernels to machine code with NVRTC, for the architecture of the card, several at a time.

pub mod cache;
pub mod progress;

use crate::calls::{Kernel, SOURCES};
use crate::libraries::nvrtc::Nvrtc;
use cache::{Cache, key};
use gpumem_core::cards::LEAST_COMPUTE_CAPABILITY;
use gpumem_core::error::Error;
use progress::Progress;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Architectures of embedded chips, whose machine code does not run on cards of the same major version.
const EMBEDDED: [i32; 7] = [53, 62, 72, 87, 88, 101, 110];

/// Machine code for one architecture, and the kernel's entry point.
#[derive(Clone, Debug, PartialEq)]
pub struct Compiled {
    /// A cubin.
    pub code: Vec<u8>,
    /// The entry point.
    pub entry: CString,
}

/// Returns the compiler options of a kernel for compute capability `(major, minor)`.
pub fn options(kernel: &Kernel, (major, minor): (i32, i32)) -> Vec<String> {
    let constants = kernel.constants.iter().map(|(name, value)| format!("-D{name}={value}"));
    let features = if kernel.is_of_one_architecture() { "a" } else { "" };
    [format!("-arch=sm_{major}{minor}{features}"), "-std=c++17".into()].into_iter().chain(constants).collect()
}

/// Returns the compute capability that kernels are compiled for: the card's own, or the nearest older one of its major version, whose code it runs
/// as well.
///
/// # Errors
/// [`Error::Library`] if NVRTC is missing; [`Error::Unsupported`] if NVRTC cannot compile for the card, with the version of NVRTC that can.
pub fn target(capability: (i32, i32)) -> Result<(i32, i32), Error> {
    let nvrtc = Nvrtc::get()?;
    choose(capability, &nvrtc.architectures, nvrtc.version)
}

fn choose((major, minor): (i32, i32), known: &[i32], version: (i32, i32)) -> Result<(i32, i32), Error> {
    let unsupported = |what: String| Err(Error::Unsupported { device: "CUDA", what });
    let (least, least_minor) = LEAST_COMPUTE_CAPABILITY;
    if (major, minor) < (least.into(), least_minor.into()) {
        let what = format!(
            "the card has compute capability {major}.{minor}; cards from {least}.{least_minor} (Pascal) on are supported"
        );
        return unsupported(what);
    }
    let card = major * 10 + minor;
    if known.contains(&card) {
        return Ok((major, minor));
    }
    let runs =
        |known: &i32| known / 10 == major && *known < card && ![*known, card].iter().any(|at| EMBEDDED.contains(at));
    if let Some(&best) = known.iter().filter(|known| runs(known)).max() {
        return Ok((best / 10, best % 10));
    }
    let capability = |architecture: &i32| format!("{}.{}", architecture / 10, architecture % 10);
    let range = [known.iter().min(), known.iter().max()].map(|end| end.map_or_else(String::new, capability));
    let too_old = known.iter().all(|&known| known > card);
    let install = if too_old {
        "the package nvidia-cuda-nvrtc-cu12 (12.9) with pip"
    } else {
        "a newer one, such as the package nvidia-cuda-nvrtc with pip"
    };
    unsupported(format!(
        "NVRTC {}.{} compiles for compute capability {} to {}, but the card has {major}.{minor}; install {install}, and name \
         its folder in GPUMEM_CUDA",
        version.0, version.1, range[0], range[1]
    ))
}

/// Compiles a kernel, or reads it from the cache.
///
/// # Errors
/// As [`compile_all`].
pub fn compile(kernel: &Kernel, capability: (i32, i32), cache: &Cache) -> Result<Compiled, Error> {
    let compiled = compile_all(std::slice::from_ref(kernel), capability, cache, &Progress::silent())?;
    compiled.into_iter().next().ok_or(Error::Damaged("a kernel was lost"))
}

/// Compiles kernels for a card of this compute capability, in their order. Those in the cache are read from there. The others are compiled in as
/// many threads as the machine has cores, and stored.
///
/// # Errors
/// [`Error::Device`] with the compiler's log for a kernel that does not compile; as [`target`] if NVRTC is missing or cannot compile for the card.
pub fn compile_all(
    kernels: &[Kernel],
    capability: (i32, i32),
    cache: &Cache,
    progress: &Progress,
) -> Result<Vec<Compiled>, Error> {
    let entries = kernels
        .iter()
        .map(|kernel| {
            CString::new(kernel.entry).map_err(|_| Error::Damaged("the name of a kernel contains a zero byte"))
        })
        .collect::<Result<Vec<CString>, Error>>()?;
    let sources = kernels.iter().map(Kernel::source).collect::<Result<Vec<&str>, Error>>()?;
    let (nvrtc, target) = (Nvrtc::get()?, target(capability)?);
    // Entry points of one file with the same constants share their machine code.
    let mut units: Vec<Unit<'_>> = Vec::new();
    let mut places = BTreeMap::new();
    let mut unit_of = Vec::new();
    for (kernel, source) in kernels.iter().zip(sources) {
        let unit = Unit::new(kernel, source, target, nvrtc.version);
        let place = *places.entry(unit.key.clone()).or_insert(units.len());
        if place == units.len() {
            units.push(unit);
        }
        unit_of.push(place);
    }
    let mut codes: Vec<Option<Vec<u8>>> = units.iter().map(|unit| cache.get(&unit.key)).collect();
    let missing: Vec<usize> = (0..units.len()).filter(|&index| codes[index].is_none()).collect();
    if !missing.is_empty() {
        let todo: Vec<&Unit<'_>> = missing.iter().map(|&index| &units[index]).collect();
        progress.begin(todo.len(), target.0 * 10 + target.1);
        let compiled = compile_units(nvrtc, &todo, cache, progress);
        progress.end(compiled.is_ok());
        for (index, code) in missing.into_iter().zip(compiled?) {
            codes[index] = Some(code);
        }
    }
    let compiled = unit_of.iter().zip(entries).map(|(&place, entry)| {
        let code = codes[place].clone().ok_or(Error::Damaged("a kernel was lost"))?;
        Ok(Compiled { code, entry })
    });
    compiled.collect()
}

/// A source with its constants: one run of the compiler.
struct Unit<'a> {
    kernel: &'a Kernel,
    source: &'a str,
    options: Vec<String>,
    key: String,
}

impl Unit<'_> {
    fn new<'a>(kernel: &'a Kernel, source: &'a str, target: (i32, i32), (major, minor): (i32, i32)) -> Unit<'a> {
        let options = options(kernel, target);
        let version = format!("{major}.{minor}");
        let mut parts: Vec<&str> = vec![kernel.file, source, &version];
        parts.extend(options.iter().map(String::as_str));
        parts.extend(headers().iter().map(|(_, text)| *text));
        let key = key(&parts);
        Unit { kernel, source, options, key }
    }

    fn compile(&self, nvrtc: &Nvrtc) -> Result<Vec<u8>, Error> {
        let program = nvrtc.program(self.kernel.file, self.source, &headers());
        let code = program.and_then(|program| program.compile(&self.options));
        code.map_err(|log| {
            let what = format!("kernel `{}` of `{}` does not compile: {log}", self.kernel.entry, self.kernel.file);
            Error::failed("CUDA", what)
        })
    }
}

/// Compiles in parallel: NVRTC allows several threads, each with programs of its own.
fn compile_units(
    nvrtc: &Nvrtc,
    units: &[&Unit<'_>],
    cache: &Cache,
    progress: &Progress,
) -> Result<Vec<Vec<u8>>, Error> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let done = Mutex::new(Vec::from_iter(units.iter().map(|_| None)));
    let work = || {
        while !failed.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(unit) = units.get(index) else { return };
            let code = unit.compile(nvrtc);
            match &code {
                Ok(code) => {
                    cache.put(&unit.key, code);
                    progress.step();
                }
                Err(_) => failed.store(true, Ordering::Relaxed),
            }
            done.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(code);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(units.len());
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    // The error of the first kernel that failed. Kernels after it may not have been compiled.
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.into_iter().flatten().collect()
}

/// Returns the assembler's report on a kernel: registers, shared memory and spills of every entry point of its file.
///
/// # Errors
/// [`Error::Device`] with the compiler's log if it does not compile.
pub fn resources(kernel: &Kernel, capability: (i32, i32)) -> Result<String, Error> {
    let mut options = options(kernel, capability);
    options.push("--ptxas-options=-v".into());
    let what = |log| Error::failed("CUDA", format!("`{}` does not compile: {log}", kernel.file));
    let program = Nvrtc::get()?.program(kernel.file, kernel.source()?, &headers()).map_err(what)?;
    program.compile(&options).map_err(what)?;
    Ok(program.log())
}

fn headers() -> Vec<(&'static str, &'static str)> {
    SOURCES.iter().filter(|(file, _)| file.ends_with(".cuh")).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_name_the_architecture_and_all_constants() {
        let kernel =
            Kernel::new("movement.cu", "copy").with("REAL", "Bf16").with("COUNT", "12ull").with_float("SLOPE", 0.25);
        assert_eq!(
            options(&kernel, (8, 6)),
            ["-arch=sm_86", "-std=c++17", "-DREAL=Bf16", "-DCOUNT=12ull", "-DSLOPE=2.5e-1"]
        );
    }

    #[test]
    fn kernels_on_warpgroup_instructions_are_for_one_architecture() {
        let kernel =
            Kernel::new("attention.cu", "attention_forward_wgmma").with("WGMMA", 1).with("SHARED_BYTES", 83968);
        assert_eq!(options(&kernel, (9, 0))[0], "-arch=sm_90a");
        assert_eq!(kernel.shared_bytes(), 83968);
        let other = Kernel::new("attention.cu", "attention_forward").with("WGMMA", 0);
        assert_eq!(options(&other, (9, 0))[0], "-arch=sm_90");
        assert_eq!(other.shared_bytes(), 0);
    }

    #[test]
    fn a_kernel_without_a_source_is_an_error() {
        let error = compile(&Kernel::new("nothing.cu", "nothing"), (9, 0), &Cache::at(None)).unwrap_err();
        assert_eq!(error, Error::Damaged("a kernel has no source"));
    }

    #[test]
    fn the_target_is_the_card_or_the_nearest_older_one_that_it_runs() {
        const NVRTC_12_8: &[i32] = &[50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 101, 120];
        const NVRTC_13_0: &[i32] = &[75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121];
        assert_eq!(choose((9, 0), NVRTC_12_8, (12, 8)), Ok((9, 0)));
        assert_eq!(choose((10, 3), NVRTC_12_8, (12, 8)), Ok((10, 0)));
        assert_eq!(choose((8, 7), NVRTC_12_8, (12, 8)), Ok((8, 7)));
        assert!(choose((8, 7), &[75, 80, 86], (12, 0)).is_err(), "an embedded chip runs its own code only");
        assert_eq!(choose((12, 1), NVRTC_13_0, (13, 0)), Ok((12, 1)));
        let text = choose((6, 1), NVRTC_13_0, (13, 0)).unwrap_err().to_string();
        assert_eq!(
            text,
            "CUDA: NVRTC 13.0 compiles for compute capability 7.5 to 12.1, but the card has 6.1; install the package \
             nvidia-cuda-nvrtc-cu12 (12.9) with pip, and name its folder in GPUMEM_CUDA"
        );
        // Volta is of the same major version as Turing, but runs none of its code.
        let text = choose((7, 0), NVRTC_13_0, (13, 0)).unwrap_err().to_string();
        assert!(text.contains("nvidia-cuda-nvrtc-cu12 (12.9)"), "{text}");
        let text = choose((11, 0), NVRTC_12_8, (12, 8)).unwrap_err().to_string();
        assert!(text.contains("install a newer one, such as the package nvidia-cuda-nvrtc with pip"), "{text}");
        let text = choose((5, 2), NVRTC_12_8, (12, 8)).unwrap_err().to_string();
        assert_eq!(text, "CUDA: the card has compute capability 5.2; cards from 6.0 (Pascal) on are supported");
    }
}

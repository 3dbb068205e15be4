//! Checks that the libraries of CUDA are installed, before any is called. A missing library is an error that says what to install.
//!
//! All libraries are loaded at run time. The driver's library comes with the driver. The others come with the toolkit or in Python wheels, whose
//! folders the loader does not know: they are opened by path first, and found by name afterwards. Folders that `GPUMEM_CUDA` names (separated as in
//! `PATH`) are searched before the loader.
//!
//! | library | is needed for |
//! | --- | --- |
//! | driver | everything |
//! | NVRTC | kernels |
//! | cuBLASLt | matrix products |
//! | cuDNN | faster convolutions; without it gpumem's own kernels compute them |
//! | NCCL | training steps that several ranks share |

use super::cudnn::functions::FUNCTIONS;
use super::find::{Found, Kind, Places, Version, find};
use super::nccl::functions as exchanges;
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::CUresult;
use gpumem_core::error::Error;
use libloading::{Library, Symbol};
use std::ffi::c_int;
use std::sync::OnceLock;

/// A library of CUDA: its description, the packages that install it, and the result of opening it.
struct Entry {
    name: &'static str,
    required: bool,
    kind: Kind,
    /// The packages that install it, for CUDA 12 and for CUDA 13.
    packages: [&'static str; 2],
    found: OnceLock<Result<Found, Error>>,
}

static DRIVER: Entry = Entry {
    name: "the NVIDIA driver (libcuda) with CUDA",
    required: true,
    kind: Kind {
        stems: &["cuda", "nvcuda"],
        names: &[],
        companions: &[],
        oldest: (12, 2),
        by_name: true,
        version: driver_version,
    },
    packages: ["an NVIDIA driver, version 535 or newer (Debian: nvidia-driver; in a container: nvidia-container-toolkit)";
        2],
    found: OnceLock::new(),
};

static COMPILER: Entry = Entry {
    name: "NVRTC (libnvrtc)",
    required: true,
    kind: Kind {
        stems: &["nvrtc"],
        names: &[],
        companions: &["nvrtc-builtins"],
        oldest: (12, 2),
        by_name: false,
        version: compiler_version,
    },
    packages: [
        "the package nvidia-cuda-nvrtc-cu12 with pip, or cuda-nvrtc-12-9 of the CUDA toolkit",
        "the package nvidia-cuda-nvrtc with pip (nvidia-cuda-nvrtc-cu12 for a driver of CUDA 12 or a card before \
         Turing), or cuda-nvrtc-13-0 of the CUDA toolkit",
    ],
    found: OnceLock::new(),
};

static PRODUCTS: Entry = Entry {
    name: "cuBLASLt (libcublasLt)",
    required: true,
    kind: Kind {
        stems: &["cublasLt"],
        names: &[],
        companions: &[],
        oldest: (12, 2),
        by_name: true,
        version: products_version,
    },
    packages: [
        "the package nvidia-cublas-cu12 with pip, or libcublas-12-9 of the CUDA toolkit",
        "the package nvidia-cublas with pip (nvidia-cublas-cu12 for a driver of CUDA 12), or libcublas-13-0 of the CUDA \
         toolkit",
    ],
    found: OnceLock::new(),
};

static CONVOLUTIONS: Entry = Entry {
    name: "cuDNN (libcudnn)",
    required: false,
    kind: Kind {
        stems: &["cudnn"],
        names: &[],
        companions: &[],
        oldest: (9, 0),
        by_name: true,
        version: convolutions_version,
    },
    packages: [
        "the package nvidia-cudnn-cu12 with pip, or libcudnn9-cuda-12 of NVIDIA's repository",
        "the package nvidia-cudnn-cu13 with pip (nvidia-cudnn-cu12 for a driver of CUDA 12), or libcudnn9-cuda-13 of \
         NVIDIA's repository",
    ],
    found: OnceLock::new(),
};

static EXCHANGES: Entry = Entry {
    name: "NCCL (libnccl)",
    required: false,
    kind: Kind {
        stems: &["nccl"],
        // Wheels and Debian's package have the first name only.
        names: &["libnccl.so.2", "libnccl.so"],
        companions: &[],
        oldest: exchanges::OLDEST,
        by_name: false,
        version: exchanges_version,
    },
    packages: [
        "the package nvidia-nccl-cu12 with pip, or libnccl2 of NVIDIA's repository",
        "the package nvidia-nccl-cu13 with pip (nvidia-nccl-cu12 for a driver of CUDA 12), or libnccl2 of NVIDIA's repository",
    ],
    found: OnceLock::new(),
};

/// The state of one library on this machine.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// The library's name.
    pub name: &'static str,
    /// True if nothing runs without it.
    pub required: bool,
    /// Its version and its path, or an error that says what is missing and how to install it.
    pub found: Result<(String, String), Error>,
}

/// Checks that the driver, NVRTC and cuBLASLt are installed and new enough, and initialises the driver.
///
/// # Errors
/// [`Error::Library`] with the version that was found and how to install the library; [`Error::Several`] for more than one of them;
/// [`Error::Device`] if the driver does not start.
pub fn check() -> Result<(), Error> {
    let required = [&DRIVER, &COMPILER, &PRODUCTS];
    let mut missing: Vec<Error> = required.iter().filter_map(|entry| entry.open().err()).collect();
    match missing.len() {
        0 => start(),
        1 => Err(missing.remove(0)),
        _ => Err(Error::Several(missing)),
    }
}

/// Returns the state of all libraries, including optional ones.
pub fn libraries() -> Vec<Status> {
    let all = [&DRIVER, &COMPILER, &PRODUCTS, &CONVOLUTIONS, &EXCHANGES];
    let status = |entry: &&'static Entry| {
        let found = entry.open().map(|found| (text(found.version.number), found.place.clone()));
        Status { name: entry.name, required: entry.required, found }
    };
    all.iter().map(status).collect()
}

/// Returns the version of NVRTC; `None` if it is missing.
pub fn compiler() -> Option<(i32, i32)> {
    COMPILER.open().ok().map(|found| found.version.number)
}

/// Returns the version of cuDNN; `None` if it is missing, in which case [`libraries`] says why.
pub fn cudnn() -> Option<(i32, i32)> {
    CONVOLUTIONS.open().ok().map(|found| found.version.number)
}

/// Versions of the libraries, major and minor; `None` for a missing one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Versions {
    /// The newest version of CUDA that the driver runs.
    pub cuda: Option<(i32, i32)>,
    /// NVRTC.
    pub compiler: Option<(i32, i32)>,
    /// cuBLASLt.
    pub products: Option<(i32, i32)>,
    /// cuDNN.
    pub convolutions: Option<(i32, i32)>,
}

impl Versions {
    /// Returns the versions that this process uses.
    pub fn found() -> Versions {
        let version = |entry: &'static Entry| entry.open().ok().map(|found| found.version.number);
        Versions {
            cuda: version(&DRIVER),
            compiler: version(&COMPILER),
            products: version(&PRODUCTS),
            convolutions: version(&CONVOLUTIONS),
        }
    }
}

/// Opens the driver's library.
pub(crate) fn open_driver() -> Result<&'static Library, Error> {
    DRIVER.open().map(|found| &found.library)
}

/// Opens NVRTC, and returns it with its version.
pub(crate) fn open_compiler() -> Result<(&'static Library, (i32, i32)), Error> {
    COMPILER.open().map(|found| (&found.library, found.version.number))
}

/// Opens NCCL, and returns it with its version.
pub(crate) fn open_exchanges() -> Result<(&'static Library, (i32, i32)), Error> {
    EXCHANGES.open().map(|found| (&found.library, found.version.number))
}

/// Returns the error that NCCL lacks a function that its version should have.
pub(crate) fn damaged_exchanges(what: &str) -> Error {
    EXCHANGES.error(Some(format!("one that {what}")))
}

/// Returns the error that NVRTC lacks a function that its version should have.
pub(crate) fn damaged_compiler(what: &str) -> Error {
    COMPILER.error(Some(format!("one that {what}")))
}

/// Returns the value of `CUDA_VISIBLE_DEVICES`, for messages about missing cards.
pub(crate) fn visible_devices() -> Option<String> {
    std::env::var_os("CUDA_VISIBLE_DEVICES").map(|value| value.to_string_lossy().into_owned())
}

impl Entry {
    fn open(&'static self) -> Result<&'static Found, Error> {
        let places = || if self.is_driver() { Places::default() } else { Places::of_this_machine() };
        let opened =
            self.found.get_or_init(|| find(&self.kind, self.driver(), &places()).map_err(|found| self.error(found)));
        opened.as_ref().map_err(Clone::clone)
    }

    fn is_driver(&self) -> bool {
        std::ptr::eq(self, &raw const DRIVER)
    }

    /// Returns the major version of CUDA that the driver runs; `None` without a driver.
    fn driver(&self) -> Option<i32> {
        if self.is_driver() { None } else { DRIVER.open().ok().map(|found| found.version.number.0) }
    }

    fn error(&self, found: Option<String>) -> Error {
        let (wanted, package) = self.needs(self.driver());
        Error::Library { name: self.name, found, wanted, package }
    }

    /// Returns the wanted version and the package that installs it, for a driver of this major version of CUDA.
    fn needs(&self, driver: Option<i32>) -> (String, String) {
        let oldest = text(self.kind.oldest);
        let is_12 = driver.is_some_and(|driver| driver <= 12);
        let wanted = if is_12 {
            format!("{oldest} or newer, for CUDA 12 as the driver is,")
        } else {
            format!("{oldest} or newer")
        };
        let package = self.packages[usize::from(!is_12)];
        let place = "GPUMEM_CUDA names its folder if it is in an unusual place";
        (wanted, if self.is_driver() { package.into() } else { format!("{package}; {place}") })
    }
}

fn text((major, minor): (i32, i32)) -> String {
    format!("{major}.{minor}")
}

/// Initialises the driver.
fn start() -> Result<(), Error> {
    result::init().map_err(|error| Error::failed_because("CUDA", no_start(error, visible_devices()), error))
}

fn no_start(error: DriverError, visible: Option<String>) -> String {
    match visible {
        Some(visible) if error.0 == CUresult::CUDA_ERROR_NO_DEVICE => {
            format!("there is no card among CUDA_VISIBLE_DEVICES, which is `{visible}`; unset it, or name a card in it")
        }
        _ => format!("the driver does not start ({error}); does `nvidia-smi` list a card?"),
    }
}

/// Returns a function of a library, or a text that says the library lacks it.
pub(crate) fn function<'a, T>(library: &'a Library, name: &str) -> Result<Symbol<'a, T>, String> {
    // SAFETY: callers ask for functions of NVIDIA's headers, with the types that are declared there.
    unsafe { library.get::<T>(name) }.map_err(|_| format!("has no function {name}"))
}

fn driver_version(library: &Library) -> Result<Version, String> {
    function::<unsafe extern "C" fn(u32) -> c_int>(library, "cuInit")?;
    function::<unsafe extern "C" fn(c_int, *mut *const i8) -> c_int>(library, "cuGetErrorString")?;
    let get = function::<unsafe extern "C" fn(*mut c_int) -> c_int>(library, "cuDriverGetVersion")?;
    let mut version = 0;
    // SAFETY: `version` is a valid place for the one integer that is written.
    match unsafe { get(&mut version) } {
        0 => Ok(Version { number: (version / 1000, version % 1000 / 10), cuda: 0 }),
        code => Err(format!("does not tell its version (error {code})")),
    }
}

fn compiler_version(library: &Library) -> Result<Version, String> {
    let get = function::<unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int>(library, "nvrtcVersion")?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both are valid places for the integers that are written.
    match unsafe { get(&mut major, &mut minor) } {
        0 => Ok(Version { number: (major, minor), cuda: major }),
        code => Err(format!("does not tell its version (error {code})")),
    }
}

fn products_version(library: &Library) -> Result<Version, String> {
    let get = function::<unsafe extern "C" fn() -> usize>(library, "cublasLtGetVersion")?;
    // SAFETY: it has no arguments and needs no handle.
    let number = products_number(unsafe { get() });
    Ok(Version { number, cuda: number.0 })
}

/// Converts cuBLASLt's version, which is that of its CUDA: 120904 is 12.9.4.
fn products_number(version: usize) -> (i32, i32) {
    (integer(version / 10_000), integer(version % 10_000 / 100))
}

fn convolutions_version(library: &Library) -> Result<Version, String> {
    let get = function::<unsafe extern "C" fn() -> usize>(library, "cudnnGetVersion")?;
    let built_for = function::<unsafe extern "C" fn() -> usize>(library, "cudnnGetCudartVersion")?;
    for name in FUNCTIONS {
        // It is only looked up, never called with this type.
        function::<unsafe extern "C" fn()>(library, name)?;
    }
    // SAFETY: neither has arguments or needs a handle.
    let (version, cuda) = unsafe { (get(), built_for()) };
    Ok(Version { number: decimal_number(version), cuda: integer(cuda / 1000) })
}

fn exchanges_version(library: &Library) -> Result<Version, String> {
    let get = function::<unsafe extern "C" fn(*mut c_int) -> c_int>(library, "ncclGetVersion")?;
    let mut version = 0;
    // SAFETY: `version` is a place for the one integer that is written.
    let code = unsafe { get(&mut version) };
    if code != 0 {
        return Err(format!("does not tell its version (error {code})"));
    }
    // The library does not tell for which CUDA it was built.
    let version = Version { number: decimal_number(usize::try_from(version).unwrap_or(0)), cuda: 0 };
    // An older one is refused for its version, which says more than the function that it lacks.
    for name in exchanges::FUNCTIONS.iter().filter(|_| version.number >= exchanges::OLDEST) {
        // It is only looked up, never called with this type.
        function::<unsafe extern "C" fn()>(library, name)?;
    }
    Ok(version)
}

/// Converts the version of cuDNN or NCCL: 8907 is 8.9.7. Later ones have one more digit: 91002 is 9.10.2, and 23203 is 2.32.3.
fn decimal_number(version: usize) -> (i32, i32) {
    match version {
        0..10_000 => (integer(version / 1000), integer(version % 1000 / 100)),
        _ => (integer(version / 10_000), integer(version % 10_000 / 100)),
    }
}

fn integer(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_cuda_gets_an_error_that_says_what_to_install() {
        // On a machine with a driver and all libraries there is no error.
        if let Err(error) = check() {
            let text = error.to_string();
            assert!(text.contains("install") || text.contains("nvidia-smi") || text.contains("CUDA_VISIBLE"), "{text}");
        }
        assert_eq!(libraries().iter().filter(|status| !status.required).count(), 2);
    }

    #[test]
    fn versions_are_read_as_nvidia_writes_them() {
        assert_eq!(products_number(120_904), (12, 9));
        assert_eq!(products_number(130_002), (13, 0));
        assert_eq!(decimal_number(8907), (8, 9));
        assert_eq!(decimal_number(91_002), (9, 10));
        assert_eq!(decimal_number(90_100), (9, 1));
    }

    #[test]
    fn what_to_install_depends_on_the_driver() {
        let (wanted, package) = PRODUCTS.needs(Some(12));
        assert_eq!(wanted, "12.2 or newer, for CUDA 12 as the driver is,");
        assert!(package.contains("nvidia-cublas-cu12") && package.contains("GPUMEM_CUDA"), "{package}");
        let (wanted, package) = PRODUCTS.needs(Some(13));
        assert_eq!(wanted, "12.2 or newer");
        assert!(package.starts_with("the package nvidia-cublas with pip"), "{package}");
        assert_eq!(DRIVER.needs(None).1, DRIVER.packages[0]);
        let (wanted, package) = EXCHANGES.needs(Some(12));
        assert_eq!(wanted, "2.22 or newer, for CUDA 12 as the driver is,");
        assert!(package.contains("nvidia-nccl-cu12 with pip"), "{package}");
        assert!(EXCHANGES.needs(Some(13)).1.contains("nvidia-nccl-cu13 with pip"));
    }

    #[test]
    fn a_driver_that_sees_no_card_says_why() {
        let none = DriverError(CUresult::CUDA_ERROR_NO_DEVICE);
        let text = no_start(none, Some("".into()));
        assert!(text.contains("CUDA_VISIBLE_DEVICES, which is ``; unset it"), "{text}");
    }
}

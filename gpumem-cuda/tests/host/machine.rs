//! Kernels compiled as C++ and launched.

use gpumem_cuda::{Kernel, Launch, SOURCES};
use libloading::{Library, Symbol};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::fmt::Write;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The fibers of `simt.h` are global: one launch at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

type Entry = unsafe extern "C" fn(grid: *const u32, block: *const u32, order: i32, arguments: *mut *mut c_void);

/// Kernels compiled for the host.
pub struct Machine {
    library: Library,
    numbers: BTreeMap<Kernel, usize>,
}

fn folder() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("kernels");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The kernels of a program as one C++ file: each in a namespace of its own, with its constants.
fn source(kernels: &[Kernel]) -> String {
    let mut text =
        String::from("#define SIMT_MAIN\n#define SIMT_SECTION \"simt\"\n#include \"simt.h\"\n#include \"base.cuh\"\n");
    for (number, kernel) in kernels.iter().enumerate() {
        writeln!(text, "#undef SIMT_SECTION\n#define SIMT_SECTION \"simt{number}\"").unwrap();
        for (name, value) in &kernel.constants {
            writeln!(text, "#undef {name}\n#define {name} {value}").unwrap();
        }
        writeln!(text, "namespace kernel{number} {{\n#include \"{}\"\n}}", kernel.file).unwrap();
        writeln!(
            text,
            "extern \"C\" char __start_simt{number}[] __attribute__((weak)), __stop_simt{number}[] __attribute__((weak));\n\
             static void call{number}(void *arguments) {{ simt::call(kernel{number}::{entry}, (void **)arguments); }}\n\
             extern \"C\" int arity{number}() {{ return simt::arity(kernel{number}::{entry}); }}\n\
             extern \"C\" void launch{number}(const unsigned *g, const unsigned *b, int order, void **arguments) {{\n\
             simt::body = call{number}; simt::body_arguments = arguments;\n\
             simt::launch({{g[0], g[1], g[2]}}, {{b[0], b[1], b[2]}}, order, __start_simt{number}, __stop_simt{number});\n}}",
            entry = kernel.entry
        )
        .unwrap();
        for (name, _) in &kernel.constants {
            writeln!(text, "#undef {name}").unwrap();
        }
    }
    text
}

/// A kernel as a line: file, entry point, constants.
pub(super) fn note(kernel: &Kernel) -> String {
    let constants: String = kernel.constants.iter().map(|(name, value)| format!(" {name}={value}")).collect();
    format!("{} {}{constants}", kernel.file, kernel.entry)
}

/// Compiles `text`, or takes what an earlier run compiled from the same text and headers.
fn compile(text: &str, sources: &[(&str, String)]) -> PathBuf {
    let flags = std::env::var("GPUMEM_HOST_FLAGS").unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    (text, sources, &flags, include_str!("simt.h")).hash(&mut hasher);
    let name = format!("kernels-{:016x}", hasher.finish());
    let library = folder().join(format!("{name}.so"));
    if library.exists() {
        return library;
    }
    // Other threads and processes may compile the same at the same time, each in a folder of its own.
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let work = folder().join(format!("{name}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    std::fs::create_dir_all(&work).unwrap();
    for (file, text) in sources {
        std::fs::write(work.join(file), text).unwrap();
    }
    std::fs::write(work.join("simt.h"), include_str!("simt.h")).unwrap();
    std::fs::write(work.join("all.cpp"), text).unwrap();
    let made = work.join("made.so");
    let output = Command::new(std::env::var("CXX").unwrap_or("c++".into()))
        .args(["-std=c++17", "-O1", "-g1", "-fPIC", "-shared", "-w", "-ffp-contract=off"])
        .args(flags.split_whitespace())
        .args(["-o", made.to_str().unwrap(), work.join("all.cpp").to_str().unwrap()])
        .output()
        .expect("the tests of the kernels need a C++ compiler, `c++` or what CXX names");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Renamed when it is whole: the others may look for it.
    std::fs::rename(&made, &library).unwrap();
    library
}

impl Machine {
    /// Compiles kernels from [`SOURCES`], and notes them down for the test that compiles them for cards.
    pub fn new(kernels: impl IntoIterator<Item = Kernel>) -> Machine {
        let kernels: BTreeSet<Kernel> = kernels.into_iter().collect();
        let lines: String = kernels.iter().map(|kernel| format!("{}\n", note(kernel))).collect();
        let mut hasher = DefaultHasher::new();
        lines.hash(&mut hasher);
        let folder = folder().join("instances");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("{:016x}", hasher.finish())), lines).unwrap();
        Machine::with_sources(kernels, |_, text| text.to_string())
    }

    /// Compiles kernels from sources that were changed on purpose.
    pub fn with_sources(kernels: impl IntoIterator<Item = Kernel>, change: impl Fn(&str, &str) -> String) -> Machine {
        let kernels: Vec<Kernel> = kernels.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
        let sources: Vec<(&str, String)> = SOURCES.iter().map(|(file, text)| (*file, change(file, text))).collect();
        let path: PathBuf = compile(&source(&kernels), &sources);
        // SAFETY: the library was made above from kernels and a header without initialisers that do anything.
        let library = unsafe { Library::new(Path::new(&path)) }.unwrap();
        Machine { library, numbers: kernels.into_iter().enumerate().map(|(number, kernel)| (kernel, number)).collect() }
    }

    /// The function that launches a kernel, and the number of its parameters.
    pub fn entry(&self, kernel: &Kernel) -> (*mut c_void, i32) {
        let number = self.numbers[kernel];
        // SAFETY: `source` gives every kernel functions of these types under these names.
        unsafe {
            let launch: Symbol<Entry> = self.library.get(format!("launch{number}").as_bytes()).unwrap();
            let arity: Symbol<extern "C" fn() -> i32> = self.library.get(format!("arity{number}").as_bytes()).unwrap();
            (*launch as *mut c_void, arity())
        }
    }

    /// Runs one launch on these tensors, with one of three orders of warps.
    pub fn launch(&self, launch: &Launch, order: i32, mut arguments: Vec<*mut c_void>) {
        let number = self.numbers[&launch.kernel];
        let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // SAFETY: `source` gives every kernel a function of this type under this name; the addresses are of tensors in a live
        // arena, which the launch touches within their lengths, or the tests find out.
        unsafe {
            let entry: Symbol<Entry> = self.library.get(format!("launch{number}").as_bytes()).unwrap();
            entry(launch.grid.as_ptr(), launch.block.as_ptr(), order, arguments.as_mut_ptr());
        }
    }
}

//! Kernels compiled as C++ and launched.
//!
//! A kernel is compiled once: the [`cache`] finds it again, whichever test or run compiled it.

use super::cache::{self, Compiled};
use gpumem_cuda::{Kernel, Launch, SOURCES};
use libloading::Symbol;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::sync::Mutex;

type Entry = unsafe extern "C" fn(grid: *const u32, block: *const u32, order: i32, arguments: *mut *mut c_void);

/// Kernels compiled for the host.
pub struct Machine {
    kernels: BTreeMap<Kernel, Compiled>,
}

/// A kernel as a line: file, entry point, constants.
pub(super) fn note(kernel: &Kernel) -> String {
    let constants: String = kernel.constants.iter().map(|(name, value)| format!(" {name}={value}")).collect();
    format!("{} {}{constants}", kernel.file, kernel.entry)
}

/// Threads that a block of a kernel may have, as its `__launch_bounds__` say, or without such: more might have too few registers. None where
/// they are constants of the kernel.
fn most_threads(kernel: &Kernel) -> Option<u32> {
    /// Of 255 registers at most.
    const ANY: u32 = 256;
    static FOUND: Mutex<BTreeMap<(&str, &str), Option<u32>>> = Mutex::new(BTreeMap::new());
    let mut found = FOUND.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    *found.entry((kernel.file, kernel.entry)).or_insert_with(|| {
        let text = SOURCES.iter().find(|(file, _)| *file == kernel.file).map_or("", |(_, text)| text);
        let included = text.lines().filter_map(|line| line.strip_prefix("#include \"")?.strip_suffix('"'));
        let texts = included.filter_map(|file| SOURCES.iter().find(|(known, _)| *known == file)).map(|(_, text)| *text);
        let end = format!(") {})", kernel.entry);
        let lines = [text].into_iter().chain(texts).flat_map(str::lines);
        let bounds = lines.filter_map(|line| line.strip_prefix("KERNEL(__launch_bounds__(")?.split_once(&end));
        let most: Vec<Option<u32>> = bounds.map(|(bounds, _)| bounds.split(',').next()?.parse().ok()).collect();
        // With several of this name, each is for other constants.
        if most.is_empty() { Some(ANY) } else { most.into_iter().min().unwrap() }
    })
}

impl Machine {
    /// Compiles kernels from [`SOURCES`], and notes them down for the test that compiles them for cards.
    pub fn new(kernels: impl IntoIterator<Item = Kernel>) -> Machine {
        let kernels: BTreeSet<Kernel> = kernels.into_iter().collect();
        let lines: String = kernels.iter().map(|kernel| format!("{}\n", note(kernel))).collect();
        cache::note_down(&lines);
        Machine { kernels: cache::compiled(kernels, &cache::UNCHANGED) }
    }

    /// Compiles kernels from sources that were changed on purpose.
    pub fn with_sources(kernels: impl IntoIterator<Item = Kernel>, change: impl Fn(&str, &str) -> String) -> Machine {
        let sources = SOURCES.iter().map(|(file, text)| (*file, change(file, text))).collect();
        Machine { kernels: cache::compiled(kernels.into_iter().collect(), &sources) }
    }

    /// Returns true if a kernel is among those that were compiled.
    pub fn has(&self, kernel: &Kernel) -> bool {
        self.kernels.contains_key(kernel)
    }

    /// The function that launches a kernel, the number of its parameters, and the bytes of the last one if it is plain numbers.
    pub fn entry(&self, kernel: &Kernel) -> (*mut c_void, i32, i32) {
        let Compiled { library, number } = &self.kernels[kernel];
        // SAFETY: `cache::source` gives every kernel functions of these types under these names.
        unsafe {
            let launch: Symbol<Entry> = library.code.get(format!("launch{number}").as_bytes()).unwrap();
            let arity: Symbol<extern "C" fn() -> i32> = library.code.get(format!("arity{number}").as_bytes()).unwrap();
            let plain: Symbol<extern "C" fn() -> i32> = library.code.get(format!("plain{number}").as_bytes()).unwrap();
            (*launch as *mut c_void, arity(), plain())
        }
    }

    /// Runs one launch on these tensors, behind which its numbers come, with one of three orders of warps.
    pub fn launch(&self, launch: &Launch, order: i32, mut arguments: Vec<*mut c_void>) {
        let Compiled { library, number } = &self.kernels[&launch.kernel];
        let threads = launch.block.iter().product::<u32>();
        let most = most_threads(&launch.kernel);
        assert!(most.is_none_or(|most| threads <= most), "{threads} threads of {}", note(&launch.kernel));
        let (_, parameters, plain) = self.entry(&launch.kernel);
        let numbers = usize::from(!launch.numbers.is_empty());
        let given = (arguments.len() + numbers, 4 * launch.numbers.len());
        assert_eq!(given, (parameters as usize, plain as usize), "parameters of {}", note(&launch.kernel));
        assert!(8 * arguments.len() + given.1 <= 4096, "{} has too many bytes of parameters", note(&launch.kernel));
        let mut words = launch.numbers.clone();
        if numbers > 0 {
            arguments.push(words.as_mut_ptr().cast());
        }
        let _guard = library.runs.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // SAFETY: `cache::source` gives every kernel a function of this type under this name; the addresses are of tensors in
        // a live arena, which the launch touches within their lengths, or the tests find out.
        unsafe {
            let entry: Symbol<Entry> = library.code.get(format!("launch{number}").as_bytes()).unwrap();
            entry(launch.grid.as_ptr(), launch.block.as_ptr(), order, arguments.as_mut_ptr());
        }
    }
}

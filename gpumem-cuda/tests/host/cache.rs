//! Compiled kernels, each found by what it is made of: its constants, its source with all that is included, the compiler and its
//! flags. Tests share them, so do processes that run at the same time, and so do runs.

use super::machine::note;
use gpumem_cuda::{Kernel, SOURCES};
use libloading::Library;
use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::hash_map::DefaultHasher;
use std::fmt::Write;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard};

/// Texts by file name.
pub type Sources = BTreeMap<&'static str, String>;

/// A library that was opened.
pub struct Opened {
    pub code: Library,
    /// The threads of `simt.cpp` are the library's: one launch at a time.
    pub runs: Mutex<()>,
}

/// A kernel in a library.
#[derive(Clone, Copy)]
pub struct Compiled {
    pub library: &'static Opened,
    /// The number that its functions end with.
    pub number: usize,
}

/// What this process knows of kernels, by their keys: none for one that a thread is compiling.
static KNOWN: Mutex<BTreeMap<u64, Option<Compiled>>> = Mutex::new(BTreeMap::new());
/// Told when a thread has compiled, or has failed to.
static COMPILED: Condvar = Condvar::new();

fn known() -> MutexGuard<'static, BTreeMap<u64, Option<Compiled>>> {
    KNOWN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn hash(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

fn folder() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("kernels");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// A name that no other thread or process takes.
fn own_name(name: &str) -> PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    folder().join(format!("{name}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)))
}

/// A file that is there as a whole or not at all: others may look for it.
fn write(path: &Path, text: &str) {
    let own = own_name("unfinished");
    std::fs::write(&own, text).unwrap();
    std::fs::rename(own, path).unwrap();
}

/// Keeps lines for the test that compiles kernels for cards.
pub fn note_down(lines: &str) {
    let path = folder().join("instances").join(format!("{:016x}", hash(lines)));
    if !path.exists() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        write(&path, lines);
    }
}

/// The compiler with its flags.
struct Compiler {
    program: String,
    flags: Vec<String>,
    /// Of its version and flags, and of what all kernels share.
    key: u64,
}

static COMPILER: LazyLock<Compiler> = LazyLock::new(|| {
    let program = std::env::var("CXX").unwrap_or("c++".into());
    // A kernel runs a few times only: to optimise it more takes longer than it saves.
    let mut flags: Vec<String> =
        ["-std=c++17", "-Og", "-pipe", "-fPIC", "-fvisibility-inlines-hidden", "-w", "-ffp-contract=off"]
            .map(String::from)
            .into_iter()
            .collect();
    flags.extend(std::env::var("GPUMEM_HOST_FLAGS").unwrap_or_default().split_whitespace().map(String::from));
    let version = Command::new(&program).arg("--version").output();
    let version = version.expect("the tests of the kernels need a C++ compiler, `c++` or what CXX names").stdout;
    let key = hash((&program, &flags, version, SHIM, RUNNER, WARPGROUPS, include_str!("cache.rs")));
    Compiler { program, flags, key }
});

const SHIM: &str = include_str!("simt.h");
const RUNNER: &str = include_str!("simt.cpp");
/// A file that the runner includes.
const WARPGROUPS: &str = include_str!("warpgroups.h");
/// How the runner is compiled, which takes part in every launch.
const RUNNER_FLAGS: [&str; 2] = ["-O2", "-c"];
/// What every program begins with: compiled once, as a precompiled header. Short, because it is read again for each library.
const HEAD: &str = "#define SIMT_SECTION \"simt\"\n#include \"simt.h\"\n#include \"base.cuh\"\n";

impl Compiler {
    fn run(&self, arguments: &[&str]) {
        // The sanitizers' libraries, loaded first, are for the kernels and not for the compiler, which they would slow down.
        let mut command = Command::new(&self.program);
        let output = command.args(&self.flags).args(arguments).env_remove("LD_PRELOAD").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// The object file with what runs the threads of kernels.
    fn runner(&self) -> PathBuf {
        static MAKING: Mutex<()> = Mutex::new(());
        let _guard = MAKING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let complete = folder().join(format!("simt-{:016x}.o", self.key));
        if !complete.exists() {
            let own = own_name("simt");
            std::fs::create_dir_all(&own).unwrap();
            let (program, object) = (own.join("simt.cpp"), own.join("simt.o"));
            std::fs::write(&program, RUNNER).unwrap();
            std::fs::write(own.join("simt.h"), SHIM).unwrap();
            std::fs::write(own.join("warpgroups.h"), WARPGROUPS).unwrap();
            self.run(&[&RUNNER_FLAGS[..], &["-o", path(&object), path(&program)]].concat());
            std::fs::rename(&object, &complete).unwrap();
            std::fs::remove_dir_all(&own).unwrap();
        }
        complete
    }

    /// A folder with these sources, and with the precompiled header.
    fn sources(&self, sources: &Sources) -> PathBuf {
        static MAKING: Mutex<()> = Mutex::new(());
        let _guard = MAKING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let complete = folder().join(format!("sources-{:016x}", hash((self.key, sources))));
        if complete.exists() {
            return complete;
        }
        let own = own_name("sources");
        std::fs::create_dir_all(&own).unwrap();
        let all = sources.iter().map(|(file, text)| (*file, text.as_str()));
        for (file, text) in all.chain([("simt.h", SHIM), ("head.h", HEAD)]) {
            std::fs::write(own.join(file), text).unwrap();
        }
        // Another process may have been faster.
        if std::fs::rename(&own, &complete).is_err() {
            std::fs::remove_dir_all(&own).unwrap();
        }
        // Sources that were changed on purpose are not used often enough to be worth it.
        if sources.iter().any(|source| SOURCES.iter().all(|(file, text)| (*file, *text) != (*source.0, source.1))) {
            return complete;
        }
        // Compilers that know no such file, or take it for another's, read the header itself.
        let (header, made) = (complete.join("head.h"), own.with_extension("gch"));
        self.run(&["-x", "c++-header", path(&header), "-o", path(&made)]);
        std::fs::rename(&made, complete.join("head.h.gch")).unwrap();
        complete
    }
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A source with the text of everything that it includes.
fn with_includes<'a>(file: &'a str, sources: &'a Sources, found: &mut BTreeMap<&'a str, &'a str>) {
    let Some(text) = sources.get(file) else { return };
    if found.insert(file, text).is_none() {
        let includes = text.lines().filter_map(|line| line.trim().strip_prefix("#include \"")?.split('"').next());
        includes.for_each(|file| with_includes(file, sources, found));
    }
}

/// The sources as they are.
pub static UNCHANGED: LazyLock<Sources> =
    LazyLock::new(|| SOURCES.iter().map(|(file, text)| (*file, text.to_string())).collect());

/// What a file is made of.
fn made_of(file: &str, sources: &Sources) -> u64 {
    let mut texts = BTreeMap::new();
    with_includes("base.cuh", sources, &mut texts);
    with_includes(file, sources, &mut texts);
    hash(texts)
}

/// What a kernel is made of.
fn key(kernel: &Kernel, sources: &Sources) -> u64 {
    static KNOWN: Mutex<BTreeMap<&str, u64>> = Mutex::new(BTreeMap::new());
    let file = if kernel.text.is_some() { "operation.cuh" } else { kernel.file };
    let texts = if std::ptr::eq(sources, &*UNCHANGED) {
        let mut known = KNOWN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *known.entry(file).or_insert_with(|| made_of(file, sources))
    } else {
        made_of(file, sources)
    };
    hash((COMPILER.key, note(kernel), &kernel.text, texts))
}

/// Kernels as one C++ file: each in a namespace of its own, with its constants.
fn source(kernels: &[&Kernel]) -> String {
    let mut text = String::from("#include \"head.h\"\n");
    for (number, kernel) in kernels.iter().enumerate() {
        writeln!(text, "#undef SIMT_SECTION\n#define SIMT_SECTION \"simt{number}\"").unwrap();
        for (name, value) in &kernel.constants {
            writeln!(text, "#undef {name}\n#define {name} {value}").unwrap();
        }
        let included = || format!("#include \"{}\"", kernel.file);
        let body = kernel.text.as_deref().map_or_else(included, str::to_string);
        writeln!(text, "namespace kernel{number} {{\n{body}\n}}").unwrap();
        writeln!(
            text,
            "extern \"C\" char __start_simt{number}[] __attribute__((weak)), __stop_simt{number}[] __attribute__((weak));\n\
             static void call{number}(void **arguments) {{ simt::call(kernel{number}::{entry}, arguments); }}\n\
             extern \"C\" int arity{number}() {{ return simt::arity(kernel{number}::{entry}); }}\n\
             extern \"C\" int plain{number}() {{ return simt::plain(kernel{number}::{entry}); }}\n\
             extern \"C\" void launch{number}(const unsigned *g, const unsigned *b, int order, void **arguments) {{\n\
             simt::launch(g, b, order, call{number}, arguments, __start_simt{number}, __stop_simt{number});\n}}",
            entry = kernel.entry
        )
        .unwrap();
        for (name, _) in &kernel.constants {
            writeln!(text, "#undef {name}").unwrap();
        }
    }
    text
}

/// The library of this name, opened once and for good.
fn open(name: &str) -> &'static Opened {
    static OPEN: Mutex<BTreeMap<String, &'static Opened>> = Mutex::new(BTreeMap::new());
    let mut open = OPEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    open.entry(name.to_string()).or_insert_with(|| {
        // SAFETY: the library was made by `compile` from kernels and a header without initialisers that do anything.
        let code = unsafe { Library::new(folder().join(name)) }.unwrap();
        Box::leak(Box::new(Opened { code, runs: Mutex::new(()) }))
    })
}

/// Where a kernel is kept: a file with the name of a library, and the kernel's number there.
fn record(key: u64) -> PathBuf {
    folder().join(format!("{key:016x}"))
}

/// A kernel that an earlier run or another process has compiled.
fn find(key: u64) -> Option<Compiled> {
    let text = std::fs::read_to_string(record(key)).ok()?;
    let (name, number) = text.split_once(' ')?;
    let number = number.parse().ok()?;
    folder().join(name).exists().then(|| Compiled { library: open(name), number })
}

/// Compiles kernels, by their keys, into one library.
fn compile(kernels: &BTreeMap<u64, &Kernel>, sources: &Sources) -> Vec<(u64, Compiled)> {
    let keys: Vec<u64> = kernels.keys().copied().collect();
    let name = format!("kernels-{:016x}.so", hash(&keys));
    let (own, headers, runner) = (own_name(&name), COMPILER.sources(sources), COMPILER.runner());
    let program = own.with_extension("cpp");
    std::fs::write(&program, source(&kernels.values().copied().collect::<Vec<_>>())).unwrap();
    // Without the C++ library: nothing here needs it, and to look through it takes longer than to link all else.
    let libraries = ["-nodefaultlibs", "-lm", "-lgcc", "-lc"];
    let files = [path(&program), path(&runner)];
    COMPILER.run(&[&["-shared", "-I", path(&headers), "-o", path(&own)], &files[..], &libraries[..]].concat());
    std::fs::rename(&own, folder().join(&name)).unwrap();
    let place = |(number, &key): (usize, &u64)| {
        write(&record(key), &format!("{name} {number}"));
        (key, Compiled { library: open(&name), number })
    };
    keys.iter().enumerate().map(place).collect()
}

/// What a thread is about to compile. Another may try when it has failed.
struct Claim<'a>(BTreeMap<u64, &'a Kernel>);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        known().retain(|key, compiled| compiled.is_some() || !self.0.contains_key(key));
        COMPILED.notify_all();
    }
}

/// Kernels from these sources: found, or compiled.
pub fn compiled(kernels: BTreeSet<Kernel>, sources: &Sources) -> BTreeMap<Kernel, Compiled> {
    let keys: BTreeMap<u64, &Kernel> = kernels.iter().map(|kernel| (key(kernel, sources), kernel)).collect();
    loop {
        let mut all = known();
        let mut missing = BTreeMap::new();
        for (&key, &kernel) in &keys {
            if let Entry::Vacant(place) = all.entry(key)
                && place.insert(find(key)).is_none()
            {
                missing.insert(key, kernel);
            }
        }
        if !missing.is_empty() {
            drop(all);
            let claim = Claim(missing);
            let made = compile(&claim.0, sources);
            known().extend(made.into_iter().map(|(key, compiled)| (key, Some(compiled))));
            continue;
        }
        let ready: Option<Vec<Compiled>> = keys.keys().map(|key| all[key]).collect();
        if let Some(ready) = ready {
            return keys.values().map(|&kernel| kernel.clone()).zip(ready).collect();
        }
        // Another thread is compiling some of them.
        drop(COMPILED.wait(all).unwrap_or_else(|poisoned| poisoned.into_inner()));
    }
}

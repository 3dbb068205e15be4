//! The card that the host plays: `../stand_ins/card.cpp` as the driver's library, for a second process.

use super::Machine;
use super::machine::note;
use gpumem_cuda::Kernel;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::collections::hash_map::DefaultHasher;
use std::ffi::{CString, c_char, c_int, c_void};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// Whether this process has been started with the card that the host plays.
const SIMULATED: &str = "GPUMEM_SIMULATED";

/// A folder with the libraries, with or without cuDNN, made once from the same source.
fn libraries(cudnn: bool) -> PathBuf {
    static MADE: Mutex<()> = Mutex::new(());
    let _guard = MADE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut hasher = DefaultHasher::new();
    (include_str!("../stand_ins/card.cpp"), include_str!("../stand_ins/products.cpp")).hash(&mut hasher);
    (include_str!("../stand_ins/convolutions.cpp"), include_str!("../stand_ins/graphs.h")).hash(&mut hasher);
    (
        include_str!("../stand_ins/elements.h"),
        include_str!("../stand_ins/attention.h"),
        cudnn,
        include_str!("../stand_ins/recurrences.h"),
        include_str!("../stand_ins/nccl.cpp"),
    )
        .hash(&mut hasher);
    let complete = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("card-{:016x}", hasher.finish()));
    if complete.exists() {
        return complete;
    }
    let folder = complete.with_extension(std::process::id().to_string());
    std::fs::create_dir_all(&folder).unwrap();
    let all = [
        ("libcuda.so.1", "DRIVER", "card.cpp"),
        ("libnvrtc.so.13", "COMPILER", "card.cpp"),
        ("libcublasLt.so.13", "PRODUCTS", "products.cpp"),
        ("libcudnn.so.9", "CONVOLUTIONS", "convolutions.cpp"),
        ("libnccl.so.2", "EXCHANGES", "nccl.cpp"),
    ];
    for (name, part, file) in all.into_iter().filter(|(_, part, _)| cudnn || *part != "CONVOLUTIONS") {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stand_ins").join(file);
        let made = Command::new(std::env::var("CXX").unwrap_or("c++".into()))
            .args(["-std=c++17", "-O1", "-shared", "-fPIC", "-Wall", "-Werror"])
            .arg(format!("-D{part}"))
            .args([source.as_os_str(), "-o".as_ref(), folder.join(name).as_os_str()])
            .arg(format!("-Wl,-soname,{name}"))
            .status();
        assert!(made.expect("a C++ compiler, `c++` or what CXX names").success());
    }
    // Renamed when it is whole. Another process may have been faster.
    let _ = std::fs::rename(&folder, &complete);
    complete
}

/// Runs test `name` of this binary again in a process that sees the card, once for each order in which a card may do what is
/// enqueued. In that process it returns true: the test goes on.
pub fn on_a_simulated_card(name: &str, variables: &[(&str, &str)]) -> bool {
    on_a_card(name, variables, false)
}

/// The same with cuDNN among the libraries.
pub fn on_a_simulated_card_with_cudnn(name: &str, variables: &[(&str, &str)]) -> bool {
    on_a_card(name, variables, true)
}

/// Does what [`on_a_simulated_card`] does, with the processes of all orders at once: for tests that wait most of their time.
pub fn on_simulated_cards_at_once(name: &str, variables: &[(&str, &str)]) -> bool {
    if std::env::var_os(SIMULATED).is_some() {
        return true;
    }
    let folder = libraries(false);
    std::thread::scope(|scope| {
        let folder = &folder;
        let run = |order| scope.spawn(move || in_order(order, name, variables, folder));
        ORDERS.map(run).into_iter().for_each(|process| process.join().unwrap());
    });
    false
}

fn on_a_card(name: &str, variables: &[(&str, &str)], cudnn: bool) -> bool {
    if std::env::var_os(SIMULATED).is_some() {
        return true;
    }
    let folder = libraries(cudnn);
    ORDERS.into_iter().for_each(|order| in_order(order, name, variables, &folder));
    false
}

/// The orders in which a card may do what is enqueued.
const ORDERS: [&str; 3] = ["0", "1", "2"];

/// Runs a test in a process whose card takes what is enqueued in this order, with the libraries of a folder.
fn in_order(order: &str, name: &str, variables: &[(&str, &str)], folder: &Path) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture", "--include-ignored"]);
    command.env(SIMULATED, "1").env("GPUMEM_SIMULATED_ORDER", order).env("GPUMEM_QUIET", "1");
    command.env("LD_LIBRARY_PATH", folder).env("GPUMEM_CUDA", folder).env("GPUMEM_CACHE", folder.join("cache"));
    command.envs(variables.iter().copied());
    let output = command.output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let status = output.status;
    assert!(status.success() && out.contains("1 passed"), "order {order}, {status}:\n{out}\n{err}");
}

fn driver() -> Option<Library> {
    std::env::var_os(SIMULATED)?;
    // SAFETY: the library was made by `libraries`; it has no initialisers that do anything.
    unsafe { Library::open(Some("libcuda.so.1"), RTLD_NOW | RTLD_GLOBAL) }.ok()
}

/// Makes kernels that were compiled for the host known to the card.
pub fn register<'a>(machine: &Machine, kernels: impl Iterator<Item = &'a Kernel>) {
    let Some(driver) = driver() else { return };
    type Register = unsafe extern "C" fn(*const c_char, *mut c_void, c_int, c_int) -> c_int;
    for kernel in kernels {
        let (launch, arguments, plain) = machine.entry(kernel);
        let note = CString::new(note(kernel)).unwrap();
        // SAFETY: the function has this type, and copies the text.
        unsafe {
            let register = driver.get::<Register>(b"simulated_register").unwrap();
            register(note.as_ptr(), launch, arguments, plain);
        }
    }
}

/// Allocations so far, bytes on the card, graphs captured, graphs replayed.
pub fn counts() -> [u64; 4] {
    let mut counts = [0; 4];
    type Counts = unsafe extern "C" fn(*mut u64) -> c_int;
    // SAFETY: the function has this type, and writes four numbers.
    unsafe { driver().unwrap().get::<Counts>(b"simulated_counts").unwrap()(counts.as_mut_ptr()) };
    counts
}

/// The context's limits in bytes: stack of a thread, buffer of `printf`, heap.
pub fn limits() -> [u64; 3] {
    let mut limits = [0; 3];
    type Limits = unsafe extern "C" fn(*mut u64) -> c_int;
    // SAFETY: the function has this type, and writes three numbers.
    unsafe { driver().unwrap().get::<Limits>(b"simulated_limits").unwrap()(limits.as_mut_ptr()) };
    limits
}

/// Handles of cuBLASLt and other objects of its that are alive, and products that were asked for.
pub fn product_counts() -> [u64; 3] {
    let mut counts = [0; 3];
    type Counts = unsafe extern "C" fn(*mut u64) -> c_int;
    // SAFETY: the library is the stand-in, which is open already; the function has this type, and writes three numbers.
    unsafe {
        let library = Library::open(Some("libcublasLt.so.13"), RTLD_NOW | RTLD_GLOBAL).unwrap();
        library.get::<Counts>(b"simulated_products").unwrap()(counts.as_mut_ptr());
    }
    counts
}

/// Returns groups of exchanges, sums of all ranks, sums of shards and gathers that NCCL was asked for, communicators that were made, destroyed and
/// aborted, and the channels of the last one.
pub fn exchange_counts() -> [u64; 8] {
    let mut counts = [0; 8];
    type Counts = unsafe extern "C" fn(*mut u64) -> c_int;
    // SAFETY: the library is the stand-in, which is open already; the function has this type, and writes eight numbers.
    unsafe {
        let library = Library::open(Some("libnccl.so.2"), RTLD_NOW | RTLD_GLOBAL).unwrap();
        library.get::<Counts>(b"simulated_exchanges").unwrap()(counts.as_mut_ptr());
    }
    counts
}

/// Counts calls of NCCL that may fail from 1 again.
pub fn forget_exchanges() {
    type Forget = unsafe extern "C" fn() -> c_int;
    // SAFETY: the library is the stand-in, which is open already; the function has this type.
    unsafe {
        let library = Library::open(Some("libnccl.so.2"), RTLD_NOW | RTLD_GLOBAL).unwrap();
        library.get::<Forget>(b"simulated_forget").unwrap()();
    }
}

/// Passes of attention and gradients of it that cuDNN was asked for.
pub fn attention_counts() -> [u64; 2] {
    let mut counts = [0; 2];
    type Counts = unsafe extern "C" fn(*mut u64) -> c_int;
    // SAFETY: the library is the stand-in, which is open already; the function has this type, and writes two numbers.
    unsafe {
        let library = Library::open(Some("libcudnn.so.9"), RTLD_NOW | RTLD_GLOBAL).unwrap();
        library.get::<Counts>(b"simulated_attentions").unwrap()(counts.as_mut_ptr());
    }
    counts
}

/// Passes of recurrent layers that cuDNN was asked for: forward, of the data, of the weights.
pub fn recurrence_counts() -> [u64; 3] {
    let mut counts = [0; 3];
    type Counts = unsafe extern "C" fn(*mut u64) -> c_int;
    // SAFETY: the library is the stand-in, which is open already; the function has this type, and writes three numbers.
    unsafe {
        let library = Library::open(Some("libcudnn.so.9"), RTLD_NOW | RTLD_GLOBAL).unwrap();
        library.get::<Counts>(b"simulated_recurrences").unwrap()(counts.as_mut_ptr());
    }
    counts
}

/// Handles of cuDNN and other objects of its that are alive; forward passes, those with a bias in the same pass, biases added
/// in a pass of their own, data gradients and filter gradients that were asked for.
pub fn convolution_counts() -> [u64; 7] {
    let mut counts = [0; 7];
    type Counts = unsafe extern "C" fn(*mut u64) -> c_int;
    // SAFETY: the library is the stand-in, which is open already; the function has this type, and writes seven numbers.
    unsafe {
        let library = Library::open(Some("libcudnn.so.9"), RTLD_NOW | RTLD_GLOBAL).unwrap();
        library.get::<Counts>(b"simulated_convolutions").unwrap()(counts.as_mut_ptr());
    }
    counts
}

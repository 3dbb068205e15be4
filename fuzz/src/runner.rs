//! The loop on stable Rust. It runs the inputs of a seed one after the other, until the time is over or one of them breaks a rule.
//!
//! ```text
//! TARGET [--seconds 60] [--seed 1] [--iterations N]   changes known inputs at random
//! TARGET [--seed 1] --only N                          runs only the input with this number
//! TARGET FILE ...                                     runs these inputs
//! ```
//!
//! An input breaks a rule if it makes the target panic, end the process, run for more than 2 seconds of processor time, wait for more than
//! two minutes, or use more memory than its target allows. That is 1 GiB, or for a file ten times its bytes and a fixed amount. The input is printed
//! with its number, and written to `fuzz/artifacts`.
//!
//! Inputs run in a child process, so that an input that overflows the stack is reported like any other.

use crate::numbers::Numbers;
use crate::{TARGETS, Target};
use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most processor time of an input.
const LONGEST: Duration = Duration::from_secs(2);

/// The most wall-clock time of an input that waits. It is long, because other programs may use the processor meanwhile.
const LONGEST_WAIT: Duration = Duration::from_secs(120);

/// The most bytes that can be allocated, so that the machine has memory for other programs.
const NO_MORE_BYTES: isize = 4 << 30;

/// Bytes of the stack of a thread of rustc.
const STACK: usize = 8 << 20;

/// The variable that is set in the process that runs inputs.
const CHILD: &str = "GPUMEM_FUZZ_CHILD";

/// An allocator that counts bytes.
struct Counting;

static ALLOCATED: AtomicIsize = AtomicIsize::new(0);
static LARGEST: AtomicIsize = AtomicIsize::new(0);

fn added(bytes: usize) -> isize {
    let bytes = bytes as isize;
    let all = ALLOCATED.fetch_add(bytes, Ordering::Relaxed) + bytes;
    LARGEST.fetch_max(all, Ordering::Relaxed);
    all
}

// SAFETY: every call is forwarded to the system's allocator, or returns null.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if added(layout.size()) > NO_MORE_BYTES {
            ALLOCATED.fetch_sub(layout.size() as isize, Ordering::Relaxed);
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promises hold for the system's allocator too.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promises hold for the system's allocator too.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Returns the bytes that are allocated now.
pub fn allocated() -> isize {
    ALLOCATED.load(Ordering::Relaxed)
}

// A coverage-guided fuzzer has its own limits.
#[cfg(not(fuzzing))]
#[global_allocator]
static COUNTING: Counting = Counting;

/// Options of a run.
struct Asked {
    seconds: u64,
    seed: u64,
    iterations: u64,
    only: Option<u64>,
    files: Vec<PathBuf>,
}

impl Asked {
    fn read(words: impl Iterator<Item = String>) -> Result<Asked, String> {
        let mut asked = Asked { seconds: 60, seed: 1, iterations: u64::MAX, only: None, files: Vec::new() };
        let mut words = words;
        while let Some(word) = words.next() {
            if !word.starts_with("--") {
                asked.files.push(word.into());
                continue;
            }
            let number = words.next().and_then(|number| number.parse().ok());
            let number = number.ok_or_else(|| format!("`{word}` needs a number after it"))?;
            match word.as_str() {
                "--seconds" => asked.seconds = number,
                "--seed" => asked.seed = number,
                "--iterations" => asked.iterations = number,
                "--only" => asked.only = Some(number),
                _ => return Err(format!("there is no `{word}`; use --seconds, --seed, --iterations, --only or files")),
            }
        }
        Ok(asked)
    }
}

/// Runs the program of the target with this name.
pub fn main(name: &str) -> ExitCode {
    run(name, 1)
}

/// Runs the program of the target that the first argument names.
pub fn any() -> ExitCode {
    match std::env::args().nth(1) {
        Some(name) => run(&name, 2),
        None => {
            eprintln!("error: name a target first, of {}", TARGETS.map(|target| target.name).join(", "));
            ExitCode::from(2)
        }
    }
}

/// Runs a target with the options that follow the first `before` arguments.
fn run(name: &str, before: usize) -> ExitCode {
    let Some(target) = TARGETS.iter().find(|target| target.name == name) else {
        eprintln!("error: no target is called `{name}`");
        return ExitCode::from(2);
    };
    let asked = match Asked::read(std::env::args().skip(before)) {
        Ok(asked) => asked,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    match std::env::var_os(CHILD) {
        Some(journal) => child(target, asked, Path::new(&journal)),
        None => parent(target, &asked).unwrap_or_else(|error| {
            eprintln!("error: {name}: {error}");
            ExitCode::from(2)
        }),
    }
}

/// Starts the process that runs inputs. If it ends without a report, reports the input at which it ended.
fn parent(target: &Target, asked: &Asked) -> std::io::Result<ExitCode> {
    println!("{}: seed {}", target.name, asked.seed);
    let journal = std::env::temp_dir().join(format!("gpumem-fuzz-{}-{}", target.name, std::process::id()));
    std::fs::write(&journal, [0; 8])?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1)).env(CHILD, &journal).stdin(Stdio::null());
    // Drops warnings of the target. Reports go to standard output.
    command.stderr(Stdio::null());
    let status = command.status()?;
    let mut number = [0; 8];
    std::fs::File::open(&journal)?.read_exact(&mut number)?;
    let _ = std::fs::remove_file(&journal);
    match status.code() {
        Some(0) => Ok(ExitCode::SUCCESS),
        Some(1) => Ok(ExitCode::FAILURE),
        _ => {
            report(target, asked, u64::from_le_bytes(number), &format!("the process ended: {status}"));
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Returns the input with this number.
fn input(target: &Target, asked: &Asked, seeds: &[Vec<u8>], number: u64) -> Vec<u8> {
    match asked.files.get(number as usize) {
        Some(path) => std::fs::read(path).unwrap_or_default(),
        None => (target.mutate)(&mut Numbers::of(asked.seed, number), seeds),
    }
}

/// Reports an input that broke a rule, and writes it to a file.
fn report(target: &Target, asked: &Asked, number: u64, what: &str) {
    let seeds = if asked.files.is_empty() { (target.seeds)() } else { Vec::new() };
    let input = input(target, asked, &seeds, number);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("artifacts").join(target.name);
    let path = folder.join(format!("{}-{number}", asked.seed));
    let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, &input));
    let text = String::from_utf8_lossy(&input[..input.len().min(4000)]);
    println!("{}: seed {}, input {number}: {what}\n--- input\n{}\n---", target.name, asked.seed, text.escape_debug());
    println!("again: cargo run --release --bin {} -- --seed {} --only {number}", target.name, asked.seed);
    if written.is_ok() {
        println!("   or: cargo run --release --bin {} -- {}", target.name, path.display());
    }
    let _ = std::io::stdout().flush();
}

/// The current input, for the thread that watches its time and memory.
struct Running {
    /// The number of the input. The next field counts the inputs that have begun.
    number: AtomicU64,
    begun: AtomicU64,
    /// Bytes that were allocated before the input began.
    before: AtomicIsize,
    /// The most bytes that the input may allocate.
    most: AtomicIsize,
    is_over: AtomicBool,
}

static RUNNING: Running = Running {
    number: AtomicU64::new(0),
    begun: AtomicU64::new(0),
    before: AtomicIsize::new(0),
    most: AtomicIsize::new(isize::MAX),
    is_over: AtomicBool::new(false),
};

/// The message of the last panic.
static PANIC: Mutex<String> = Mutex::new(String::new());

fn child(target: &'static Target, asked: Asked, journal: &Path) -> ExitCode {
    std::panic::set_hook(Box::new(|info| {
        *PANIC.lock().unwrap_or_else(PoisonError::into_inner) = info.to_string();
    }));
    let journal = std::fs::OpenOptions::new().write(true).open(journal);
    let Ok(mut journal) = journal else { return ExitCode::from(2) };
    let asked = &asked;
    let work = move || {
        let seeds = if asked.files.is_empty() { (target.seeds)() } else { Vec::new() };
        let numbers = match (asked.only, asked.files.len() as u64) {
            (Some(only), _) => only..only + 1,
            (None, 0) => 0..asked.iterations,
            (None, files) => 0..files,
        };
        let (start, most) = (Instant::now(), Duration::from_secs(asked.seconds));
        let (mut count, mut largest) = (0, 0);
        for number in numbers {
            if start.elapsed() > most {
                break;
            }
            let input = input(target, asked, &seeds, number);
            let noted = journal.seek(SeekFrom::Start(0)).and_then(|_| journal.write_all(&number.to_le_bytes()));
            if noted.is_err() {
                return ExitCode::from(2);
            }
            let before = ALLOCATED.load(Ordering::Relaxed);
            LARGEST.store(before, Ordering::Relaxed);
            let allowed = target.most.of(input.len()) as isize;
            RUNNING.before.store(before, Ordering::Relaxed);
            RUNNING.most.store(allowed, Ordering::Relaxed);
            RUNNING.number.store(number, Ordering::Relaxed);
            RUNNING.begun.fetch_add(1, Ordering::Release);
            if catch_unwind(AssertUnwindSafe(|| (target.run)(&input))).is_err() {
                RUNNING.is_over.store(true, Ordering::Relaxed);
                let what = PANIC.lock().unwrap_or_else(PoisonError::into_inner).clone();
                report(target, asked, number, &what);
                return ExitCode::FAILURE;
            }
            let bytes = LARGEST.load(Ordering::Relaxed) - before;
            if bytes > allowed {
                RUNNING.is_over.store(true, Ordering::Relaxed);
                report(target, asked, number, &too_large(bytes, allowed));
                return ExitCode::FAILURE;
            }
            (count, largest) = (count + 1, largest.max(bytes));
        }
        RUNNING.is_over.store(true, Ordering::Relaxed);
        let (seconds, kib) = (start.elapsed().as_secs(), largest >> 10);
        println!("{}: {count} inputs in {seconds} s, at most {kib} KiB of memory, no rule broken", target.name);
        ExitCode::SUCCESS
    };
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
        let Ok(worker) = worker else { return ExitCode::from(2) };
        watch(target, asked, &Clock::default(), &|| worker.is_finished());
        worker.join().unwrap_or(ExitCode::from(2))
    })
}

/// Returns the message about an input that used too much memory.
fn too_large(bytes: isize, allowed: isize) -> String {
    format!("has {} KiB of memory, and {} are allowed", bytes >> 10, allowed >> 10)
}

/// Ends the process if an input takes too long or uses too much memory.
fn watch(target: &Target, asked: &Asked, clock: &Clock, is_done: &dyn Fn() -> bool) {
    let (mut begun, mut since, mut start) = (0, clock.now(), Instant::now());
    while !is_done() {
        std::thread::sleep(Duration::from_millis(20));
        let (now, current) = (clock.now(), RUNNING.begun.load(Ordering::Acquire));
        if current != begun {
            (begun, since, start) = (current, now, Instant::now());
        }
        let bytes = LARGEST.load(Ordering::Relaxed) - RUNNING.before.load(Ordering::Relaxed);
        let allowed = RUNNING.most.load(Ordering::Relaxed);
        let what = if begun > 0 && now.saturating_sub(since) > LONGEST {
            format!("runs for more than {} s", LONGEST.as_secs())
        } else if begun > 0 && start.elapsed() > LONGEST_WAIT {
            format!("waits for more than {} s", LONGEST_WAIT.as_secs())
        } else if begun > 0 && bytes > allowed {
            too_large(bytes, allowed)
        } else {
            continue;
        };
        // An input that has ended by now is not to blame.
        if RUNNING.begun.load(Ordering::Acquire) == begun && !RUNNING.is_over.load(Ordering::Relaxed) {
            report(target, asked, RUNNING.number.load(Ordering::Relaxed), &what);
            std::process::exit(1);
        }
    }
}

/// The processor time of all threads of this process, including those that a target starts, but not of other programs.
///
/// If the system does not provide it, this is wall-clock time.
struct Clock {
    start: Instant,
}

/// Ticks per second in `/proc`, on every processor that Linux runs on.
const TICKS: u64 = 100;

impl Default for Clock {
    fn default() -> Clock {
        Clock { start: Instant::now() }
    }
}

impl Clock {
    fn now(&self) -> Duration {
        processor_time().unwrap_or_else(|| self.start.elapsed())
    }
}

/// Returns the time in user mode and in the kernel. `None` if the system does not provide it.
fn processor_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program is in parentheses, and may itself contain parentheses and spaces.
    let (_, after) = text.rsplit_once(')')?;
    let mut fields = after.split_whitespace().skip(11).map(str::parse::<u64>);
    let (user, kernel) = (fields.next()?.ok()?, fields.next()?.ok()?);
    Some(Duration::from_millis((user + kernel) * 1000 / TICKS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read() {
        let read = |words: &str| Asked::read(words.split_whitespace().map(String::from));
        let asked = read("--seed 7 --seconds 3 --only 12").unwrap();
        assert_eq!((asked.seed, asked.seconds, asked.only), (7, 3, Some(12)));
        assert_eq!(read("a b").unwrap().files.len(), 2);
        for words in ["--seed", "--seed x", "--seeds 1"] {
            assert!(read(words).is_err(), "{words}");
        }
    }

    #[test]
    fn the_clock_runs_while_a_thread_does() {
        let clock = Clock::default();
        let start = clock.now();
        let work = || {
            let mut sum = 0u64;
            while clock.now() == start {
                sum = std::hint::black_box(sum + 1);
            }
        };
        std::thread::scope(|scope| scope.spawn(work).join().unwrap());
        assert!(clock.now() > start);
    }

    #[test]
    fn memory_is_allowed_by_the_length_of_a_file() {
        use crate::Most;
        assert_eq!((Most::OF_A_TEXT.of(0), Most::OF_A_TEXT.of(1 << 20)), (1 << 30, 1 << 30));
        assert_eq!(Most::OF_A_FILE.of(1 << 20), (8 + 10) << 20);
    }
}

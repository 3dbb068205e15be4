//! Processes that hold memory of a card, by NVML, which comes with the driver. Without NVML nothing is reported.
//!
//! Half a dozen functions, looked up by hand: a wrapper of the whole library would be larger than this backend.

use super::preflight::function;
use gpumem_core::error::Holder;
use libloading::Library;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

type Handle = *mut c_void;

/// NVML, initialised.
#[derive(Debug)]
pub(crate) struct Nvml {
    library: Library,
}

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Default)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// `nvmlProcessInfo_v2_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Process {
    id: c_uint,
    bytes: u64,
    _instances: [c_uint; 2],
}

/// The value that NVML writes for an unknown figure.
const UNKNOWN: u64 = u64::MAX;
const INSUFFICIENT_SIZE: c_int = 7;

type Processes = unsafe extern "C" fn(Handle, *mut c_uint, *mut Process) -> c_int;

impl Nvml {
    /// Opens NVML; `None` if it is missing or does not start.
    pub fn open() -> Option<Nvml> {
        let names = if cfg!(windows) { ["nvml.dll", "nvml"] } else { ["libnvidia-ml.so.1", "libnvidia-ml.so"] };
        // SAFETY: by its name it is NVIDIA's library, and using it means to run its initialisers.
        let library = names.into_iter().find_map(|name| unsafe { Library::new(name) }.ok())?;
        let code = {
            let init = function::<unsafe extern "C" fn() -> c_int>(&library, "nvmlInit_v2").ok()?;
            // SAFETY: it has no arguments; `drop` undoes it.
            unsafe { init() }
        };
        (code == 0).then_some(Nvml { library })
    }

    /// Returns the card, or the MIG part of one, with this UUID. Indices would differ from CUDA's if `CUDA_VISIBLE_DEVICES` is set.
    pub fn card(&self, uuid: [u8; 16]) -> Option<Card<'_>> {
        type ByUuid = unsafe extern "C" fn(*const c_char, *mut Handle) -> c_int;
        let find = function::<ByUuid>(&self.library, "nvmlDeviceGetHandleByUUID").ok()?;
        ["GPU", "MIG"].iter().find_map(|kind| {
            let name = CString::new(uuid_text(kind, uuid)).ok()?;
            let mut handle = std::ptr::null_mut();
            // SAFETY: the name ends with a zero byte, `handle` is a valid place for one pointer, and NVML is initialised.
            let code = unsafe { find(name.as_ptr(), &mut handle) };
            (code == 0).then_some(Card { nvml: self, handle })
        })
    }

    /// Returns the driver's version in its package's spelling: `580.95.05`. `None` if NVML does not report it.
    pub fn driver(&self) -> Option<String> {
        type Version = unsafe extern "C" fn(*mut c_char, c_uint) -> c_int;
        let version = function::<Version>(&self.library, "nvmlSystemGetDriverVersion").ok()?;
        let mut text = [0u8; 96];
        // SAFETY: the buffer has the stated length, and NVML is initialised.
        let code = unsafe { version(text.as_mut_ptr().cast(), text.len() as c_uint) };
        let text = CStr::from_bytes_until_nul(&text).ok()?.to_string_lossy();
        (code == 0 && !text.is_empty()).then(|| text.into_owned())
    }

    /// Returns the file name of a process's program; `None` if NVML does not report it.
    fn program(&self, id: c_uint) -> Option<String> {
        type NameOf = unsafe extern "C" fn(c_uint, *mut c_char, c_uint) -> c_int;
        let name_of = function::<NameOf>(&self.library, "nvmlSystemGetProcessName").ok()?;
        let mut name = [0u8; 1024];
        // SAFETY: the buffer has the stated length, and NVML is initialised.
        let code = unsafe { name_of(id, name.as_mut_ptr().cast(), name.len() as c_uint) };
        let text = CStr::from_bytes_until_nul(&name).ok()?.to_string_lossy();
        (code == 0).then(|| file_name(&text)).flatten()
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        if let Ok(shutdown) = function::<unsafe extern "C" fn() -> c_int>(&self.library, "nvmlShutdown") {
            // SAFETY: `open` initialised it, and handles do not outlive `self`. A failure leaves nothing to do.
            let _ = unsafe { shutdown() };
        }
    }
}

/// A card, by NVML's handle.
#[derive(Debug)]
pub(crate) struct Card<'a> {
    nvml: &'a Nvml,
    handle: Handle,
}

impl Card<'_> {
    /// Returns the bytes in use by all processes; `None` if NVML does not report them.
    pub fn used(&self) -> Option<u64> {
        type MemoryInfo = unsafe extern "C" fn(Handle, *mut Memory) -> c_int;
        let get = function::<MemoryInfo>(&self.nvml.library, "nvmlDeviceGetMemoryInfo").ok()?;
        let mut memory = Memory::default();
        // SAFETY: the handle is of this NVML, and `memory` is laid out as the header says.
        let code = unsafe { get(self.handle, &mut memory) };
        (code == 0).then_some(memory.used)
    }

    /// Returns the bytes that this process holds, without those of other processes. `None` if NVML does not list it: it holds nothing yet, or NVML
    /// sees other process numbers, as in some containers.
    pub fn own(&self) -> Option<u64> {
        self.shares().remove(&std::process::id()).flatten()
    }

    /// Returns the processes that hold memory, the largest first. In a container, processes outside it may be missing.
    pub fn holders(&self) -> Vec<Holder> {
        let own = std::process::id();
        let shares = self.shares().into_iter();
        holders(shares.map(|(id, bytes)| (name(id, own, self.nvml.program(id)), bytes)).collect())
    }

    /// Returns the processes and the bytes that each holds, `None` if unknown.
    fn shares(&self) -> BTreeMap<c_uint, Option<u64>> {
        let mut bytes: BTreeMap<c_uint, Option<u64>> = BTreeMap::new();
        // A process that both computes and draws is on both lists, with equal figures.
        for kind in ["Compute", "Graphics"] {
            for process in self.processes(kind) {
                let known = (process.bytes != UNKNOWN).then_some(process.bytes);
                let entry = bytes.entry(process.id).or_default();
                *entry = known.max(*entry);
            }
        }
        bytes
    }

    fn processes(&self, kind: &str) -> Vec<Process> {
        // Version 3 has another layout in some drivers; version 2 always has this one.
        let names = ["v2", "v3"].map(|version| format!("nvmlDeviceGet{kind}RunningProcesses_{version}"));
        let Some(get) = names.iter().find_map(|name| function::<Processes>(&self.nvml.library, name).ok()) else {
            return Vec::new();
        };
        let mut list = vec![Process::default(); 64];
        // Try again: processes may start and end between two calls.
        for _ in 0..4 {
            // NVML is given half of the list's length, in case a layout has longer entries.
            let mut count = (list.len() / 2) as c_uint;
            // SAFETY: the handle belongs to this NVML, and the list has more places than `count`.
            let code = unsafe { get(self.handle, &mut count, list.as_mut_ptr()) };
            match code {
                0 => {
                    list.truncate(count as usize);
                    return list;
                }
                INSUFFICIENT_SIZE => list.resize((count as usize + 16) * 2, Process::default()),
                _ => return Vec::new(),
            }
        }
        Vec::new()
    }
}

/// Sorts holders by bytes, the largest first and unknown ones last.
fn holders(processes: Vec<(String, Option<u64>)>) -> Vec<Holder> {
    let mut holders: Vec<Holder> = processes.into_iter().map(|(name, bytes)| Holder { name, bytes }).collect();
    holders.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
    holders
}

fn name(id: c_uint, own: u32, program: Option<String>) -> String {
    match program {
        _ if id == own => "this process".into(),
        Some(program) => format!("{program} (process {id})"),
        None => format!("process {id}"),
    }
}

/// Returns `/usr/bin/python3` or `C:\python.exe` without the folders; `None` if nothing is left.
fn file_name(path: &str) -> Option<String> {
    let name = path.rsplit(['/', '\\']).next().unwrap_or_default().trim();
    (!name.is_empty()).then(|| name.to_string())
}

/// Returns the UUID in NVML's spelling: `GPU-8f3b7a52-...`.
fn uuid_text(kind: &str, uuid: [u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    format!("{kind}-{}", parts.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_named_as_nvml_names_it() {
        let uuid = [0x8f, 0x3b, 0x7a, 0x52, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0xff];
        assert_eq!(uuid_text("GPU", uuid), "GPU-8f3b7a52-0102-0304-0506-0708090a0bff");
    }

    #[test]
    fn processes_are_named_and_ordered() {
        assert_eq!(name(7, 7, Some("python3".into())), "this process");
        assert_eq!(name(7, 8, file_name("/opt/my env/bin/python3")), "python3 (process 7)");
        assert_eq!(name(7, 8, file_name(r"C:\Windows\dwm.exe")), "dwm.exe (process 7)");
        assert_eq!(name(7, 8, file_name("")), "process 7");
        let sorted = holders(vec![("a".into(), Some(1)), ("b".into(), None), ("c".into(), Some(2))]);
        let names: Vec<&str> = sorted.iter().map(|holder| holder.name.as_str()).collect();
        assert_eq!(names, ["c", "a", "b"]);
    }

    #[test]
    fn layouts_are_those_of_the_header() {
        assert_eq!(size_of::<Process>(), 24);
        assert_eq!(std::mem::offset_of!(Process, bytes), 8);
        assert_eq!(size_of::<Memory>(), 24);
    }
}

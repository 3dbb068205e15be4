//! Reads cards through NVML, the management library that comes with NVIDIA's driver. It is loaded when the command runs.

use crate::Failure;
use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use std::ffi::OsString;
use std::path::PathBuf;

/// The names of the library. The second is the one of toolkits and other systems.
const NAMES: [&str; 2] =
    if cfg!(windows) { ["nvml.dll", "nvml.dll"] } else { ["libnvidia-ml.so.1", "libnvidia-ml.so"] };

/// A card as it is at one time. A figure that it does not have is `None`.
#[derive(Clone, Debug, PartialEq)]
pub struct Card {
    pub index: u32,
    pub name: String,
    pub uuid: Option<String>,
    /// Bytes of its memory: all, and those in use.
    pub total: u64,
    pub used: u64,
    /// Percent of the time in which a kernel ran.
    pub utilisation: Option<u32>,
    pub watts: Option<f64>,
    pub most_watts: Option<f64>,
    pub celsius: Option<u32>,
    pub processes: Vec<Process>,
}

/// A process that has a context on a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    /// Bytes of the card's memory. `None` if the driver does not say.
    pub used: Option<u64>,
}

/// The library, with the cards that it knows.
pub struct Cards {
    nvml: Nvml,
}

impl Cards {
    /// Loads the library from the folders in `GPUMEM_CUDA`, or else from where the system has it.
    pub fn open() -> Result<Cards, Failure> {
        let mut absent = None;
        for path in paths() {
            match Nvml::builder().lib_path(&path).init() {
                Ok(nvml) => return Ok(Cards { nvml }),
                Err(error @ NvmlError::LibloadingError(_)) => absent = absent.or(Some(error)),
                Err(error) => return Err(failing(&error).into()),
            }
        }
        Err(missing(&absent.map_or_else(String::new, |error| error.to_string())).into())
    }

    /// Returns all cards as they are now.
    pub fn read(&self) -> Result<Vec<Card>, Failure> {
        let failed = |error: NvmlError| -> Failure { format!("the driver does not answer: {error}").into() };
        let count = self.nvml.device_count().map_err(failed)?;
        (0..count).map(|index| self.card(index).map_err(failed)).collect()
    }

    fn card(&self, index: u32) -> Result<Card, NvmlError> {
        let device = self.nvml.device_by_index(index)?;
        let memory = device.memory_info()?;
        let watts = |milliwatts: u32| f64::from(milliwatts) / 1000.0;
        let processes = device.running_compute_processes().unwrap_or_default().into_iter().map(|process| Process {
            pid: process.pid,
            used: match process.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            },
        });
        Ok(Card {
            index,
            name: device.name()?,
            uuid: device.uuid().ok(),
            total: memory.total,
            used: memory.used,
            utilisation: device.utilization_rates().ok().map(|rates| rates.gpu),
            watts: device.power_usage().ok().map(watts),
            most_watts: device.enforced_power_limit().ok().map(watts),
            celsius: device.temperature(TemperatureSensor::Gpu).ok(),
            processes: processes.collect(),
        })
    }
}

/// Returns the paths that are tried, in order.
fn paths() -> Vec<OsString> {
    let folders = std::env::var_os("GPUMEM_CUDA").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&folders).filter(|folder| folder.is_absolute()).collect();
    let inside = folders.iter().flat_map(|folder| NAMES.map(|name| folder.join(name)));
    let inside = inside.filter(|path| path.is_file()).map(PathBuf::into_os_string);
    inside.chain(NAMES.map(OsString::from)).collect()
}

/// Returns the error for a computer without the library.
fn missing(why: &str) -> String {
    format!(
        "cannot load {} ({why}); it is part of NVIDIA's driver: install the driver, of which Ubuntu has it in the package \
         libnvidia-compute-VERSION, Debian in libnvidia-ml1 and Fedora in nvidia-driver-cuda-libs. `GPUMEM_CUDA` names a folder with it",
        NAMES[0]
    )
}

/// Returns the error for a computer with the library whose driver does not answer.
fn failing(why: &NvmlError) -> String {
    format!(
        "{} is there, but the driver does not answer ({why}): load its module with `sudo modprobe nvidia`, or install a \
         driver and a library of one version",
        NAMES[0]
    )
}

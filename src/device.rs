//! The best device of a machine.

use gpumem_core::Precision;
use gpumem_core::error::Error;
use gpumem_core::run::device::{Device, Fill, Inspected, Job, Runner};
use gpumem_core::run::ranks::Ranks;
use gpumem_core::train::optim::Optimizer;

/// A device of any enabled kind, as [`default_device`] returns it.
#[derive(Debug)]
#[non_exhaustive]
pub enum AnyDevice {
    /// The CPU.
    #[cfg(feature = "cpu")]
    Cpu(gpumem_cpu::Cpu),
    /// A CUDA card.
    #[cfg(feature = "cuda")]
    Cuda(gpumem_cuda::Cuda),
}

/// A network loaded onto [`AnyDevice`].
#[derive(Debug)]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "there is one a network, and it is not moved about")]
pub enum AnyRunner {
    /// On the CPU.
    #[cfg(feature = "cpu")]
    Cpu(<gpumem_cpu::Cpu as Device>::Runner),
    /// On a CUDA card.
    #[cfg(feature = "cuda")]
    Cuda(<gpumem_cuda::Cuda as Device>::Runner),
}

/// Returns the first CUDA card if there is one and the feature `cuda` is on, else the CPU. If the feature is on and the CPU is used
/// nevertheless, a line on stderr gives the reason, unless `GPUMEM_QUIET=1`.
///
/// # Errors
/// None, unless the feature `cpu` is off: then the reason why there is no card.
#[cfg(feature = "cpu")]
pub fn default_device() -> Result<AnyDevice, Error> {
    #[cfg(feature = "cuda")]
    match gpumem_cuda::Cuda::new(0) {
        Ok(card) => return Ok(AnyDevice::Cuda(card)),
        Err(error) => gpumem_cuda::warning::notice(&gpumem_cuda::warning::instead_of_a_card("the CPU", &error)),
    }
    Ok(AnyDevice::Cpu(gpumem_cpu::Cpu::new()))
}

/// Returns the first CUDA card.
///
/// # Errors
/// The reason why there is none: a missing library or card.
#[cfg(not(feature = "cpu"))]
pub fn default_device() -> Result<AnyDevice, Error> {
    gpumem_cuda::Cuda::new(0).map(AnyDevice::Cuda)
}

impl AnyDevice {
    /// Returns the device of this process among `ranks`: that of [`default_device`] for one rank. Of several, each has the card whose number is that
    /// of the rank on its machine, or the CPU without such a card.
    ///
    /// # Errors
    /// As for [`default_device`], `Cuda::on` and `Cpu::on`.
    pub fn on(ranks: &Ranks) -> Result<AnyDevice, Error> {
        if ranks.is_alone() {
            return default_device();
        }
        #[cfg(feature = "cuda")]
        match gpumem_cuda::Cuda::new(ranks.local_rank() as usize) {
            // A card that is there is not replaced: ranks on cards and ranks on CPUs would wait for each other.
            Ok(card) => return card.on_rank(ranks, gpumem_cuda::RankId::of(ranks)?).map(AnyDevice::Cuda),
            #[cfg(feature = "cpu")]
            Err(error) => gpumem_cuda::warning::notice(&gpumem_cuda::warning::instead_of_a_card("the CPU", &error)),
            #[cfg(not(feature = "cpu"))]
            Err(error) => return Err(error),
        }
        #[cfg(feature = "cpu")]
        gpumem_cpu::Cpu::on(ranks).map(AnyDevice::Cpu)
    }
}

/// Calls a method of the device, whichever kind it is.
macro_rules! each {
    ($value:expr, $type:ident, $name:ident => $call:expr) => {
        match $value {
            #[cfg(feature = "cpu")]
            $type::Cpu($name) => $call,
            #[cfg(feature = "cuda")]
            $type::Cuda($name) => $call,
        }
    };
}

impl Device for AnyDevice {
    type Runner = AnyRunner;

    fn precision(&self, wanted: Precision) -> Precision {
        each!(self, AnyDevice, device => device.precision(wanted))
    }

    fn load(&self, job: Job) -> Result<AnyRunner, Error> {
        match self {
            #[cfg(feature = "cpu")]
            AnyDevice::Cpu(device) => device.load(job).map(AnyRunner::Cpu),
            #[cfg(feature = "cuda")]
            AnyDevice::Cuda(device) => device.load(job).map(AnyRunner::Cuda),
        }
    }
}

impl Runner for AnyRunner {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        each!(self, AnyRunner, runner => runner.write(offset, bytes))
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        each!(self, AnyRunner, runner => runner.read(offset, bytes))
    }

    fn select(&mut self, step: usize) -> Result<(), Error> {
        each!(self, AnyRunner, runner => runner.select(step))
    }

    fn feed_with(&mut self, offset: u64, length: usize, put: &Fill<'_>) -> Result<(), Error> {
        each!(self, AnyRunner, runner => runner.feed_with(offset, length, put))
    }

    fn loss(&mut self, offset: u64) -> Result<f32, Error> {
        each!(self, AnyRunner, runner => runner.loss(offset))
    }

    fn accumulate(&mut self, part: u64) -> Result<(), Error> {
        each!(self, AnyRunner, runner => runner.accumulate(part))
    }

    fn train(&mut self) -> Result<(), Error> {
        each!(self, AnyRunner, runner => runner.train())
    }

    fn inspect(&mut self, part: Option<u64>) -> Result<Inspected, Error> {
        each!(self, AnyRunner, runner => runner.inspect(part))
    }

    fn evaluate(&mut self) -> Result<(), Error> {
        each!(self, AnyRunner, runner => runner.evaluate())
    }

    fn infer(&mut self) -> Result<(), Error> {
        each!(self, AnyRunner, runner => runner.infer())
    }

    fn serve(&mut self) -> Result<(), Error> {
        each!(self, AnyRunner, runner => runner.serve())
    }

    fn rank(&self) -> [u64; 2] {
        each!(self, AnyRunner, runner => runner.rank())
    }

    fn any_rank(&mut self, condition: bool) -> Result<bool, Error> {
        each!(self, AnyRunner, runner => runner.any_rank(condition))
    }

    fn set_optimizer(&mut self, optimizer: Optimizer) -> Result<(), Error> {
        each!(self, AnyRunner, runner => runner.set_optimizer(optimizer))
    }
}

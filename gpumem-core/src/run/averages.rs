//! Moving averages of parameters: evaluation with them, and copies to other networks.

use crate::error::Error;
use crate::network::{Network, Serve, Trains};
use crate::number::Format;
use crate::program::{Class, StateWord};
use crate::run::device::{Device, Runner};
use crate::run::host_copies::{Spot, encode, exact, spot};
use crate::run::net::{Kind, Net};
use crate::run::tensor::Give;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

/// The end of the name of an average, after that of its parameter.
const AVERAGE: &str = ".average";

/// A network whose parameters are their moving averages: see [`Net::averaged`]. It evaluates, and does not train.
pub struct Averaged<'n, N: Network, D: Device> {
    net: &'n mut Net<N, D>,
    /// The bytes of each parameter, and of its master copy, with their offsets in the arena.
    kept: Vec<(u64, Vec<u8>)>,
}

impl<N: Network, D: Device> fmt::Debug for Averaged<'_, N, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Averaged").field("net", &self.net).finish_non_exhaustive()
    }
}

impl<N: Network, D: Device> Net<N, D> {
    /// True if the network keeps moving averages of its parameters: `ema: 0.999` in `TRAIN`.
    pub fn has_averages(&self) -> bool {
        self.main().program.descent.ema.is_some()
    }

    /// Evaluates with the moving averages in place of the parameters. Afterwards the parameters are restored to the bit, and nothing else
    /// that training changes has changed. Before the first average, the averages equal the parameters.
    ///
    /// Meanwhile the trained parameters are in host memory. They are copied there and back, so evaluate many batches in one call.
    ///
    /// ```text
    /// let loss = net.averaged(|net| net.eval_loss(&images, &labels))?;
    /// ```
    ///
    /// PyTorch: `averaged_model(images)`, of an `AveragedModel`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if `TRAIN` has no `ema`. The error of the closure, or a failure of the device.
    pub fn averaged<T>(
        &mut self,
        evaluate: impl FnOnce(&mut Averaged<'_, N, D>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.check_averages()?;
        let mut averaged = Averaged { net: self, kept: Vec::new() };
        averaged.begin()?;
        let result = evaluate(&mut averaged);
        averaged.end()?;
        result
    }

    /// Sets the moving averages to the parameters, as before the first step.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if `TRAIN` has no `ema`. A failure of the device.
    pub fn reset_averages(&mut self) -> Result<(), Error> {
        self.check_averages()?;
        self.begin_averages()?;
        self.set_state_word(StateWord::Averaged as usize, 0)
    }

    /// Takes the moving averages of a network that is trained as the parameters of this one, which serves. Tensors without an average, such
    /// as running statistics and frozen parameters, are copied unchanged, as by [`Net::copy_from`]. Both networks may run on different
    /// devices and in different precisions.
    ///
    /// # Errors
    /// As for [`Net::copy_from`], and [`Error::Unsupported`] if the other has no averages.
    pub fn copy_average_from<M: Network, E: Device>(&mut self, other: &mut Net<M, E>) -> Result<(), Error> {
        other.check_averages()?;
        let is_model = |kind| matches!(kind, Kind::Parameter | Kind::Statistic);
        let names: Vec<String> =
            self.tensors().filter(|tensor| is_model(tensor.kind)).map(|tensor| tensor.name.to_string()).collect();
        self.compare(other, &names)?;
        for name in &names {
            let from = other.average_of(name)?;
            self.set(name, &other.get(&from)?)?;
        }
        Ok(())
    }

    /// Returns the name of a parameter's average, or the name itself if there is no average, or none yet.
    ///
    /// # Errors
    /// A failure of the device.
    pub fn average_of(&mut self, name: &str) -> Result<String, Error> {
        let average = format!("{name}{AVERAGE}");
        let is_there = self.tensors().any(|tensor| tensor.kind == Kind::Average && tensor.name == average);
        let has_begun = is_there && self.state_word(StateWord::Averaged as usize)? > 0;
        Ok(if has_begun { average } else { name.to_string() })
    }

    fn check_averages(&self) -> Result<(), Error> {
        if self.has_averages() {
            return Ok(());
        }
        let what = "it keeps no moving averages; write `ema: 0.999` in `TRAIN`".into();
        Err(Error::Unsupported { device: N::NAME, what })
    }

    /// Returns the tensor numbers of parameters with an average, each with that of its average.
    fn averages(&self) -> Vec<[usize; 2]> {
        let tensors = &self.main().program.tensors;
        let of = |(id, tensor): (usize, &crate::program::Tensor)| {
            let parameter = tensor.name.strip_suffix(AVERAGE).filter(|_| tensor.class == Class::Average)?;
            let is_it = |other: &crate::program::Tensor| other.class == Class::Parameter && other.name == parameter;
            Some([tensors.iter().position(is_it)?, id])
        };
        tensors.iter().enumerate().filter_map(of).collect()
    }

    /// Writes the parameters to their averages.
    pub(super) fn begin_averages(&mut self) -> Result<(), Error> {
        for [parameter, average] in self.averages() {
            let placed = self.main();
            let elements = placed.program.tensors[parameter].elements(1).unwrap_or(0) as usize;
            let from = exact(placed, parameter, self.precision);
            let to = spot(placed, average, self.precision);
            let mut bytes = vec![0; elements * from.format.bytes() as usize];
            self.runner.read(from.offset, &mut bytes)?;
            let bytes = encode(to.format, &from.format.decode(&bytes));
            self.runner.write(to.offset, &bytes)?;
        }
        Ok(())
    }
}

impl<N: Network, D: Device> Averaged<'_, N, D> {
    /// Writes averages to parameters and master copies, and keeps the overwritten bytes.
    fn begin(&mut self) -> Result<(), Error> {
        let Averaged { net, kept } = self;
        if net.state_word(StateWord::Averaged as usize)? == 0 {
            return Ok(());
        }
        for [parameter, average] in net.averages() {
            let placed = net.main();
            let elements = placed.program.tensors[parameter].elements(1).unwrap_or(0) as usize;
            let own = spot(placed, parameter, net.precision);
            let master = placed.masters[parameter].map(|offset| Spot { offset, format: Format::F32 });
            let from = spot(placed, average, net.precision);
            let mut bytes = vec![0; elements * from.format.bytes() as usize];
            net.runner.read(from.offset, &mut bytes)?;
            let values = from.format.decode(&bytes);
            for Spot { offset, format } in master.into_iter().chain([own]) {
                let mut old = vec![0; elements * format.bytes() as usize];
                net.runner.read(offset, &mut old)?;
                kept.push((offset, old));
                net.runner.write(offset, &encode(format, &values))?;
            }
        }
        Ok(())
    }

    /// Writes the kept bytes back.
    fn end(&mut self) -> Result<(), Error> {
        let Averaged { net, kept } = self;
        kept.drain(..).try_for_each(|(offset, bytes)| net.runner.write(offset, &bytes))
    }

    /// Returns the loss with the averages, as [`Net::eval_loss`] does.
    ///
    /// # Errors
    /// As for that method.
    pub fn eval_loss<'i, 't>(
        &mut self,
        input: impl Give<'i, N::Input>,
        target: impl Give<'t, N::Target>,
    ) -> Result<f32, Error>
    where
        N: Trains,
    {
        self.net.eval_loss(input, target)
    }

    /// Runs one forward pass with the averages, as [`Net::forward`] does.
    ///
    /// # Errors
    /// As for that method.
    pub fn forward<'i>(&mut self, input: impl Give<'i, N::Input>) -> Result<N::Output, Error> {
        self.net.forward(input)
    }

    /// Runs one forward pass with the averages, as [`Net::infer`] does.
    ///
    /// # Errors
    /// As for that method.
    pub fn infer<'i>(&mut self, input: impl Give<'i, N::ServedInput>) -> Result<N::ServedOutput, Error>
    where
        N: Serve,
    {
        self.net.infer(input)
    }

    /// Returns the values of a tensor, as [`Net::get`] does; of a parameter its average.
    ///
    /// # Errors
    /// As for that method.
    pub fn get(&mut self, name: &str) -> Result<Vec<f32>, Error> {
        self.net.get(name)
    }
}

impl<N: Network, D: Device> Drop for Averaged<'_, N, D> {
    /// Restores the parameters after a closure that panicked, or after a failure, as far as the device still can.
    fn drop(&mut self) {
        let _ = self.end();
    }
}

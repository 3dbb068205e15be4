//! Copies of weights from one network to another, also from one with low-rank adapters, which are added to the weights.

use crate::error::Error;
use crate::network::Network;
use crate::program::adapters::{Adapter, is_of_adapter};
use crate::run::device::Device;
use crate::run::net::{Kind, Named, Net};
use alloc::string::String;
use alloc::vec::Vec;

impl<N: Network, D: Device> Net<N, D> {
    /// Returns the parameters and running statistics that the network would have without low-rank adapters. [`Net::get_merged`] reads their
    /// values; a loop over them writes a file for other programs.
    pub fn merged_tensors(&self) -> impl Iterator<Item = Named<'_>> {
        let is_model = |tensor: &Named<'_>| matches!(tensor.kind, Kind::Parameter | Kind::Statistic);
        self.tensors().filter(move |tensor| is_model(tensor) && !is_of_adapter(tensor.name))
    }

    /// Returns the values of a tensor, as [`Net::get`] does. A weight with an adapter is `W + alpha / rank * B A`.
    ///
    /// PEFT: `model.merge_and_unload()`.
    ///
    /// # Errors
    /// As for [`Net::get`].
    pub fn get_merged(&mut self, name: &str) -> Result<Vec<f32>, Error> {
        let mut values = self.get(name)?;
        let program = &self.infer.program;
        let is_it = |adapter: &Adapter| program.tensor(adapter.weight).name == name;
        let found = program.adapters().into_iter().find(is_it);
        if let Some(adapter) = found {
            let [a, b] = [adapter.a, adapter.b].map(|id| program.tensor(id).name.clone());
            let (a, b) = (self.get(&a)?, self.get(&b)?);
            adapter.merge(&mut values, &a, &b);
        }
        Ok(values)
    }

    /// Copies parameters and running statistics from another network, which must have all of this one's: for instance from the trained one
    /// to the one that serves. Both may run on different devices and in different precisions.
    ///
    /// # Errors
    /// [`Error::Name`] if the other network has no tensor of a name, [`Error::Shape`] if its tensor has another shape. Nothing is copied
    /// then.
    pub fn copy_from<M: Network, E: Device>(&mut self, other: &mut Net<M, E>) -> Result<(), Error> {
        let is_model = |tensor: &Named<'_>| matches!(tensor.kind, Kind::Parameter | Kind::Statistic);
        let names: Vec<String> = self.tensors().filter(is_model).map(|tensor| tensor.name.into()).collect();
        self.compare(other, &names)?;
        for name in &names {
            self.set(name, &other.get(name)?)?;
        }
        Ok(())
    }

    /// Copies from a network with low-rank adapters to this one without them, as [`Net::copy_from`] does. Each weight becomes the sum of
    /// weight and adapter.
    ///
    /// # Errors
    /// As for [`Net::copy_from`].
    pub fn copy_merged_from<M: Network, E: Device>(&mut self, other: &mut Net<M, E>) -> Result<(), Error> {
        let names: Vec<String> = self.merged_tensors().map(|tensor| tensor.name.into()).collect();
        self.compare(other, &names)?;
        for name in &names {
            self.set(name, &other.get_merged(name)?)?;
        }
        Ok(())
    }

    /// Checks that another network has all of these tensors in the same shapes. Counts of elements do not suffice, since a transposed
    /// weight has as many.
    pub(super) fn compare<M: Network, E: Device>(&self, other: &Net<M, E>, names: &[String]) -> Result<(), Error> {
        for name in names {
            other.find(name)?;
            let shapes = [self.shape(name), other.shape(name)].map(|shape| shape.unwrap_or_default().to_vec());
            if shapes[0] != shapes[1] {
                let [expected, found] = shapes;
                return Err(Error::Shape { name: name.clone(), expected, found });
            }
        }
        Ok(())
    }
}
